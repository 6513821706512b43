/* dt-doctor: what is wrong with a run, from its metrics. */
#include "base/opt.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "board/board.h"
#include "board/doctor.h"

#include <errno.h>
#include <stdio.h>

static struct {
	bool json;
} a;

static const char *const examples[] = {
	"dt-doctor run",
	"dt-doctor --json run/metrics.jsonl",
	NULL,
};

static const struct dt_opt opts[] = {
	{"json", 0, DT_OPT_FLAG, &a.json, NULL, "a JSON line a finding"},
	DT_OPT_END,
};

static const struct dt_program prog = {
	.name = "dt-doctor",
	.summary = "say what is wrong with a run, from its metrics: evidence, and what to try",
	.operands = "DIR|FILE ...",
	.examples = examples,
	.opts = opts,
};

static int put(const struct dt_board_run *r, const struct dt_finding *f, struct dt_err *err)
{
	json_t *o;
	int rc;

	if (!a.json) {
		printf("%s: %s: %s\n", r->name, f->name, f->evidence);
		if (f->gain > 0)
			printf("    without it a step would take %.0f%% less at best\n", 100 * f->gain);
		printf("    try: %s\n", f->what_to_try);
		return 0;
	}
	o = json_pack("{s:s, s:s, s:s, s:f, s:s}", "run", r->path, "finding", f->name, "evidence",
		      f->evidence, "gain", f->gain, "try", f->what_to_try);
	rc = o ? dt_json_write_line(stdout, o, err)
	       : dt_err_set(err, -EINVAL, "the name of '%s' is no UTF-8", r->path);
	json_decref(o);
	return rc;
}

/* The number of findings. */
static int examine(const struct dt_board *b, struct dt_err *err)
{
	struct dt_finding f[DT_DOCTOR_MAX];
	int all = 0;

	for (int i = 0; i < b->n; i++) {
		int n = dt_doctor(&b->run[i], f, err);

		if (n < 0)
			return n;
		for (int k = 0; k < n; k++)
			if (put(&b->run[i], &f[k], err) < 0)
				return err->code;
		if (!n && !a.json)
			printf("%s: nothing found in %zu lines\n", b->run[i].name, b->run[i].rows);
		all += n;
	}
	return all;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	struct dt_board b;
	int status, n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status), rc, found = 0;

	if (n < 0)
		return status;
	if (!n)
		return dt_opt_usage_error(&prog, stderr, "which run? give folders or metrics files");
	rc = dt_board_open(&b, argv + 1, n, 0, &err);
	if (rc == 0) {
		found = rc = examine(&b, &err);
		dt_board_close(&b);
	}
	if (rc >= 0)
		rc = dt_close_stdout(&err);
	if (rc < 0)
		return dt_program_fail(&prog, &err);
	return found ? DT_EXIT_NO : DT_EXIT_OK;
}
/* SPDX-License-Identifier: Apache-2.0 */
