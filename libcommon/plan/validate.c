/* Compares measured steps with predictions. */
#include "plan/calibrate.h"

#include "base/table.h"
#include "base/units.h"
#include "plan/search.h"

#include <errno.h>
#include <stdlib.h>

int dt_runs_validate(const char *path, const struct dt_cluster *c, const struct dt_stack *stack, bool json,
		     FILE *f, struct dt_err *err)
{
	struct dt_table *t = dt_table_new("model|layout|>microbatch|>seq|>measured|>predicted|>error");
	struct dt_runs runs;
	struct dt_run_error *each = NULL;
	double error = 0;
	char layout[80], s[24];
	int rc = dt_runs_read(path, &runs, err);

	if (rc < 0)
		goto out;
	each = calloc((size_t)runs.n, sizeof(*each));
	rc = each ? dt_runs_error(c, stack, &runs, each, &error, err) : dt_err_sys(err, -ENOMEM, "runs");
	for (int i = 0; i < runs.n && rc == 0; i++) {
		const struct dt_measured_run *r = &runs.r[i];

		dt_table_cell(t, "%s", r->config.name);
		dt_table_cell(t, "%s", dt_layout_format(&r->run.layout, layout, sizeof(layout)));
		dt_table_cell(t, "%lld", (long long)r->run.microbatch);
		dt_table_cell(t, "%lld", (long long)r->run.seq);
		dt_table_cell(t, "%s", dt_format_duration(r->step_s, s, sizeof(s)));
		dt_table_cell(t, "%s", dt_format_duration(each[i].t.step, s, sizeof(s)));
		dt_table_cell(t, "%+.1f%%", 100 * (each[i].ratio - 1));
	}
	if (rc == 0 && json) {
		json_t *o = json_pack("{s:i, s:i, s:f, s:o, s:o}", "schema", 1, "runs", runs.n, "mean_error",
				      error, "ratios", json_array(), "predicted", json_array());

		for (int i = 0; i < runs.n; i++) {
			json_array_append_new(json_object_get(o, "ratios"), json_real(each[i].ratio));
			json_array_append_new(json_object_get(o, "predicted"), dt_step_time_json(&each[i].t));
		}
		rc = dt_json_write_line(f, o, err);
		json_decref(o);
	} else if (rc == 0) {
		dt_table_print(t, f);
		fprintf(f, "mean error %.1f%% over %d runs\n", 100 * error, runs.n);
	}
	free(each);
	dt_runs_release(&runs);
out:
	dt_table_free(t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
