#include "train/noise.h"

#define KEEP 0.99

void noise_add(struct noise *x, double batch, int n, double own, double all)
{
	const double b = batch / n, small = own * n; /* mean over ranks of |n part|^2 */
	const double signal = (batch * all - b * small) / (batch - b),
		     trace = (small - all) / (1 / b - 1 / batch);

	x->signal = x->any ? KEEP * x->signal + (1 - KEEP) * signal : signal;
	x->trace = x->any ? KEEP * x->trace + (1 - KEEP) * trace : trace;
	x->any = true;
}

bool noise_known(const struct noise *x)
{
	return x->any && x->signal > 0 && x->trace > 0;
}

double noise_scale(const struct noise *x)
{
	return x->trace / x->signal;
}
/* SPDX-License-Identifier: Apache-2.0 */
