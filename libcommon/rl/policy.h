/*
 * Objectives of policy gradients: a row each. An answer i of n_i tokens with reward
 * R_i in a group of G, of N answers and T tokens in the step; r_t = exp(log pi - log mu), log mu what the
 * sampler said of the token, the log-ratio within +-20.
 *
 *   advantage   MEAN    R_i - mean of the group;  with std: / (its deviation + 1e-6)
 *               OTHERS  R_i - mean of the others = G / (G - 1) (R_i - mean)                         (RLOO)
 *               BATCH   MEAN, divided by the deviation of the whole step's          (REINFORCE++-baseline)
 *               GAE     of each token, by values (rl/returns.h); with std: less their mean over the step,
 *                       / their deviation                                                             (PPO)
 *               VTRACE  of each token, by values and ratios at the weights that learn              (IMPALA)
 *   over        ANSWER    w_t = 1 / (N n_i)         mean over tokens, then over answers
 *               CONSTANT  w_t = 1 / (N most)        most: tokens that an answer may have         (Dr. GRPO)
 *               TOKENS    w_t = 1 / T                                                                 (DAPO)
 *               SUM       w_t = 1 / N               log-probability of the whole answer
 *   ratio       CLIP      l_t = -min(r_t A, clip(r_t, 1 - low, 1 + high) A)
 *               WHOLE     the same with s_i = exp(mean_t log r_t) in place of r_t                     (GSPO)
 *               CAP       l_t = -sg(min(r_t, cap)) A log pi_t: no token loses its gradient; cap 0: r_t = 1
 *
 * The loss is the sum of w_t l_t. Shao et al. 2024 (GRPO), Liu et al. 2025 (Dr. GRPO), Yu et al. 2025
 * (DAPO), Ahmadian et al. 2024 (RLOO), Hu 2025 (REINFORCE++), MiniMax 2025 (CISPO), Zheng et al. 2025 (GSPO).
 *
 * The ratios correct for answers of older weights too: mu is the sampler's own probability, however old.
 */
#ifndef DT_RL_POLICY_H
#define DT_RL_POLICY_H

#include "rl/rollout.h"

enum dt_kl { DT_KL_K1, DT_KL_K2, DT_KL_K3 }; /* as --kl names them */
enum dt_policy_base { DT_BASE_MEAN, DT_BASE_OTHERS, DT_BASE_BATCH, DT_BASE_GAE, DT_BASE_VTRACE };
enum dt_policy_over { DT_PER_ANSWER, DT_PER_CONSTANT, DT_PER_TOKENS, DT_PER_SUM };
enum dt_policy_ratio { DT_RATIO_CLIP, DT_RATIO_WHOLE, DT_RATIO_CAP };

struct dt_policy {
	const char *name; /* a word of DT_OBJECTIVES */
	enum dt_policy_base base;
	bool std;
	enum dt_policy_over over;
	enum dt_policy_ratio ratio;
	double low, high; /* of CLIP and WHOLE */
	double cap;	  /* of CAP */
	bool drops_flat;  /* groups whose rewards are all equal are left out of N and T (DAPO) */
	/* of the run, not of the row: the divergence from the reference */
	enum dt_kl kl;
	double beta;	/* 0: none */
	bool in_reward; /* else in the loss */
};

/*
 * The estimate of an estimator from one token, q = ref / pi, log q within +-20, and k3 at most 10; its
 * derivative by log pi, 0 where that bound is reached. Schulman 2020.
 *   k1  -log q              as a term of the reward
 *   k2  log^2 q / 2         as a term of the loss: its gradient alone is that of KL(pi || ref)
 *   k3  q - 1 - log q       never below 0; its gradient is that of KL(ref || pi)
 */
double dt_kl(enum dt_kl kind, double logp, double ref, double *slope);
/*
 * The KL penalty of an answer's reward: beta times the sum of estimates over its n tokens, under the sampler.
 */
double dt_policy_penalty(const struct dt_policy *p, int n, const float *mu, const float *ref);

/* The row of a word; NULL: there is none. */
const struct dt_policy *dt_policy_find(const char *name);

/*
 * An answer's advantage, and the weight w_t of its tokens. Both 0: it has no reward, and is not learnt from.
 */
struct dt_lesson {
	double advantage, weight;
	const double *token; /* [n] advantage of each token instead; NULL */
};

/*
 * Lessons of all answers of n groups, in their order. most: tokens that an answer may have; penalty
 * [answers]: taken from each reward; NULL: nothing.
 */
void dt_policy_lessons(const struct dt_policy *p, const struct dt_group *g, int64_t n, int64_t most,
		       const double *penalty, struct dt_lesson *ret);

/* Whether advantages are of tokens, by values. */
static inline bool dt_policy_has_values(const struct dt_policy *p)
{
	return p->base == DT_BASE_GAE || p->base == DT_BASE_VTRACE;
}
/* Normalises the advantages of n tokens: subtracts their mean, divides by their standard deviation. */
void dt_policy_whiten(double *advantage, int64_t n);

/* Statistics over the targets of a step. */
struct dt_ratio_stats {
	double tokens, ratio, clipped, nll; /* sums */
	double kl;			    /* likewise, k3 of policy over sampler: KL(sampler || policy) */
	double reference;		    /* sum of the estimates of the divergence from the reference */
	double value;			    /* sum of squared errors of values */
	double low, high;		    /* smallest and largest ratio */
};
#define DT_RATIO_STATS ((struct dt_ratio_stats){.low = INFINITY, .high = -INFINITY})

/*
 * The loss of an answer of n tokens and -dloss/dlogp of each. mu: of the sampler; ref: of the reference,
 * NULL: none. s: adds to it. With a reference in the loss, l_t has beta times its estimate.
 */
double dt_policy_loss(const struct dt_policy *p, const struct dt_lesson *l, int n, const float *logp,
		      const float *mu, const float *ref, float *weight, struct dt_ratio_stats *s);

/*
 * The loss of an answer's values: coef (value_t - ret_t)^2 / 2 with the weight of a token; slope: its
 * derivatives. *ret_square adds up the squares.
 */
double dt_policy_value_loss(const struct dt_lesson *l, double coef, int n, const float *value,
			    const double *ret, float *slope, double *ret_square);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
