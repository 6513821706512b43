/* dt-plan: how to parallelise a model over machines, and how fast it will run. */
#include "base/opt.h"
#include "base/program.h"
#include "base/shell.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "plan/calibrate.h"
#include "plan/enough.h"
#include "plan/here.h"
#include "plan/plan_print.h"
#include "plan/roofline.h"
#include "tools/plan_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const examples[] = {
	"dt-plan --gpus 64 --gpu H100 llama-2-70b",
	"dt-plan --gpus 4 --emit args gpt2-124m",
	"dt-plan --serve --gpu H100 --rate 20 --tpot 0.03 llama-3-70b",
	"dt-plan roofline --gpu A100 llama-2-7b",
	NULL,
};

enum { EMIT_NOTHING, EMIT_ARGS, EMIT_COMMAND, EMIT_SRUN, EMIT_CLUSTER };

static struct plan_args *const a = &plan_args;
static struct dt_opt opts[DT_RUN_OPTS_MAX];

static const struct dt_program program = {
	.name = "dt-plan",
	.summary = "rank ways to split a model over machines by predicted step time",
	.operands = "[roofline] MODEL",
	.examples = examples,
	.opts = opts,
};

/* ---- measured steps ---- */

static int calibrate(struct dt_err *err)
{
	struct dt_runs runs;
	double error;
	int rc = dt_runs_read(a->calibrate, &runs, err);

	if (rc < 0)
		return rc;
	rc = dt_calibrate(&a->cluster, a->q.stack, &runs, &error, err);
	if (rc == 0)
		fprintf(stderr, "dt-plan: calibrated on %d runs, mean error %.1f%%\n", runs.n, 100 * error);
	dt_runs_release(&runs);
	return rc;
}

/* ---- training plans ---- */

/* What to print, and how. */
static struct dt_plan_view view(void)
{
	return (struct dt_plan_view){.q = &a->q,
				     .assumed = !a->m.gpu_given && !a->m.cluster_file,
				     .links = a->m.links != NULL,
				     .explain = a->explain,
				     .memory = dt_machines_room(&a->m, &a->cluster) / (1 - a->m.margin / 100),
				     .tokens = a->tokens,
				     .mtbf_hours = a->mtbf_hours,
				     .save_s = a->save_s,
				     .restart_s = a->restart_s,
				     .every_s = a->every_s,
				     .spot = a->spot,
				     .f = stdout};
}

static int print_search(const struct dt_plan *p, const struct dt_candidate *other, struct dt_err *err)
{
	struct dt_plan_view v = view();
	bool good = p->n > 0 && (!other || other->fits);
	int rc = 0;

	if (a->json) {
		json_t *o = dt_plan_json(&v, p, other);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
	} else {
		good = dt_plan_print(&v, p, other);
	}
	return rc < 0 ? dt_program_fail(&program, err) : good ? DT_EXIT_OK : DT_EXIT_NO;
}

static bool emits_plan(void)
{
	return a->emit == EMIT_ARGS || a->emit == EMIT_COMMAND || a->emit == EMIT_SRUN;
}

/* Prints the plan's arguments, or the command line that starts it. */
static void print_command(const char *args)
{
	const char *data = a->o.run.data.train ? a->o.run.data.train : "corpus.h5";
	/* otherwise mpirun ends all ranks when one fails */
	const char *recovers = a->o.run.watch.elastic ? " --enable-recovery" : "";
	char word[4096];
	int ranks = a->cluster.gpus, here = a->cluster.gpus_a_node, nodes = (ranks + here - 1) / here;

	if (a->emit == EMIT_SRUN)
		printf("srun --nodes %d --ntasks %d --ntasks-per-node %d ", nodes, ranks,
		       nodes > 1 ? here : ranks);
	else if (a->emit == EMIT_COMMAND && nodes > 1)
		printf("mpirun -np %d --map-by ppr:%d:node ", ranks, here);
	else if (a->emit == EMIT_COMMAND && ranks > 1)
		printf("mpirun%s -np %d ", recovers, ranks);
	if (a->emit != EMIT_ARGS)
		printf("dt-train --data %s%s ",
		       dt_shell_word(data, false, word, sizeof(word)) < sizeof(word) ? word : data,
		       a->cluster.cores ? "" : " --device cuda");
	puts(args);
}

