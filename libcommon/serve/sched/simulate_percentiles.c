/* Percentiles of the latencies of simulated answers. */
#include "serve/sched/simulate.h"

#include "base/order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

double dt_sim_rank(const double *v, int n, double p)
{
	int i = (int)ceil(p * n) - 1;

	return n == 0 ? 0 : v[i < 0 ? 0 : i];
}

int dt_sim_percentiles(const struct dt_sim_ask *ask, const struct dt_sim_answer *answer, int n,
		       struct dt_sim_report *ret, struct dt_err *err)
{
	double *ttft = malloc(2 * (size_t)n * sizeof(*ttft) + 1), *tpot = ttft + n;
	int nt = 0, np = 0;

	if (!ttft)
		return dt_err_sys(err, -ENOMEM, "cannot simulate");
	for (int i = 0; i < n; i++) {
		const struct dt_sim_answer *a = &answer[i];

		if (a->first_s < 0)
			continue;
		ttft[nt++] = a->first_s - ask[i].at_s;
		if (ask[i].output > 1)
			tpot[np++] = (a->end_s - a->first_s) / (ask[i].output - 1);
	}
	qsort(ttft, (size_t)nt, sizeof(*ttft), dt_order_f64);
	qsort(tpot, (size_t)np, sizeof(*tpot), dt_order_f64);
	ret->ttft_p50 = dt_sim_rank(ttft, nt, 0.5);
	ret->ttft_p99 = dt_sim_rank(ttft, nt, 0.99);
	ret->tpot_p50 = dt_sim_rank(tpot, np, 0.5);
	ret->tpot_p99 = dt_sim_rank(tpot, np, 0.99);
	free(ttft);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
