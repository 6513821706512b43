#include "rl/returns.h"

#include <math.h>
#include <stddef.h>

void dt_gae(const struct dt_returns *p, int n, const double *reward, const float *value, double *adv,
	    double *ret)
{
	double next = 0, ahead = 0; /* V_{t+1}, adv_{t+1} */

	for (int t = n - 1; t >= 0; t--) {
		const double v = (double)value[t];

		ahead = reward[t] + p->discount * next - v + p->discount * p->lambda * ahead;
		next = v;
		if (adv)
			adv[t] = ahead;
		if (ret)
			ret[t] = ahead + v;
	}
}

void dt_vtrace(const struct dt_returns *p, int n, const double *reward, const float *value,
	       const double *ratio, double *adv, double *ret)
{
	double next = 0, trace = 0; /* V_{t+1}, ret_{t+1} */

	for (int t = n - 1; t >= 0; t--) {
		const double v = (double)value[t], rho = fmin(p->rho, ratio[t]),
			     c = p->lambda * fmin(p->c, ratio[t]);

		if (adv)
			adv[t] = reward[t] + p->discount * trace - v;
		trace = v + rho * (reward[t] + p->discount * next - v) + p->discount * c * (trace - next);
		next = v;
		if (ret)
			ret[t] = trace;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
