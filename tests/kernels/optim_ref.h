/* The formulas of kernels/optim.h in f64, for the tests of steps and of lists of them. */
#ifndef DT_TESTS_KERNELS_OPTIM_REF_H
#define DT_TESTS_KERNELS_OPTIM_REF_H

#include "kernels/optim.h"

/* Nadam's factors of the gradient and of the moment, products of t terms. */
static inline void nadam(const struct dt_optim *o, double *ret_g, double *ret_m)
{
	double product = 1, mu = 0, next;

	for (int64_t k = 1; k <= o->t; k++) {
		mu = o->beta1 * (1 - 0.5 * pow(0.96, 0.004 * (double)k));
		product *= mu;
	}
	next = o->beta1 * (1 - 0.5 * pow(0.96, 0.004 * (double)(o->t + 1)));
	*ret_g = (1 - mu) / (1 - product);
	*ret_m = next / (1 - product * next);
}

/* Rules with decay apart from the gradient. *g receives the direction of those that give one. */
static inline void ref_apart(const struct dt_optim *o, double *p, double *g, double *s1, double *s2)
{
	const double wd = o->weight_decay, b1 = o->beta1, b2 = o->beta2, d = *g * o->grad_scale;
	const double was = *p, u = b1 * *s1 + (1 - b1) * d;
	double to;

	if (o->kind == DT_OPTIM_MUON) {
		*s1 = 0.95 * *s1 + 0.05 * d;
		*g = 0.05 * d + 0.95 * *s1;
		return;
	}

	if (o->kind == DT_OPTIM_LION) {
		*p -= o->lr * (copysign(u != 0, u) + wd * was);
		*s1 = b2 * *s1 + (1 - b2) * d;
		return;
	}
	*s1 = u;
	*s2 = b2 * *s2 + (1 - b2) * d * d;
	to = (*s1 / (1 - pow(b1, (double)o->t))) / (sqrt(*s2 / (1 - pow(b2, (double)o->t))) + o->eps) +
	     wd * was;
	if (o->kind == DT_OPTIM_LAMB)
		*g = to;
	else
		*p -= o->lr * to;
}

static inline void ref_step(const struct dt_optim *o, double *p, double *ret_g, double *s1, double *s2)
{
	const double b1 = o->beta1, b2 = o->beta2, g = *ret_g * o->grad_scale + o->weight_decay * *p;
	double of_g, of_m;

	switch (o->kind) {
	case DT_OPTIM_SGD:
		*p -= o->lr * g;
		break;
	case DT_OPTIM_MOMENTUM:
		*s1 = b1 * *s1 + g;
		*p -= o->lr * *s1;
		break;
	case DT_OPTIM_NESTEROV:
		*s1 = b1 * *s1 + g;
		*p -= o->lr * (g + b1 * *s1);
		break;
	case DT_OPTIM_LARS:
		*s1 = b1 * *s1 + o->lr * o->trust * g;
		*p -= *s1;
		break;
	case DT_OPTIM_RMSPROP:
		*s1 = b2 * *s1 + (1 - b2) * g * g;
		*p -= o->lr * g / (sqrt(*s1) + o->eps);
		break;
	case DT_OPTIM_ADAGRAD:
		*s1 += g * g;
		*p -= o->lr * g / (sqrt(*s1) + o->eps);
		break;
	case DT_OPTIM_ADAM:
		*s1 = b1 * *s1 + (1 - b1) * g;
		*s2 = b2 * *s2 + (1 - b2) * g * g;
		*p -= o->lr * (*s1 / (1 - pow(b1, (double)o->t))) /
		      (sqrt(*s2 / (1 - pow(b2, (double)o->t))) + o->eps);
		break;
	case DT_OPTIM_NADAM:
		nadam(o, &of_g, &of_m);
		*s1 = b1 * *s1 + (1 - b1) * g;
		*s2 = b2 * *s2 + (1 - b2) * g * g;
		*p -= o->lr * (of_g * g + of_m * *s1) / (sqrt(*s2 / (1 - pow(b2, (double)o->t))) + o->eps);
		break;
	default:
		ref_apart(o, p, ret_g, s1, s2);
	}
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
