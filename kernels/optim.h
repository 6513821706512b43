/*
 * Optimizer steps over flat f32 parameters: p -= ..., state updated in place, copy (bf16, f16 or absent)
 * receives the rounded new p. g is f32, or bf16 or f16 when gradients are kept in 16 bits; it is multiplied
 * by grad_scale first (clipping, loss scale).
 *
 *   sgd       p -= lr (g + wd p)
 *   momentum  s1 = beta1 s1 + g + wd p;  p -= lr s1                       (PyTorch's SGD, dampening 0)
 *   nesterov  s1 as momentum;  p -= lr (g + wd p + beta1 s1)              (PyTorch's SGD with nesterov)
 *   rmsprop   s1 = beta2 s1 + (1 - beta2) g^2;  p -= lr g / (sqrt(s1) + eps)     with g += wd p
 *   adagrad   s1 += g^2;  p -= lr g / (sqrt(s1) + eps)                           with g += wd p
 *   adam      Kingma & Ba 2015, algorithm 1, with g += wd p
 *   adamw     Loshchilov & Hutter 2019, algorithm 2: p -= lr wd p apart from the moments
 *   nadam     Dozat 2016 as in PyTorch, with g += wd p: mu_t = beta1 (1 - 0.96^(0.004 t) / 2), M_t =
 *             mu_1 .. mu_t;  p -= lr ((1 - mu_t) / (1 - M_t) g + mu_t+1 / (1 - M_t+1) m) / (sqrt(vhat) + eps)
 *   lion      Chen et al. 2023: p -= lr (sign(beta1 s1 + (1 - beta1) g) + wd p);
 *             s1 = beta2 s1 + (1 - beta2) g
 *   lars      You et al. 2017: s1 = beta1 s1 + lr trust (g + wd p);  p -= s1
 *   lamb      You et al. 2019, a direction: g = mhat / (sqrt(vhat) + eps) + wd p; p is not changed
 *   muon      Jordan et al. 2024, the direction before orthogonalisation: s1 = 0.95 s1 + 0.05 g;  g =
 *             0.05 g + 0.95 s1; p and s2 are not changed
 *   adamw8bit adamw with s1 and s2 in 8-bit blocks (blocks8.h)
 *   adafactor does not use these ops but those of factor.h
 * adam, adamw, nadam and lamb: s1 = m, s2 = v; mhat = m / (1 - beta1^t), vhat = v / (1 - beta2^t); adam and
 * adamw: p -= lr mhat / (sqrt(vhat) + eps).
 *
 * On the CPU a state or parameter that would be subnormal becomes zero. Without gradients moments decay to
 * subnormals that rounding then keeps for ever, and Intel's processors take 15 times as long for those.
 *
 * DT_OPTIM_DIRECTION: the op writes the direction of the step into g, which is f32; the caller scales it by
 * norms of whole tensors and updates p with an sgd step. The caller also computes lars' trust ratio.
 *
 * optim_steps gives the bits of optim_step on every part of a list; lr, weight_decay and trust come from the
 * part instead of struct dt_optim. Parts do not overlap. A card runs tens of parts in one launch.
 */
#ifndef DT_KERNELS_OPTIM_H
#define DT_KERNELS_OPTIM_H

#include "kernels/device.h"

#include <math.h>
#include <stdbool.h>

enum dt_optim_kind {
#define DT_OPTIM_RULE(NAME, ...) DT_OPTIM_##NAME,
#include "kernels/optim.list"
#undef DT_OPTIM_RULE
	DT_OPTIM_N,
};

/* "sgd|momentum|...", in the order of the enum. */
static const char dt_optim_names[] =
#define DT_OPTIM_RULE(NAME, name, ...) "|" #name
#include "kernels/optim.list"
#undef DT_OPTIM_RULE
	;
#define DT_OPTIM_CHOICES (&dt_optim_names[1])

#define DT_OPTIM_BETA1 1u
#define DT_OPTIM_BETA2 2u
#define DT_OPTIM_EPS   4u
#define DT_OPTIM_TRUST 8u

#define DT_OPTIM_CORRECTED 1u  /* moments are divided by 1 - beta^t, so t counts from 1 */
#define DT_OPTIM_DECOUPLED 2u  /* decoupled weight decay: it does not enter the states */
#define DT_OPTIM_NORMS	   4u  /* a step needs norms of whole tensors, to which all ranks contribute */
#define DT_OPTIM_DIRECTION 8u  /* the op writes a direction, see above */
#define DT_OPTIM_FACTORED  16u /* the step is not taken by optim_step */
#define DT_OPTIM_WHOLE	   (DT_OPTIM_NORMS | DT_OPTIM_DIRECTION)
#define DT_MUON_BETA	   0.95f

