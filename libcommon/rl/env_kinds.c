/* The built-in environments. */
#include "rl/env_priv.h"

#include <math.h>
#include <stddef.h>

/* ---- cartpole: position, velocity, angle, angular velocity ---- */

static void pole_reset(double *s, int size, const struct dt_rng *r, uint64_t at)
{
	(void)size;
	for (int i = 0; i < 4; i++)
		s[i] = dt_rng_uniform53(r, at + (uint64_t)i) * 0.1 - 0.05;
}

static bool pole_step(double *s, int size, const int32_t *action, double *reward)
{
	const double gravity = 9.8, cart = 1.0, pole = 0.1, total = cart + pole, half = 0.5, tau = 0.02,
		     force = action[0] ? 10 : -10, c = cos(s[2]), sn = sin(s[2]),
		     push = (force + pole * half * (s[3] * s[3]) * sn) / total,
		     turn = (gravity * sn - c * push) / (half * (4.0 / 3.0 - pole * (c * c) / total)),
		     slide = push - pole * half * turn * c / total;

	(void)size;
	s[0] += tau * s[1];
	s[1] += tau * slide;
	s[2] += tau * s[3];
	s[3] += tau * turn;
	*reward = 1;
	return fabs(s[0]) > 2.4 || fabs(s[2]) > 12 * 2 * M_PI / 360;
}

static void pole_observe(const double *s, int size, float *ret)
{
	(void)size;
	for (int i = 0; i < 4; i++)
		ret[i] = (float)s[i];
}

/* ---- grid: column and row of the agent, and of the goal ---- */

static void grid_reset(double *s, int size, const struct dt_rng *r, uint64_t at)
{
	const uint64_t cells = (uint64_t)size * (uint64_t)size, agent = dt_rng_below(r, at, cells),
		       /* any cell except the agent's */
		goal = (agent + 1 + dt_rng_below(r, at + 1, cells - 1)) % cells;

	s[0] = (double)(agent % (uint64_t)size);
	s[1] = (double)(agent / (uint64_t)size);
	s[2] = (double)(goal % (uint64_t)size);
	s[3] = (double)(goal / (uint64_t)size);
}

static bool grid_step(double *s, int size, const int32_t *action, double *reward)
{
	static const int dx[4] = {1, -1, 0, 0}, dy[4] = {0, 0, 1, -1};
	bool there;

	s[0] = fmin(fmax(s[0] + dx[action[0]], 0), size - 1);
	s[1] = fmin(fmax(s[1] + dy[action[0]], 0), size - 1);
	there = !(fabs(s[0] - s[2]) + fabs(s[1] - s[3]) > 0);
	*reward = there ? 1 : -0.01;
	return there;
}

static void grid_observe(const double *s, int size, float *ret)
{
	for (int i = 0; i < 4; i++)
		ret[i] = (float)(s[i] / (size - 1));
}

/* ---- twostep: the state is 0, then 1 or 2. An agent observes the state and its own number ---- */

static void two_reset(double *s, int size, const struct dt_rng *r, uint64_t at)
{
	(void)size;
	(void)r;
	(void)at;
	s[0] = 0;
}

static bool two_step(double *s, int size, const int32_t *action, double *reward)
{
	static const double second[2][2] = {{0, 1}, {1, 8}};

	(void)size;
	*reward = 0;
	if (s[0] < 1) {
		s[0] = action[0] ? 2 : 1;
		return false;
	}
	*reward = s[0] < 2 ? 7 : second[action[0]][action[1]];
	return true;
}

static void two_observe(const double *s, int size, float *ret)
{
	(void)size;
	for (int a = 0; a < 2; a++)
		for (int i = 0; i < 5; i++)
			ret[a * 5 + i] = i < 3 ? i == (int)s[0] : i - 3 == a;
}

static const struct env_kind kinds[] = {
	{"cartpole", 1, 4, 2, 500, 0, pole_reset, pole_step, pole_observe},
	{"grid", 1, 4, 4, 0, 1000, grid_reset, grid_step, grid_observe},
	{"twostep", 2, 5, 2, 2, 0, two_reset, two_step, two_observe},
};

const struct env_kind *env_kind_at(int i)
{
	return i >= 0 && i < (int)(sizeof(kinds) / sizeof(kinds[0])) ? &kinds[i] : NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
