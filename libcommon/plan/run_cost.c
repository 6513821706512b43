#include "plan/run_cost.h"

#include <math.h>

double dt_checkpoint_interval(double save, double mtbf)
{
	const double x = save / (2 * mtbf);
	double t = sqrt(2 * save * mtbf) * (1 + sqrt(x) / 3 + x / 9) - save;

	if (x >= 1) /* Daly's bound: then saving all the time is best */
		t = mtbf;
	return t < save ? save : t;
}

double dt_checkpoint_lost(double save, double mtbf, double restart, double every)
{
	return 1 - every / (mtbf * exp(restart / mtbf) * expm1((every + save) / mtbf));
}

struct dt_run_cost dt_run_cost_of(const struct dt_run_cost_query *q)
{
	struct dt_run_cost c = {.seconds = q->seconds};

	if (q->mtbf_s > 0) {
		c.every_s = q->every_s > 0 ? q->every_s : dt_checkpoint_interval(q->save_s, q->mtbf_s);
		c.lost = dt_checkpoint_lost(q->save_s, q->mtbf_s, q->restart_s, c.every_s);
		c.seconds = q->seconds / (1 - c.lost);
	}
	c.device_hours = c.seconds / 3600 * q->devices;
	c.money = c.device_hours * q->price;
	c.energy_kwh = c.device_hours * q->power_w / 1e3;
	return c;
}
/* SPDX-License-Identifier: Apache-2.0 */
