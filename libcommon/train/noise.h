/*
 * The gradient noise scale B = tr(S) / |G|^2 (McCandlish et al. 2018, appendix A.1), from squared norms at
 * two batch sizes: those of n ranks' gradients, each over batch / n samples, and that of their mean.
 *   |G|^2 = (batch |G_batch|^2 - b |G_b|^2) / (batch - b)
 *   tr(S) = (|G_b|^2 - |G_batch|^2) / (1 / b - 1 / batch)
 * Each is an exponential moving average with decay 0.99; B is the quotient of the averages.
 */
#ifndef DT_TRAIN_NOISE_H
#define DT_TRAIN_NOISE_H

#include <stdbool.h>

struct noise {
	double signal, trace; /* averages of |G|^2 and tr(S) */
	bool any;
};

/*
 * Adds a step of `batch` samples over n >= 2 ranks. own: the sum over ranks of the squared norm of each
 * rank's contribution, where the contributions add up to the gradient; all: the squared norm of the gradient.
 */
void noise_add(struct noise *x, double batch, int n, double own, double all);
/* Whether the estimate is positive. */
bool noise_known(const struct noise *x);
/* The noise scale, in samples. */
double noise_scale(const struct noise *x);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
