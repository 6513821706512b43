#!/usr/bin/env python3
"""Records episodes of Gymnasium's CartPole-v1, which tests/unit/test_control.c repeats: the initial state,
the actions, every state, and how the episode ended. Needs gymnasium and numpy.

    golden_cartpole.py >golden-cartpole.json"""
import json

import gymnasium
import numpy

rng = numpy.random.default_rng(7)
episodes = []
for kind in range(4):
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=kind)
    core = env.unwrapped
    first, actions, states, rewards = [float(x) for x in core.state], "", [], []
    while True:
        x, v, angle, turn = core.state
        # random actions, or balancing until the time limit, or one action until the cart leaves the track
        good = int(angle + 0.3 * turn + 0.02 * x + 0.06 * v > 0)
        drift = int(angle + 0.3 * turn - 0.05 > 0)
        action = [int(rng.integers(2)), good, drift, 1][kind]
        observation, reward, terminated, truncated, _ = env.step(action)
        actions += str(action)
        rewards.append(float(reward))
        states.append([float(x) for x in core.state])
        if terminated or truncated:
            break
    episodes.append({"first": first, "actions": actions, "last": states[-1], "every_16th": states[15::16],
                     "score": sum(rewards), "terminated": bool(terminated), "truncated": bool(truncated)})
json.dump({"gymnasium": gymnasium.__version__, "episodes": episodes}, __import__("sys").stdout)
print()
# SPDX-License-Identifier: Apache-2.0
