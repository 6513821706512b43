/* Lines of metrics about changes of a run: rollbacks and lost ranks. */
#include "train/trainer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Truncates a file after the last line whose step is at most this one. A pipe stays as it is. */
static int cut_after(FILE *f, const char *path, int64_t step, struct dt_err *err)
{
	FILE *in = fopen(path, "re");
	off_t keep = 0;
	char *line = NULL;
	size_t room = 0;
	int rc = 0;

	while (in && getline(&line, &room, in) > 0) {
		json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
		const json_t *at = json_object_get(o, "step");

		if (!at || json_integer_value(at) <= step)
			keep = ftello(in);
		json_decref(o);
	}
	free(line);
	if (in)
		fclose(in);
	if (in && (fflush(f) == EOF || ftruncate(fileno(f), keep) < 0 || fseeko(f, keep, SEEK_SET) < 0))
		rc = dt_err_sys(err, -errno, "cannot rewind '%s'", path);
	return rc;
}

int metrics_rewind(struct trainer *t, int64_t spiked, int64_t from, int64_t to, struct dt_err *err)
{
	struct stat st;
	int rc = 0;

	if (!metrics_wanted(t))
		return 0;
	if (t->report.f && t->report.f != stdout && stat(t->run.metrics, &st) == 0 && S_ISREG(st.st_mode))
		rc = cut_after(t->report.f, t->run.metrics, t->loop.step, err);
	if (rc < 0)
		return rc;
	return metrics_write(t,
			     json_pack("{s:s, s:I, s:s, s:I, s:[I, I]}", "run_id", t->save.run_id, "step",
				       (json_int_t)t->loop.step, "event", "rollback", "from_step",
				       (json_int_t)spiked, "skipped_samples", (json_int_t)from,
				       (json_int_t)to),
			     err);
}

/* Whether the metrics file has the line of this step. Of a pipe it is not known. */
static bool has_line(const struct trainer *t, int64_t step)
{
	struct stat st;
	FILE *in = NULL;
	char *line = NULL;
	size_t room = 0;
	bool has = false;

	if (t->report.f && t->report.f != stdout && stat(t->run.metrics, &st) == 0 && S_ISREG(st.st_mode))
		in = fopen(t->run.metrics, "re");
	while (in && !has && getline(&line, &room, in) > 0) {
		json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);

		has = json_object_get(o, "loss") && json_integer_value(json_object_get(o, "step")) == step;
		json_decref(o);
	}
	free(line);
	if (in)
		fclose(in);
	return has;
}

void metrics_late(struct trainer *t)
{
	struct step_result r = t->loop.last;

	if (t->loop.line < t->loop.step && metrics_wanted(t) && !has_line(t, t->loop.step)) {
		r.passed = true; /* the new trainer has computed nothing yet */
		metrics_step(t, &r, NULL);
	}
	t->loop.line = t->loop.step;
}

void metrics_ranks(struct trainer *t, int was, const char *why, double seconds, int64_t computed)
{
	struct dt_err err = {0};

	dt_log_msg(&t->root_log, "%s: the run continues on %d rank%s instead of %d after step %lld (%.2f s)",
		   why, t->info.size, t->info.size == 1 ? "" : "s", was, (long long)t->loop.step, seconds);
	if (metrics_wanted(t) &&
	    metrics_write(t,
			  json_pack("{s:s, s:I, s:s, s:i, s:i, s:s, s:f, s:I}", "run_id", t->save.run_id,
				    "step", (json_int_t)t->loop.step, "event", "ranks", "from", was, "to",
				    t->info.size, "why", why, "seconds", seconds, "computed",
				    (json_int_t)computed),
			  &err) < 0)
		dt_log_err(&t->root_log, &err);
}
/* SPDX-License-Identifier: Apache-2.0 */