/* Shape of a state for a parameter of rows x cols elements; a vector is one row. */
enum dt_state_shape {
	DT_STATE_NONE,
	DT_STATE_EACH,	 /* one value per element */
	DT_STATE_ROWS,	 /* one value per row */
	DT_STATE_COLS,	 /* one value per column */
	DT_STATE_REST,	 /* one value per element, but none for matrices between embedding and head */
	DT_STATE_BLOCKS, /* one value per element, and an f32 scale per DT_STATE_BLOCK of them */
};
#define DT_STATE_BLOCK 256

enum { DT_OPTIM_STATES = 2 }; /* maximum number of states */

struct dt_optim_state {
	const char *name; /* in checkpoints: NAME/PARAMETER */
	enum dt_state_shape shape;
	enum dt_dtype dtype;
};

struct dt_optim_rule {
	const char *name;
	unsigned reads; /* DT_OPTIM_BETA1 ...: the constants it uses; it ignores the others */
	unsigned flags;
	struct dt_optim_state state[DT_OPTIM_STATES];
};

/* The table row of an optimizer, read by options, memory plan, checkpoints and trainer. */
static inline const struct dt_optim_rule *dt_optim_rule(enum dt_optim_kind k)
{
	static const struct dt_optim_rule rule[DT_OPTIM_N] = {
#define DT_OPTIM_RULE(NAME, name, reads, flags, ...) {#name, reads, flags, {__VA_ARGS__}},
#include "kernels/optim.list"
#undef DT_OPTIM_RULE
	};

	return &rule[k];
}

static inline int64_t dt_optim_state_bytes(const struct dt_optim_state *s, int64_t rows, int64_t cols)
{
	const int64_t n = rows * cols, blocks = (n + DT_STATE_BLOCK - 1) / DT_STATE_BLOCK;

	switch (s->shape) {
	case DT_STATE_EACH:
		return n * dt_dtype_size(s->dtype);
	case DT_STATE_ROWS:
		return rows * dt_dtype_size(s->dtype);
	case DT_STATE_COLS:
		return cols * dt_dtype_size(s->dtype);
	case DT_STATE_BLOCKS:
		return n * dt_dtype_size(s->dtype) + blocks * 4;
	case DT_STATE_REST: /* of a matrix between embedding and head */
	case DT_STATE_NONE:
		break;
	}
	return 0;
}

/* Bytes of all states. */
static inline int64_t dt_optim_bytes(enum dt_optim_kind k, int64_t rows, int64_t cols)
{
	int64_t sum = 0;

	for (int i = 0; i < DT_OPTIM_STATES; i++)
		sum += dt_optim_state_bytes(&dt_optim_rule(k)->state[i], rows, cols);
	return sum;
}

/* Bytes of all states per element of a large matrix. */
static inline double dt_optim_element_bytes(enum dt_optim_kind k)
{
	return (double)dt_optim_bytes(k, 1024, 1024) / (1024 * 1024);
}

static inline int dt_optim_states(enum dt_optim_kind k)
{
	int n = 0;

	while (n < DT_OPTIM_STATES && dt_optim_rule(k)->state[n].shape != DT_STATE_NONE)
		n++;
	return n;
}

struct dt_optim {
	enum dt_optim_kind kind;
	float lr, beta1, beta2, eps, weight_decay, grad_scale;
	int64_t t;   /* 1 on the first step */
	float trust; /* lars: trust ratio of this tensor */
};

struct dt_optim_part {
	struct dt_tensor copy, p, g, s1, s2;
	float lr, weight_decay, trust;
};

struct dt_optim_parts {
	int n;
	const struct dt_optim_part *part;
};

/* Factors that depend on t. */
struct dt_optim_factors {
	float m_unbias, v_unbias; /* 1 / (1 - beta^t) */
	float of_g, of_m;	  /* nadam: factors of g and of m */
};

static inline struct dt_optim_factors dt_optim_factors(const struct dt_optim *o)
{
	struct dt_optim_factors f = {0, 0, 0, 0};
	double mu = 0, next, product = 1;

	if (!(dt_optim_rule(o->kind)->flags & DT_OPTIM_CORRECTED))
		return f;
	f.m_unbias = (float)(1. / (1. - pow((double)o->beta1, (double)o->t)));
	f.v_unbias = (float)(1. / (1. - pow((double)o->beta2, (double)o->t)));
	if (o->kind != DT_OPTIM_NADAM)
		return f;
	for (int64_t k = 1; k <= o->t && product > 1e-20; k++)
		product *= (double)o->beta1 * (1. - 0.5 * pow(0.96, 0.004 * (double)k));
	mu = (double)o->beta1 * (1. - 0.5 * pow(0.96, 0.004 * (double)o->t));
	next = (double)o->beta1 * (1. - 0.5 * pow(0.96, 0.004 * (double)(o->t + 1)));
	f.of_g = (float)((1. - mu) / (1. - product));
	f.of_m = (float)(next / (1. - product * next));
	return f;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
