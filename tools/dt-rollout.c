/* dt-rollout: samples groups of completions per prompt, scored by a program on a pipe or by a task. */
#include "base/jsonl.h"
#include "base/launch.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/signals.h"
#include "nn/device.h"
#include "rl/child.h"
#include "rl/drawer.h"
#include "rl/reward.h"
#include "rl/stats.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH 64 /* prompts sampled together */

static struct {
	struct dt_drawer_opts draw;
	const char *reward, *task;
	int64_t group, max_tokens, count, first, workers, seed, parallel;
	double timeout;
	int precision;
	bool json;
	struct dt_rl_task exact;
	/* options of a model in this process, and of a server */
	struct {
		bool precision, seq, tokenizer, any_base, device, threads;
	} here;
	struct {
		bool model, key, parallel;
	} there;
	/* of the whole job */
	struct dt_rl_stats stats;
	double draw_s, score_s;
} a;

static const char *const examples[] = {
	"dt-rollout prompts sort:7 --count 1000 >prompts.jsonl",
	"dt-rollout sample run/latest --task sort:7 --count 32 --group 16 >rollouts.jsonl",
	"dt-rollout sample run/latest prompts.jsonl --reward ./judge.py >rollouts.jsonl",
	"dt-rollout score rollouts.jsonl --reward ./stricter.py >again.jsonl",
	NULL,
};

#define SAMPLE "sample"
#define SCORE  "sample,score"

static const struct dt_opt opts[] = {
	{"group", 'g', DT_OPT_INT, &a.group, "N", "number of answers to each prompt", SAMPLE, .min = 1,
	 .max = 128, .def = "8"},
	{"max-tokens", 0, DT_OPT_INT, &a.max_tokens, "N", "maximum number of tokens of an answer", SAMPLE,
	 .min = 1, .max = DT_ROLLOUT_TOKENS, .def = "64"},
	{"temperature", 0, DT_OPT_REAL, &a.draw.sample.temperature, "X",
	 "sampling temperature; dt-train takes only answers sampled at 1", SAMPLE, .min = 0, .max = 100,
	 .def = "1"},
	{"seed", 0, DT_OPT_INT, &a.seed, "N", "seed of sampling, and of the prompts of a task",
	 "sample,prompts", .min = 0, .max = 1e15, .def = "1337"},
	{"count", 'n', DT_OPT_INT, &a.count, "N", "number of prompts: of a task, or the first N of a file",
	 "sample,prompts", .min = 1, .max = 1e15, .def_text = "32 of a task, all of a file"},
	{"first", 0, DT_OPT_INT, &a.first, "N", "number of the first prompt of a task", "sample,prompts",
	 .min = 0, .max = 1e15, .def = "0"},
	DT_OPT_HEADING("Rewards"),
	{"reward", 'r', DT_OPT_STR, &a.reward, "COMMAND",
	 "command that scores answers: reads JSON Lines, writes one number per line", SCORE},
	{"task", 't', DT_OPT_STR, &a.task, "TASK:SIZE",
	 "score by an exact task, which also makes prompts if no file is given: " DT_RL_TASKS, SCORE},
	{"reward-workers", 0, DT_OPT_INT, &a.workers, "N",
	 "number of parallel processes of the --reward command", SCORE, .min = 1, .max = 256, .def = "2"},
	{"reward-timeout", 0, DT_OPT_REAL, &a.timeout, "SECONDS",
	 "time limit for one answer; then the command is restarted", SCORE, .min = 0.001, .max = 86400,
	 .def = "10"},
	DT_OPT_HEADING("Model"),
	{"precision", 'p', DT_OPT_CHOICE, &a.precision, "bf16|fp32",
	 "data type of activations, KV cache and weights", SAMPLE, .def = "bf16", .given = &a.here.precision},
	{"seq", 's', DT_OPT_INT, &a.draw.seq, "TOKENS", "maximum number of tokens of a prompt and its answer",
	 SAMPLE, .min = 2, .max = 1 << 24, .def_text = "the model's context length", .given = &a.here.seq},
	{"tokenizer", 0, DT_OPT_STR, &a.draw.tokenizer, "FILE", "tokenizer that replaces the model's own",
	 SAMPLE, .complete = DT_COMPLETE_TOKENIZER, .given = &a.here.tokenizer},
	{"lora", 0, DT_OPT_STR, &a.draw.lora, "ADAPTER", "adapter to merge into the model's weights", SAMPLE,
	 .complete = DT_COMPLETE_FILE},
	{"any-base", 0, DT_OPT_FLAG, &a.draw.any_base, NULL,
	 "accept an adapter that was trained on other weights", SAMPLE, .given = &a.here.any_base},
	{"device", 0, DT_OPT_STR, &a.draw.device, "auto|cpu|cuda[:N]", "device that runs the model", SAMPLE,
	 .def = "cpu", .given = &a.here.device},
	{"weights-disk", 0, DT_OPT_STR, &a.draw.weights_disk, "DIR",
	 "folder for a file with the weights that exceed --weights-memory, read when needed", SAMPLE,
	 .complete = DT_COMPLETE_DIR, .with = "weights-memory"},
	{"weights-memory", 0, DT_OPT_SIZE, &a.draw.weights_memory, "SIZE",
	 "memory for weights; the others are in --weights-disk, or with a GPU in the host's memory", SAMPLE},
	{"threads", 0, DT_OPT_INT, &a.draw.threads, "N", "number of threads", SAMPLE, .min = 0, .max = 4096,
	 .def_text = "all processors", .given = &a.here.threads},
	DT_OPT_HEADING("Server"),
	{"model", 'm', DT_OPT_STR, &a.draw.served, "NAME", "name of the model to request from a server",
	 SAMPLE, .def_text = "the first one that it serves", .given = &a.there.model},
	{"api-key", 0, DT_OPT_STR, &a.draw.key, "KEY", "API key, sent as a bearer token", SAMPLE,
	 .given = &a.there.key},
	{"parallel", 0, DT_OPT_INT, &a.parallel, "N", "number of concurrent requests to a server", SAMPLE,
	 .min = 1, .max = 1024, .def = "16", .given = &a.there.parallel},
	DT_OPT_HEADING("Output"),
	{"json", 'j', DT_OPT_FLAG, &a.json, NULL, "print the summary on standard error as JSON", SCORE},
	DT_OPT_END,
};