static int plan_training(const char *model, struct dt_err *err)
{
	struct dt_candidate other;
	struct dt_plan p = {0};
	static char args[1 << 17];
	int status, rc;

	if (a->compare && dt_plan_judge_layout(&a->q, a->compare, &other, err) < 0)
		return dt_program_fail(&program, err);
	rc = dt_plan_search(&a->q, (int)a->top, &p, err);
	if (rc < 0 && !(a->compare && rc == -EINVAL)) /* --compare takes refused layouts too */
		return dt_program_fail(&program, err);
	if (emits_plan() && p.n == 0 && !a->compare) {
		dt_err_set(err, -ENOSPC, "nothing fits");
		dt_program_fail(&program, err);
		status = DT_EXIT_NO;
	} else if (emits_plan()) {
		print_command(dt_plan_args(&a->q, a->compare ? &other : &p.best[0], model,
					   a->emit != EMIT_ARGS, args, sizeof(args)));
		status = DT_EXIT_OK;
	} else {
		status = print_search(&p, a->compare ? &other : NULL, err);
	}
	dt_plan_release(&p);
	return status;
}

/* ---- serving plans and rooflines ---- */

static int plan_serving(struct dt_err *err)
{
	int status = plan_serve(&a->server, a->json, err);

	return status < 0 ? dt_program_fail(&program, err) : status;
}

static int roofline(struct dt_err *err)
{
	const struct dt_roofline r = {
		.config = &a->config,
		.device = dt_cluster_rank_device(&a->cluster, 1),
		.weights = (enum dt_weight_format)a->server.q.weights,
		.cache_bits = a->kv ? dt_kv_bits(&a->config, a->kv) : 16,
		.seq = a->q.fit.run.seq,
		.microbatch = a->q.fit.run.microbatch ? a->q.fit.run.microbatch : 1,
	};

	return dt_roofline_print(&r, a->json, stdout, err) < 0 ? dt_program_fail(&program, err) : DT_EXIT_OK;
}

/* ---- the program ---- */

/* An option of plans (given, and not for servers) that rooflines do not depend on. NULL: there is none. */
static const struct dt_opt *unread_by_roofline(void)
{
	for (const struct dt_opt *o = opts; o->name || o->help; o++)
		if (o->name && o->without && strstr(o->without, "serve") && dt_opt_is_set(o) &&
		    strcmp(o->name, "seq") && strcmp(o->name, "microbatch"))
			return o;
	return NULL;
}

static int check_usage(int nargs, char **argv, const char **ret_model)
{
	bool roof = nargs > 0 && !strcmp(argv[1], "roofline");
	const struct dt_opt *unread = roof ? unread_by_roofline() : NULL;
	struct dt_err err = {0};
	struct dt_layout l;
	int want = roof ? 2 : 1;

	if (a->m.here && nargs == 0)
		want = 0;
	if (a->emit == EMIT_CLUSTER || a->validate)
		want = nargs < 1 ? 0 : want;
	if (nargs != want)
		return dt_opt_usage_error(&program, stderr,
					  nargs < want ? "a model is missing" : "one model at a time");
	*ret_model = want ? argv[want] : NULL;
	if (!strncmp(a->o.pipeline, "interleaved", 11))
		return dt_opt_usage_error(
			&program, stderr,
			"option '--pipeline': the number of chunks is part of the search; use 1f1b");
	if (a->m.here && *ret_model)
		dt_machines_here(&a->m);
	if (a->serve && !a->m.gpus_given && a->m.node_given) /* as many as are needed: whole nodes */
		a->m.gpus = a->m.gpus_a_node;
	if (dt_run_options_finish(&a->o, &err) < 0 || dt_machines_check(&a->m, &err) < 0 ||
	    (a->compare && dt_layout_parse(a->compare, &l, &err) < 0))
		return dt_opt_usage_of(&program, stderr, NULL, &err);
	if (a->o.run.threads)
		a->o.run.scratch = dt_scratch_here((int)a->o.run.threads);
	a->q.fit.run = a->o.run;
	if (a->spot > 0 && (!a->tokens || (a->m.price <= 0 && !a->m.cluster_file)))
		return dt_opt_usage_error(&program, stderr, "--spot needs --tokens and --price");
	if (a->serve && roof)
		return dt_opt_usage_error(&program, stderr, "--serve cannot be combined with roofline");
	if (unread)
		return dt_opt_usage_error(&program, stderr, "--%s%s cannot be combined with roofline",
					  unread->negatable && !*(bool *)unread->dest ? "no-" : "",
					  unread->name);
	return -1;
}

