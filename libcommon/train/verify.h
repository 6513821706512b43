/*
 * Checks that several layouts train the same model. The same run is started on each layout, as a user starts
 * it, from the same seed and over the same samples. Then losses, gradient norms, the last step's gradients
 * and the parameters are compared with those of the first layout.
 *
 * A tensor's difference is |a - b| / max(|a|, floor) in the 2-norm. The floor is the norm of a tensor of that
 * size whose elements have the root mean square of all parameters, or a thousandth of that of all gradients.
 * It is for tensors that are zero up to rounding: a key's bias has no effect under softmax, and Adam moves it
 * by the sign of rounding errors.
 */
#ifndef DT_TRAIN_VERIFY_H
#define DT_TRAIN_VERIFY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct dt_verify_report {   /* of one layout against the first */
	double loss, norm;  /* largest relative difference over the steps: losses, gradient norms */
	double grad, model; /* largest of a tensor: gradients, parameters */
	char grad_name[80], model_name[80];
	char first[80]; /* first tensor beyond the bound, in the order of the model; empty: none */
};

struct dt_verify_opts {
	const char *layouts; /* "dp1,tp2,dp2.pp2" */
	char *const *args;   /* of every run, NULL-terminated, without --layout */
	int64_t batch;	     /* --global-batch of every run; 0: as args have it */
	double loss_bound;   /* relative, of losses */
	double tensor_bound; /* relative, of gradient norms and tensors */
	/* Called for each layout but the first, as soon as it is compared. */
	void (*each)(void *arg, const char *layout, const struct dt_verify_report *r, bool agrees);
	void *arg;
};

/* 0: all agree; 1: some differ; negative: a run failed. */
int dt_train_verify(const struct dt_verify_opts *o, struct dt_err *err);

/* ---- verify_print.c ---- */

/*
 * The arguments of each run: argv[1..] without the options of verify and without `operand`, which must be one
 * of the pointers in argv. The array is malloc'd, its strings are argv's; NULL: out of memory.
 */
char **dt_verify_arguments(int argc, char **argv, const char *operand);
/* A report as a line or two of text, or as a JSON line; f is flushed. bound: the tensors'. */
void dt_verify_print(FILE *f, const char *layout, const struct dt_verify_report *r, bool agrees, double bound,
		     bool json);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
