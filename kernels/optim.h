/*
 * Optimizer steps over flat f32 parameters: p -= ..., state updated in place, copy (bf16, f16 or absent)
 * receives the rounded new p. g is f32, or bf16 or f16 when gradients are kept in 16 bits; it is multiplied
 * by grad_scale first (clipping, loss scale).
 *
 *   sgd       p -= lr (g + wd p)
 *   momentum  s1 = beta1 s1 + g + wd p;  p -= lr s1                       (PyTorch's SGD, dampening 0)
 *   rmsprop   s1 = beta2 s1 + (1 - beta2) g^2;  p -= lr g / (sqrt(s1) + eps)     with g += wd p
 *   adagrad   s1 += g^2;  p -= lr g / (sqrt(s1) + eps)                           with g += wd p
 *   adam      Kingma & Ba 2015, algorithm 1, with g += wd p
 *   adamw     Loshchilov & Hutter 2019, algorithm 2: p -= lr wd p apart from the moments
 * adam and adamw: s1 = m, s2 = v; mhat = m / (1 - beta1^t), vhat = v / (1 - beta2^t); p -= lr mhat /
 * (sqrt(vhat) + eps).
 */
#ifndef DT_KERNELS_OPTIM_H
#define DT_KERNELS_OPTIM_H

#include "kernels/dtype.h"

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

#define DT_OPTIM_CORRECTED 1u /* moments are divided by 1 - beta^t, so t counts from 1 */
#define DT_OPTIM_DECOUPLED 2u /* weight decay shrinks parameters apart from what the states see */

/* What a state holds of a parameter of rows x cols elements; a vector is one row. */
enum dt_state_shape {
	DT_STATE_NONE,
	DT_STATE_EACH,	 /* a value an element */
	DT_STATE_ROWS,	 /* a value a row */
	DT_STATE_COLS,	 /* a value a column */
	DT_STATE_BLOCKS, /* a value an element, and an f32 scale for each DT_STATE_BLOCK of them */
};
#define DT_STATE_BLOCK 256

enum { DT_OPTIM_STATES = 2 }; /* at most */

struct dt_optim_state {
	const char *name; /* in checkpoints: NAME/PARAMETER */
	enum dt_state_shape shape;
	enum dt_dtype dtype;
};

struct dt_optim_rule {
	const char *name;
	unsigned reads; /* DT_OPTIM_BETA1 ...: constants; others mean nothing to it */
	unsigned flags;
	struct dt_optim_state state[DT_OPTIM_STATES];
};

/* The row of an optimizer: what options, the memory plan, checkpoints and the trainer know of it. */
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
	case DT_STATE_NONE:
		break;
	}
	return 0;
}

/* Of all its states. */
static inline int64_t dt_optim_bytes(enum dt_optim_kind k, int64_t rows, int64_t cols)
{
	int64_t sum = 0;

	for (int i = 0; i < DT_OPTIM_STATES; i++)
		sum += dt_optim_state_bytes(&dt_optim_rule(k)->state[i], rows, cols);
	return sum;
}

/* The same an element of a large matrix. */
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
	int64_t t; /* 1 on the first step */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