static void complete_query(void)
{
	struct dt_config *c = &a->config;
	bool dt = dt_config_computable(c, NULL) == 0;

	a->q.fit.run.seq = a->q.fit.run.seq ? a->q.fit.run.seq : c->max_seq < 4096 ? c->max_seq : 4096;
	a->q.fit.precision = (enum dt_weight_format)a->q.fit.run.compute; /* same first three values */
	a->q.recompute = a->recompute - 1;
	a->q.fit.account = a->account ? (enum dt_account)(a->account - 1)
			   : dt	      ? DT_ACCOUNT_DT
				      : DT_ACCOUNT_GENERIC;
	a->q.dt_train = a->q.fit.account == DT_ACCOUNT_DT;
	a->q.fit.run.global_batch =
		a->q.fit.run.global_batch ? a->q.fit.run.global_batch : 16 * (int64_t)a->cluster.gpus;
	a->q.fit.run.config = c;
	a->q.fit.run.on_card = !a->cluster.cores;
	a->q.cluster = a->server.q.cluster = &a->cluster;
	a->q.room = (uint64_t)dt_machines_room(&a->m, &a->cluster);
	a->server.q.room = a->q.room;
	a->server.q.price = a->cluster.price_a_gpu_hour;
	a->server.q.devices = a->m.gpus_given || a->m.cluster_file ? (int)a->m.gpus : 0;
	a->server.q.config = *c;
	a->server.q.scratch = a->o.run.scratch;
	a->server.q.cache_bits = dt_kv_bits(c, a->kv);
}

/* --here without a model: describes this machine, and lists presets that fit on it. */
static int print_here(struct dt_err *err)
{
	struct dt_here h;
	uint64_t room;
	json_t *o;
	int rc;

	dt_here_look("", &h);
	room = (uint64_t)((double)(h.ncard ? h.card[0].room : h.available) * (1 - a->m.margin / 100));
	if (!a->json) {
		dt_here_print(&h, stdout);
		putchar('\n');
		dt_enough_print(room, stdout);
		return DT_EXIT_OK;
	}
	o = json_pack("{s:i, s:o, s:o}", "schema", 1, "machine", dt_here_json(&h), "fits",
		      dt_enough_json(room));
	rc = dt_json_write_line(stdout, o, err);
	json_decref(o);
	return rc < 0 ? dt_program_fail(&program, err) : DT_EXIT_OK;
}

/* Whether the machines can do what options say. */
static int check_machines(bool roof, struct dt_err *err)
{
	a->q.cluster = &a->cluster;
	if (a->cluster.nkind && (a->calibrate || a->m.ops || a->validate || a->serve || roof))
		return dt_err_set(err, -ENOTSUP, "a mixed cluster is for training plans: not with %s",
				  a->serve	? "--serve"
				  : roof	? "roofline"
				  : a->m.ops	? "--ops"
				  : a->validate ? "--validate"
						: "--calibrate");
	return dt_plan_check_machines(&a->q, a->compare, err);
}

static int run(bool roof, const char *model, struct dt_err *err)
{
	int rc;

	if (a->m.here && !model)
		return print_here(err);
	a->q.stack = a->account - 1 == DT_ACCOUNT_MEGATRON ? &dt_stack_megatron : &dt_stack_dt;
	rc = dt_machines_describe(&a->m, &a->cluster, err);
	if (rc == 0 && check_machines(roof, err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, err);
	if (rc == 0 && a->calibrate)
		rc = calibrate(err);
	if (rc < 0)
		return dt_program_fail(&program, err);
	if (a->emit == EMIT_CLUSTER) {
		json_t *o = dt_cluster_to_json(&a->cluster);

		rc = dt_json_write_line(stdout, o, err);
		json_decref(o);
		return rc < 0 ? dt_program_fail(&program, err) : DT_EXIT_OK;
	}
	if (a->validate)
		return dt_runs_validate(a->validate, &a->cluster, a->q.stack, a->json, stdout, err) < 0
			       ? dt_program_fail(&program, err)
			       : DT_EXIT_OK;
	if (dt_config_load(model, &a->config, err) < 0 ||
	    dt_config_set_vocab(&a->config, a->o.run.vocab, err) < 0 ||
	    dt_run_adapt(&a->q.fit.run, &a->config, err) < 0 ||
	    (!a->serve && a->config.tower.hidden && dt_config_computable(&a->config, err) < 0))
		return dt_program_fail(&program, err);
	complete_query();
	if (dt_plan_check_fp8(&a->q, err) < 0 || (roof && dt_run_check_seq(&a->q.fit.run, err) < 0))
		return dt_program_fail(&program, err);
	return roof ? roofline(err) : a->serve ? plan_serving(err) : plan_training(model, err);
}

int main(int argc, char **argv)
{
	const char *model = NULL;
	struct dt_err err = {0};
	int status, nargs;

	dt_run_options_table(&a->o, plan_opts, opts);
	nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);
	if (nargs >= 0) {
		status = check_usage(nargs, argv, &model);
		if (status < 0)
			status = run(nargs > 0 && !strcmp(argv[1], "roofline"), model, &err);
	}
	dt_cluster_release(&a->cluster);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = dt_program_fail(&program, &err);
	return status;
}
/* SPDX-License-Identifier: Apache-2.0 */
