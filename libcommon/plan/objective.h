/*
 * Training objectives: the cross-entropy, or a loss of the log-probabilities of answers; each is a row of a
 * table.
 *
 * Pairs: c and r are the summed log-probabilities of the chosen and of the rejected answer's targets, nc and
 * nr in number; with a reference model, minus those under the reference.
 *   dpo    -log sigma(beta (c - r))                                            Rafailov et al. 2023, eq. 7
 *   ipo    (c / nc - r / nr - 1 / (2 beta))^2              Azar et al. 2023, eq. 17, of means over targets
 *   hinge  max(0, 1 - beta (c - r))                                               Zhao et al. 2023, SLiC
 *   simpo  -log sigma(beta (c / nc - r / nr) - gamma), without a reference     Meng et al. 2024, eq. 6
 *   orpo   -c / nc - beta log sigma(odds(c / nc) - odds(r / nr)), without a reference, with
 *          odds(x) = x - log(1 - exp x)                                     Hong et al. 2024, eq. 6 and 7
 * The mean over the pairs of a step is minimised.
 *
 * Single answers, good or bad: a is the summed log-probability of its targets, z the mean over the mismatched
 * answers (to other prompts) of its sample, at least 0 and without gradient; both minus the reference's.
 *   kto    w (1 - sigma(beta (a - z))) if good, w (1 - sigma(beta (z - a))) if bad, each with its own w
 *                                                                        Ethayarajh et al. 2024, eq. 8
 * The mean over the answers of a step is minimised.
 *
 * grpo and what follows learn from scored answers of the model itself (rl/policy.h).
 */
#ifndef DT_PLAN_OBJECTIVE_H
#define DT_PLAN_OBJECTIVE_H

#include <stdbool.h>
#include <stdint.h>

enum dt_objective_kind {
	DT_OBJECTIVE_NLL,
	DT_OBJECTIVE_DPO,
	DT_OBJECTIVE_IPO,
	DT_OBJECTIVE_HINGE,
	DT_OBJECTIVE_SIMPO,
	DT_OBJECTIVE_ORPO,
	DT_OBJECTIVE_KTO,
	DT_OBJECTIVE_GRPO,
	DT_OBJECTIVE_DRGRPO,
	DT_OBJECTIVE_DAPO,
	DT_OBJECTIVE_RLOO,
	DT_OBJECTIVE_REINFORCE,
	DT_OBJECTIVE_CISPO,
	DT_OBJECTIVE_GSPO,
	DT_OBJECTIVE_PPO,
	DT_OBJECTIVE_VTRACE,
	DT_OBJECTIVE_N,
};
#define DT_OBJECTIVES "nll|dpo|ipo|hinge|simpo|orpo|kto|grpo|drgrpo|dapo|rloo|reinforce|cispo|gspo|ppo|vtrace"

struct dt_pair {
	double chosen, rejected; /* c, r */
	int64_t nchosen, nrejected;
};
struct dt_pair_loss {
	double loss, dchosen,
		drejected; /* derivatives by c and r, that is by each target's log-probability */
};

struct dt_answer_loss {
	double loss, slope; /* by the log-probability of each of its targets */
};

struct dt_objective_rule {
	const char *name;
	bool reference;	    /* needs a reference model */
	double beta, gamma; /* defaults; gamma 0: it reads none */
	struct dt_pair_loss (*pair)(const struct dt_pair *p, double beta,
				    double gamma); /* NULL: not of pairs */
	bool rewards; /* learns from scored answers: rollouts, or those to a task */
	bool values;  /* likewise, and needs a value head */
	int group;    /* the least answers to a prompt: 2 where one is compared with the others */
	bool clips;   /* clips ratios, by --clip-low and --clip-high */
	bool caps;    /* caps ratios, by --ratio-cap */
	struct dt_answer_loss (*alone)(double a, bool good, double beta, double z,
				       double weight); /* NULL: not of one */
};
/* Whether it needs answers in the data set, in pairs or single. */
static inline bool dt_objective_compares(const struct dt_objective_rule *r)
{
	return r->pair || r->alone;
}
const struct dt_objective_rule *dt_objective_rule(int kind);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
