#!/usr/bin/env python3
"""Preference losses as TRL's trainers compute them, from given log-probabilities of tokens.

    golden_preferences.py [--check]

Writes golden-preferences.json beside this script. For each objective: beta, gamma (kto: the weights of
desirable and undesirable answers). For each pair or answer: its log-probability, the reference's, its number
of targets, its loss, and the gradient of the loss with respect to the log-probability of each target. kto
also has the mean over the mismatched answers. dpo, ipo and hinge use DPOTrainer._compute_loss, kto uses
KTOTrainer._compute_loss, with a model that returns the given numbers; orpo and simpo use
ORPOTrainer.odds_ratio_loss and CPOTrainer.cpo_loss, and for orpo the mean negative log-probability of the
chosen answer is added, as in its trainer. One pair per call, because the trainers return means.
--check compares: exit status 3 on a difference, 77 without torch and trl.
"""
import collections
import json
import os
import sys
import types

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
try:
    import torch
    from trl.experimental.cpo.cpo_trainer import CPOTrainer
    from trl.experimental.orpo.orpo_trainer import ORPOTrainer
    from trl.trainer.dpo_trainer import DPOTrainer
    from trl.trainer.kto_trainer import KTOTrainer
except ImportError:
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT = 3
LENGTHS = [(2, 9), (13, 3), (1, 24), (5, 5), (8, 2)]
SPREAD = [0.2, 1.0, 3.0, 0.01, 2.0]  # log-probabilities of tokens lie between 0 and minus this


class Model:
    """A model that returns given log-probabilities of tokens [rows, seq], 0 where there is no target."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, **_):
        p = self.answers.pop(0)
        zero = torch.zeros_like(p)
        return types.SimpleNamespace(log_probs=p, entropy=zero, mean_logits=zero, is_top1=zero.bool())


def trainer(**more):
    same = types.SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x)
    return types.SimpleNamespace(
        model=types.SimpleNamespace(training=True), accelerator=same, aux_loss_enabled=False, ld_alpha=None,
        precompute_ref_logps=True, f_divergence_type="reverse_kl", loss_weights=[1.0], use_weighting=False,
        label_smoothing=0, _total_train_tokens=0, _tp_size=1, alpha=0.0,
        _metrics=collections.defaultdict(lambda: collections.defaultdict(list)), **more)


def tokens(n, spread, rng):
    return -spread * torch.rand(n, generator=rng, dtype=torch.float64)


def batch(answers):
    """Returns log-probabilities [rows, seq] that require gradients, and ids and masks of answers after a
    prompt."""
    seq = PROMPT + max(len(a) for a in answers)
    p = torch.zeros(len(answers), seq - 1, dtype=torch.float64)
    mask = torch.zeros(len(answers), seq, dtype=torch.int64)
    for i, a in enumerate(answers):
        p[i, PROMPT - 1 : PROMPT - 1 + len(a)] = a
        mask[i, PROMPT : PROMPT + len(a)] = 1
    return p.requires_grad_(), {"input_ids": torch.ones_like(mask), "attention_mask": torch.ones_like(mask),
                                "completion_mask": mask}


def pair(kind, beta, gamma, chosen, rejected, reference):
    p, inputs = batch([chosen, rejected])
    own = trainer(beta=beta, loss_types=["sigmoid" if kind == "dpo" else kind], simpo_gamma=gamma, loss_type=kind)
    if kind in ("dpo", "ipo", "hinge"):
        inputs.update(ref_chosen_logps=reference[:1], ref_rejected_logps=reference[1:])
        loss = DPOTrainer._compute_loss(own, Model(p), inputs, False)
    else:
        mean = p.sum(1) / torch.tensor([len(chosen), len(rejected)])
        if kind == "simpo":
            loss = CPOTrainer.cpo_loss(own, mean[:1], mean[1:])[0].mean()
        else:
            loss = -mean[0] - ORPOTrainer.odds_ratio_loss(own, mean[:1], mean[1:])[0].mean()
    loss.backward()
    return {"chosen": chosen.sum().item(), "rejected": rejected.sum().item(), "reference": reference.tolist(),
            "nchosen": len(chosen), "nrejected": len(rejected), "loss": loss.item(),
            "dchosen": p.grad[0, PROMPT - 1].item(), "drejected": p.grad[1, PROMPT - 1].item()}


def pairs(kind, beta, gamma, rng):
    made = []
    for (n, m), spread in zip(LENGTHS, SPREAD):
        chosen, rejected = tokens(n, spread, rng), tokens(m, spread, rng)
        reference = torch.stack([tokens(n, spread, rng).sum(), tokens(m, spread, rng).sum()])
        made.append(pair(kind, beta, gamma, chosen, rejected, reference))
    return {"beta": beta, "gamma": gamma, "pairs": made}


def alone(beta, good, bad, shift, rng):
    """Returns one sample's answers, and as many mismatched ones with log-probabilities shifted against the
    reference's."""
    answers = [tokens(n, s, rng) for (n, _), s in zip(LENGTHS, SPREAD)]
    others = [tokens(n, s, rng) for (_, n), s in zip(LENGTHS, SPREAD)]
    reference = torch.stack([tokens(len(a), s, rng).sum() for a, s in zip(answers, SPREAD)])
    label = torch.tensor([True, False, True, True, False])
    p, inputs = batch(answers)
    kl, kl_inputs = batch(others)
    inputs.update({"KL_" + k: v for k, v in kl_inputs.items()}, label=label, ref_logps=reference,
                  ref_KL_logps=kl.detach().sum(1) - shift)
    own = trainer(beta=beta, calculate_KL=True, loss_type="kto", desirable_weight=good, undesirable_weight=bad)
    own._compute_kl_logps = types.MethodType(KTOTrainer._compute_kl_logps, own)
    loss = KTOTrainer._compute_loss(own, Model(kl, p), inputs, False)
    loss.backward()
    return {"beta": beta, "good": good, "bad": bad, "kl": own._metrics["train"]["kl"][0], "loss": loss.item(),
            "mismatched": (kl.detach().sum(1) - inputs["ref_KL_logps"]).tolist(),
            "answers": [{"good": bool(label[i]), "logprob": answers[i].sum().item(), "reference": reference[i].item(),
                         "slope": p.grad[i, PROMPT - 1].item()} for i in range(len(answers))]}


def make():
    rng = torch.Generator().manual_seed(7)
    made = {"trl": __import__("trl").__version__}
    for kind in ("dpo", "ipo", "hinge", "simpo", "orpo"):
        made[kind] = [pairs(kind, beta, gamma, rng) for beta, gamma in ((0.1, 0.5), (2.0, 1.4))]
    made["kto"] = [alone(0.1, 1.0, 1.0, 0.0, rng), alone(0.5, 1.0, 1.33, 2.5, rng), alone(0.3, 2.0, 1.0, -4.0, rng)]
    return made


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(k == "trl" or same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return abs(a - b) <= 1e-6 * (1 + abs(b))


def main():
    path = os.path.join(HERE, "golden-preferences.json")
    made = make()
    if "--check" in sys.argv[1:]:
        with open(path, encoding="ascii") as f:
            sys.exit(0 if same(json.load(f), made) else 3)
    with open(path, "w", encoding="ascii") as f:
        json.dump(made, f, indent=1)
        f.write("\n")


main()
# SPDX-License-Identifier: Apache-2.0
