/* dt-doctor: diagnoses a run from its metrics. */
#include "base/opt.h"
#include "base/program.h"
#include "base/tmpfile.h"
#include "board/board.h"
#include "board/gain.h"
#include "plan/machines.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static struct {
	bool json;
	struct dt_machines m;
} a;

static const char *const examples[] = {
	"dt-doctor run",
	"dt-doctor --json run/metrics.jsonl",
	"dt-doctor --gpu H100 run",
	NULL,
};

static const struct dt_opt opts[] = {
	DT_OPT_HEADING("Machines of the run, for predictions of dt-plan"),
	{"gpu", 'g', DT_OPT_STR, &a.m.gpu, "NAME",
	 "A100, A100-40GB, H100, H200, B200, MI300X, T4, L4, or cpu for this machine",
	 .given = &a.m.gpu_given, .complete = DT_COMPLETE_GPU, .def_text = "cpu for ranks on processors"},
	{"gpus-per-node", 0, DT_OPT_INT, &a.m.gpus_a_node, "N", "number of devices per machine", .min = 1,
	 .max = 1 << 20, .given = &a.m.node_given, .def_text = "the usual number"},
	{"cluster", 0, DT_OPT_STR, &a.m.cluster_file, "FILE",
	 "description of the machines in JSON, from dt-plan --emit cluster", .without = "gpu",
	 .complete = DT_COMPLETE_FILE},
	{"links", 0, DT_OPT_STR, &a.m.links, "FILE", "measured links: output of dt-allreduce-bench --json",
	 .complete = DT_COMPLETE_FILE},
	{"ops", 0, DT_OPT_STR, &a.m.ops, "FILE", "measured operations: output of dt-calibrate",
	 .complete = DT_COMPLETE_FILE},
	DT_OPT_HEADING("Output"),
	{"json", 0, DT_OPT_FLAG, &a.json, NULL, "print one JSON line per finding"},
	DT_OPT_END,
};

static const struct dt_program prog = {
	.name = "dt-doctor",
	.summary = "diagnose a run from its metrics: symptoms, evidence, and what to try",
	.operands = "DIR|FILE ...",
	.examples = examples,
	.opts = opts,
};

/* ---- predictions of dt-plan ---- */

struct machines { /* of one run */
	struct dt_cluster c;
	double room;
	bool known;
};

/* CPU ranks are assumed to be on this machine; cards have to be named. */
static int machines_of(const struct dt_board_run *r, struct machines *ret, struct dt_err *err)
{
	struct dt_machines m = a.m;
	json_int_t threads = json_integer_value(json_object_get(r->run, "threads"));
	int rc;

	*ret = (struct machines){0};
	m.gpus = dt_gain_ranks(r->run);
	m.leaf = 16;
	m.oversubscription = 1;
	m.margin = 5;
	m.gpus_given = true;
	if (!m.gpus || (!m.gpu && !m.cluster_file && !dt_gain_on_processor(r->run)))
		return 0;
	m.gpu = m.gpu ? m.gpu : m.cluster_file ? "A100" : "cpu";
	rc = dt_machines_describe(&m, &ret->c, err);
	if (rc < 0)
		return rc;
	if (ret->c.cores && threads > 0 && ret->c.gpus <= ret->c.gpus_a_node &&
	    threads * m.gpus < ret->c.cores)
		ret->c.cores = (int)(threads * m.gpus);
	ret->room = dt_machines_room(&m, &ret->c);
	ret->known = true;
	return 0;
}

static void put_gains(const struct dt_board_run *r, const struct machines *m, const struct dt_finding *f)
{
	struct dt_gains g;
	struct dt_err err = {0};
	int shown = 0;

	if (!f->changes || !dt_gain_ranks(r->run))
		return;
	if (!m->known) {
		puts("    dt-plan: give --gpu or --cluster to predict what a change saves");
		return;
	}
	if (dt_gains(r->run, f->changes, &m->c, m->room, &g, &err) < 0) {
		printf("    dt-plan: %s\n", err.msg);
		return;
	}
	printf("    dt-plan: predicts %.3g s per step; measured: %.3g s\n", g.step_s, dt_doctor_step_s(r));
	for (int i = 0; i < g.n && g.v[i].gain >= 0.01; i++, shown++)
		printf("        %3.0f%% less time per sample, %.3g s per step: %s\n", 100 * g.v[i].gain,
		       g.v[i].step_s, g.v[i].args);
	if (!shown)
		puts("        none of the changes tried saves 1% or more");
}

