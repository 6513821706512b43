#include "rl/mixer.h"

#include <math.h>
#include <stddef.h>

int dt_mix_outputs(int agents, int width)
{
	return (agents + 2) * width + 1;
}

double dt_mix(int agents, int width, const float *h, const double *q, double *dq, double *dh)
{
	const float *b1 = h + agents * width, *w2 = b1 + width;
	double sum = (double)w2[width];

	for (int a = 0; a < agents; a++)
		dq[a] = 0;
	for (int e = 0; e < width; e++) {
		const double out = fabs((double)w2[e]);
		double x = (double)b1[e], y, dx;

		for (int a = 0; a < agents; a++)
			x += fabs((double)h[a * width + e]) * q[a];
		y = x > 0 ? x : expm1(x);
		dx = out * (x > 0 ? 1 : exp(x));
		sum += out * y;
		for (int a = 0; a < agents; a++) {
			const double w = (double)h[a * width + e];

			dq[a] += dx * fabs(w);
			if (dh)
				dh[a * width + e] = dx * (w < 0 ? -q[a] : q[a]);
		}
		if (dh) {
			dh[agents * width + e] = dx;
			dh[(agents + 1) * width + e] = w2[e] < 0 ? -y : y;
		}
	}
	if (dh)
		dh[(agents + 2) * width] = 1;
	return sum;
}
/* SPDX-License-Identifier: Apache-2.0 */
