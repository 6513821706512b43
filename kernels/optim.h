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

#include <stdint.h>

enum dt_optim_kind {
	DT_OPTIM_SGD,
	DT_OPTIM_MOMENTUM,
	DT_OPTIM_RMSPROP,
	DT_OPTIM_ADAGRAD,
	DT_OPTIM_ADAM,
	DT_OPTIM_ADAMW,
	DT_OPTIM_N,
};
#define DT_OPTIM_CHOICES "sgd|momentum|rmsprop|adagrad|adam|adamw"

/* f32 states a parameter: the one place that knows. */
static inline int dt_optim_states(enum dt_optim_kind k)
{
	static const int n[DT_OPTIM_N] = {0, 1, 1, 1, 2, 2};

	return n[k];
}

struct dt_optim {
	enum dt_optim_kind kind;
	float lr, beta1, beta2, eps, weight_decay, grad_scale;
	int64_t t; /* 1 on the first step */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