/* NULL: no prediction. */
static json_t *gains_json(const struct dt_board_run *r, const struct machines *m, const struct dt_finding *f)
{
	struct dt_gains g;
	json_t *list;

	if (!f->changes || !m->known || dt_gains(r->run, f->changes, &m->c, m->room, &g, NULL) < 0)
		return NULL;
	list = json_array();
	for (int i = 0; i < g.n; i++)
		json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "args", g.v[i].args, "step_s",
						      g.v[i].step_s, "gain", g.v[i].gain));
	return json_pack("{s:f, s:f, s:o}", "step_s", g.step_s, "measured_s", dt_doctor_step_s(r), "changes",
			 list);
}

/* ---- findings ---- */

static int put(const struct dt_board_run *r, const struct machines *m, const struct dt_finding *f,
	       struct dt_err *err)
{
	json_t *o;
	int rc;

	if (!a.json) {
		printf("%s: %s: %s\n", r->name, f->name, f->evidence);
		if (f->gain > 0)
			printf("    upper bound: a step would take %.0f%% less time without it\n",
			       100 * f->gain);
		put_gains(r, m, f);
		printf("    try: %s\n", f->what_to_try);
		return 0;
	}
	o = json_pack("{s:s, s:s, s:s, s:f, s:s, s:o*}", "run", r->path, "finding", f->name, "evidence",
		      f->evidence, "gain", f->gain, "try", f->what_to_try, "plan", gains_json(r, m, f));
	rc = o ? dt_json_write_line(stdout, o, err)
	       : dt_err_set(err, -EINVAL, "the name of '%s' is not UTF-8", r->path);
	json_decref(o);
	return rc;
}

/* Of a run in which nothing was found, how much that says. */
static void put_nothing(const struct dt_board_run *r)
{
	const double *step_s = dt_board_run_column(r, "step_s");
	size_t n = 0;

	for (size_t i = 0; step_s && i < r->rows; i++)
		n += !isnan(step_s[i]);
	if (!n)
		printf("%s: not examined: no line has step_s, which dt-train writes\n", r->name);
	else
		printf("%s: nothing found in %zu line%s%s\n", r->name, r->rows, r->rows == 1 ? "" : "s",
		       n < DT_DOCTOR_UNSETTLED + DT_DOCTOR_TIMES ? ", too few to judge times and losses"
		       : n < DT_DOCTOR_LOSSES			 ? ", too few to judge losses"
								 : "");
}

/* The number of findings of a run. */
static int examine(const struct dt_board_run *r, struct dt_err *err)
{
	struct dt_finding f[DT_DOCTOR_MAX];
	struct machines m = {0};
	int n = dt_doctor(r, f, err), rc = n < 0 ? n : machines_of(r, &m, err);

	for (int k = 0; k < n && rc == 0; k++)
		rc = put(r, &m, &f[k], err);
	if (!n && rc == 0 && !a.json)
		put_nothing(r);
	dt_cluster_release(&m.c);
	return rc < 0 ? rc : n;
}

static int examine_all(const struct dt_board *b, struct dt_err *err)
{
	int all = 0;

	for (int i = 0; i < b->n; i++) {
		int n = examine(&b->run[i], err);

		if (n < 0)
			return n;
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
		return dt_opt_usage_error(&prog, stderr, "no run given: name folders or metrics files");
	if (dt_machines_check_gpu(&a.m, &err) < 0)
		return dt_opt_usage_of(&prog, stderr, NULL, &err);
	rc = dt_board_open(&b, argv + 1, n, 0, &err);
	if (rc == 0) {
		found = rc = examine_all(&b, &err);
		dt_board_close(&b);
	}
	if (rc >= 0)
		rc = dt_close_stdout(&err);
	if (rc < 0)
		return dt_program_fail(&prog, &err);
	return found ? DT_EXIT_NO : DT_EXIT_OK;
}
/* SPDX-License-Identifier: Apache-2.0 */
