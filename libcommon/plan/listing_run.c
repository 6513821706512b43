/* Lists the program and the pipeline of a run given on the command line. */
#include "plan/listing.h"

#include <errno.h>
#include <stdlib.h>

int dt_listing_run(struct dt_run *r, struct dt_config *config, int rank, FILE *f, json_t **ret_json,
		   struct dt_err *err)
{
	struct dt_schedule file = {0};
	struct dt_memory_plan plan = {0};
	struct dt_coords at;
	int rc = dt_run_adapt(r, config, err);

	if (rc < 0)
		return rc;
	r->config = config;
	if (!r->layout.dp)
		r->layout = (struct dt_layout){.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	if (rank >= dt_layout_world(&r->layout))
		return dt_err_set(err, -EINVAL, "--rank %d is not one of the layout's %d ranks", rank,
				  dt_layout_world(&r->layout));
	at = dt_layout_coords(&r->layout, rank);
	if ((rc = dt_run_settle(r, err)) == 0 && (rc = dt_run_read_schedule(r, &file, err)) == 0)
		rc = dt_memory_plan(r, at, &plan, err);
	if (rc == 0 && !ret_json)
		dt_listing_print(&plan, r, at, f);
	else if (rc == 0 && !(*ret_json = dt_listing_json(&plan, r, at)))
		rc = dt_err_sys(err, -ENOMEM, "cannot print");
	dt_memory_plan_release(&plan);
	dt_schedule_release(&file);
	return rc;
}

int dt_listing_schedule(const struct dt_run *run, const char *layout, FILE *f, double *ret_bubble,
			struct dt_err *err)
{
	struct dt_run r = *run;
	struct dt_schedule s;
	struct dt_pipe_cost *cost;
	int chunks = dt_layout_chunks(&r.layout), pp = r.layout.pp, rc;

	if (pp <= 1)
		return dt_err_set(err, -EINVAL, "layout '%s' has no pipeline", layout);
	if ((rc = dt_run_settle(&r, err)) < 0 || (rc = dt_run_schedule(&r, &s, err)) < 0)
		return rc;
	cost = calloc((size_t)(pp * chunks), sizeof(*cost));
	for (int v = 0; cost && v < pp * chunks; v++)
		cost[v] = (struct dt_pipe_cost){1, s.split ? 1 : 2, s.split ? 1 : 0};
	dt_schedule_print(&s, f);
	if (!cost || dt_schedule_simulate(&s, cost, 0, ret_bubble) < 0)
		*ret_bubble = -1;
	free(cost);
	dt_schedule_release(&s);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