static int run_sample(int n, char **v);
static int run_score(int n, char **v);
static int run_prompts(int n, char **v);

static const struct dt_command commands[] = {
	{"sample", "MODEL|URL [PROMPTS]", "Sample answers to prompts and score them", run_sample, 1, 2},
	{"score", "ROLLOUTS", "Score rollouts again, by another reward", run_score, 1, 1},
	{"prompts", "TASK:SIZE", "Print prompts of a task with their solutions", run_prompts, 1, 1},
	{NULL, NULL, NULL, NULL, 0, 0},
};

static const struct dt_program program = {
	.name = "dt-rollout",
	.summary = "sample answers from a model and score them, for dt-train --objective",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

static int print(json_t *o, struct dt_err *err)
{
	int rc = o ? dt_json_write_line(stdout, o, err) : dt_err_sys(err, -ENOMEM, "cannot print");

	json_decref(o);
	return rc;
}

/* ---- rewards ---- */

/* The copies of the command are process groups of their own, which no signal from a terminal reaches. */
static void end(int sig)
{
	dt_child_end_all();
	signal(sig, SIG_DFL);
	kill(getpid(), sig);
}

static int open_reward(struct dt_reward **ret, struct dt_err *err)
{
	const struct dt_reward_opts o = {
		.command = a.reward, .task = a.exact, .workers = (int)a.workers, .timeout = a.timeout};
	int which[] = {SIGINT, SIGTERM, SIGHUP}, n = 0;

	for (int i = 0; i < 3; i++)
		if (signal(which[i], SIG_IGN) != SIG_IGN) /* else under nohup(1), or in the background */
			which[n++] = which[i];
	dt_signals_catch(which, (size_t)n, end);
	return dt_reward_open(&o, ret, err);
}

/* Scores, prints and releases n groups. */
static int finish_groups(struct dt_reward *r, struct dt_group *g, int64_t n, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = dt_reward_score(r, g, n, err);

	a.score_s += dt_now() - t0;
	for (int64_t i = 0; i < n && rc == 0; i++)
		rc = print(dt_group_json(&g[i]), err);
	if (rc == 0)
		dt_rl_count(&a.stats, g, n);
	return rc;
}

/* Prints the summary. file: what was read. -EIO: it was empty, or no answer has a reward. */
static int summary(const char *file, struct dt_err *err)
{
	const struct dt_rl_stats *s = &a.stats;
	json_t *o;
	int rc;

	if (s->groups == 0)
		return dt_err_set(err, -EIO, "%s: empty, nothing to score", file);
	o = json_pack("{s:I, s:I, s:f, s:f}", "groups", (json_int_t)s->groups, "answers",
		      (json_int_t)s->answers, "draw_s", a.draw_s, "score_s", a.score_s);
	rc = o ? dt_rl_put(s, o) : -ENOMEM;
	if (rc < 0)
		rc = dt_err_sys(err, rc, "cannot print");
	else if (a.json)
		rc = dt_json_write_line(stderr, o, err);
	else if (s->answers > 0)
		dt_program_say(
			&program,
			"%lld answer%s to %lld prompt%s: mean reward %.4g, std %.4g; %.1f%% of groups "
			"with equal rewards; mean length %.1f tokens, %.1f%% truncated; %lld without a "
			"reward; %.2f s sampling, %.2f s scoring",
			(long long)s->answers, s->answers == 1 ? "" : "s", (long long)s->groups,
			s->groups == 1 ? "" : "s", dt_rl_mean(s), dt_rl_std(s),
			1e2 * (double)s->flat / (double)s->groups, (double)s->tokens / (double)s->answers,
			1e2 * (double)s->truncated / (double)s->answers, (long long)s->unscored, a.draw_s,
			a.score_s);
	json_decref(o);
	if (rc == 0 && s->answers == 0)
		return dt_err_set(err, -EIO, "no answer has a reward: %lld without", (long long)s->unscored);
	return rc;
}

/* Checks --reward and --task. Returns 0, or the exit status. */
static int check_reward(bool prompts)
{
	struct dt_err err;

	if (!a.reward == !a.task && (a.reward || !prompts))
		return dt_opt_usage_error(&program, stderr, "give --reward COMMAND or --task TASK:SIZE%s",
					  a.reward ? ", not both" : "");
	if (a.task && dt_rl_task_parse(a.task, &a.exact, &err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, &err);
	return 0;
}

/* ---- sample ---- */

/* Reads the next prompt, from the task or the file. 1, or 0 at the end. */
static int next_prompt(struct dt_jsonl *file, int64_t number, struct dt_group *g, struct dt_err *err)
{
	char prompt[DT_RL_TASK_TEXT], solution[DT_RL_TASK_TEXT];
	const char *text = NULL;
	int rc;

	*g = (struct dt_group){.index = number, .step = -1, .temperature = 1};
	if (!file) {
		if (number - a.first >= (a.count ? a.count : 32))
			return 0;
		dt_rl_task_make(&a.exact, (uint64_t)a.seed, (uint64_t)number, prompt, solution);
		g->prompt = strdup(prompt);
		return g->prompt ? 1 : dt_err_sys(err, -ENOMEM, "cannot make a prompt");
	}
	if (a.count && number >= a.count)
		return 0;
	rc = dt_jsonl_next(file, &g->item, err);
	if (rc <= 0)
		return rc;
	if (dt_json_str(g->item, "prompt", true, &text, err) < 0)
		return dt_err_prefix(err, "%s:%zu", file->name, file->line);
	g->prompt = strdup(text);
	return g->prompt ? 1 : dt_err_sys(err, -ENOMEM, "cannot read a prompt");
}

static int sample_all(struct dt_drawer *d, struct dt_reward *r, struct dt_jsonl *file, struct dt_err *err)
{
	struct dt_group g[BATCH] = {0};
	int64_t number = file ? 0 : a.first, n;
	int rc;

	do {
		double t0 = dt_now();

		n = 0;
		do {
			rc = next_prompt(file, number, &g[n], err);
			number += rc > 0;
			n += rc > 0;
		} while (rc > 0 && n < BATCH);
		if (rc < 0)
			dt_group_release(&g[n]);
		if (rc >= 0 && n > 0)
			rc = d->draw(d, g, n, err) < 0 ? err->code : rc;
		a.draw_s += dt_now() - t0;
		if (rc >= 0 && n > 0)
			rc = finish_groups(r, g, n, err) < 0 ? err->code : rc;
		for (int64_t i = 0; i < n; i++)
			dt_group_release(&g[i]);
	} while (rc > 0);
	return rc;
}

/* Refuses options of a model in this process with a server, and the other way round. */
static int check_place(bool url)
{
	const struct {
		const char *name;
		bool given;
	} here[] = {{"weights-disk", a.draw.weights_disk != NULL},
		    {"weights-memory", a.draw.weights_memory != 0},
		    {"precision", a.here.precision},
		    {"seq", a.here.seq},
		    {"tokenizer", a.here.tokenizer},
		    {"any-base", a.here.any_base},
		    {"device", a.here.device},
		    {"threads", a.here.threads}},
	  there[] = {{"model", a.there.model}, {"api-key", a.there.key}, {"parallel", a.there.parallel}};

	for (size_t i = 0; i < sizeof(here) / sizeof(*here) && url; i++)
		if (here[i].given)
			return dt_opt_usage_error(&program, stderr, "--%s cannot be combined with a server",
						  here[i].name);
	for (size_t i = 0; i < sizeof(there) / sizeof(*there) && !url; i++)
		if (there[i].given)
			return dt_opt_usage_error(&program, stderr,
						  "--%s is for a server: give its URL, such as "
						  "http://127.0.0.1:8000, in place of a model",
						  there[i].name);
	return 0;
}

static int run_sample(int n, char **v)
{
	bool url = !strncmp(v[0], "http://", 7) || !strncmp(v[0], "https://", 8);
	struct dt_jsonl file, *prompts = n > 1 || !a.task ? &file : NULL;
	struct dt_drawer *d = NULL;
	struct dt_reward *r = NULL;
	struct dt_err err = {0};
	int rc;

	if ((rc = check_reward(false)) != 0)
		return rc;
	if (dt_nn_device_check(a.draw.device, url ? 0 : a.draw.weights_memory, a.draw.weights_disk, &err) < 0)
		return dt_opt_usage_of(&program, stderr, NULL, &err);
	if (prompts && a.first)
		return dt_opt_usage_error(&program, stderr,
					  "--first is for prompts of a task, not of a file");
	if (url && a.draw.lora)
		return dt_opt_usage_error(
			&program, stderr,
			"--lora cannot be combined with a server: choose one of its adapters by --model");
	if ((rc = check_place(url)) != 0)
		return rc;
	a.draw.fp32 = a.precision == 1;
	a.draw.parallel = (int)a.parallel;
	a.draw.sample.group = (int)a.group;
	a.draw.sample.max_tokens = (int)a.max_tokens;
	a.draw.sample.seed = (uint64_t)a.seed;
	if (prompts && (rc = dt_jsonl_open(prompts, n > 1 ? v[1] : "-", &err)) < 0)
		return dt_program_fail(&program, &err);
	if ((rc = open_reward(&r, &err)) == 0)
		rc = (url ? dt_drawer_remote : dt_drawer_local)(v[0], &a.draw, &d, &err);
	if (rc == 0 && (rc = sample_all(d, r, prompts, &err)) == 0)
		rc = summary(prompts ? prompts->name : a.task, &err);
	dt_drawer_close(d);
	dt_reward_close(r);
	if (prompts)
		dt_jsonl_close(prompts);
	return rc < 0 ? dt_program_fail(&program, &err) : DT_EXIT_OK;
}

/* ---- score, prompts ---- */

static int run_score(int n, char **v)
{
	struct dt_jsonl file;
	struct dt_reward *r = NULL;
	struct dt_err err = {0};
	json_t *o = NULL;
	int rc;

	if ((rc = check_reward(false)) != 0)
		return rc;
	if (dt_jsonl_open(&file, v[0], &err) < 0)
		return dt_program_fail(&program, &err);
	file.texts = true;
	rc = open_reward(&r, &err);
	while (rc == 0 && (rc = dt_jsonl_next(&file, &o, &err)) > 0) {
		struct dt_group g = {0};

		rc = dt_group_parse(o, 0, &g, &err);
		if (rc < 0)
			dt_err_prefix(&err, "%s:%zu", file.name, file.line);
		else
			rc = finish_groups(r, &g, 1, &err);
		dt_group_release(&g);
		json_decref(o);
	}
	if (rc == 0)
		rc = summary(file.name, &err);
	dt_reward_close(r);
	dt_jsonl_close(&file);
	return rc < 0 ? dt_program_fail(&program, &err) : DT_EXIT_OK;
}

static int run_prompts(int n, char **v)
{
	char prompt[DT_RL_TASK_TEXT], solution[DT_RL_TASK_TEXT];
	struct dt_err err = {0};
	int rc = 0;

	a.task = v[0];
	if ((rc = check_reward(true)) != 0)
		return rc;
	for (int64_t i = a.first; i < a.first + (a.count ? a.count : 32) && rc == 0; i++) {
		dt_rl_task_make(&a.exact, (uint64_t)a.seed, (uint64_t)i, prompt, solution);
		rc = print(json_pack("{s:s, s:s}", "prompt", prompt, "completion", solution), &err);
	}
	return rc < 0 ? dt_program_fail(&program, &err) : DT_EXIT_OK;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	dt_dev_spin_less(argv);
	return dt_program_main(&program, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
