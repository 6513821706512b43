/* dt-shard-ckpt: looks into checkpoints, checks, compares, recuts and converts them. */
#include "base/json.h"
#include "base/log.h"
#include "base/program.h"
#include "base/progress.h"
#include "ckpt/adapter.h"
#include "ckpt/export.h"
#include "ckpt/look.h"
#include "comm/comm.h"
#include "data/tokenizer.h"
#include "eval/ppl.h"
#include "plan/layout.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool json, all_lines, raw, compress, dry_run, weights, any_base;
static double tolerance;
static bool tolerance_given, step_given, from_given, to_given, type_given;
static int64_t workers, window, keep, keep_every, step, experts, top_k, seed;
static uint64_t max_file;
static const char *layout_text, *tokenizer, *judged_on;
static int from, to, type;

#define TYPES "f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q4_k|q6_k"

static const struct dt_opt opts[] = {
	{"json", 0, DT_OPT_FLAG, &json, .help = "print one JSON object", .commands = "ls,verify,diff,stats"},
	{"all", 'a', DT_OPT_FLAG, &all_lines, .help = "a line for every tensor: fold no layers",
	 .commands = "ls,diff"},
	{"weights", 'w', DT_OPT_FLAG, &weights, .help = "leave out the states of the optimizer",
	 .commands = "diff"},
	{"workers", 'j', DT_OPT_INT, &workers, "N", "threads", "verify,reshard,merge", 1, 64,
	 .def_text = "one a processor, at most 8"},
	{"tolerance", 't', DT_OPT_REAL, &tolerance, "X",
	 "call tensors equal up to X times the largest magnitude in A", "diff", 0, 1e30, &tolerance_given,
	 .def_text = "bit by bit"},
	{"layout", 'l', DT_OPT_STR, &layout_text, "LAYOUT",
	 "the layout to cut for, as dp2.tp4.pp2.z1 (dt-layout(7))", "reshard"},
	{"compress", 0, DT_OPT_FLAG, &compress, .help = "shuffle and deflate the pieces",
	 .commands = "reshard,merge,convert,avg,upcycle"},
	{"from", 0, DT_OPT_CHOICE, &from, DT_SOURCE_FROM,
	 "what SRC is; ema: the averaged weights of a checkpoint", "convert,quantize,avg,upcycle,lora-merge",
	 .given = &from_given, .def_text = "what is there"},
	{"to", 0, DT_OPT_CHOICE, &to, DT_SOURCE_KINDS, "what DST becomes", "convert,avg,upcycle,lora-merge",
	 .given = &to_given, .def_text = "gguf by its ending; else dt, when SRC is something else"},
	{"type", 0, DT_OPT_CHOICE, &type, TYPES, "type of the weights",
	 "convert,quantize,avg,upcycle,lora-merge", .given = &type_given, .def_text = "as they are"},
	{"tokenizer", 0, DT_OPT_STR, &tokenizer, "FILE",
	 "what holds the tokenizer to take along instead, as dt-tokenize reads it; none: leave it out",
	 "convert,quantize,avg,upcycle,lora-merge", .complete = DT_COMPLETE_TOKENIZER},
	{"text", 0, DT_OPT_STR, &judged_on, "FILE", "perplexity on this text before and after", "quantize",
	 .complete = DT_COMPLETE_FILE},
	{"seq", 0, DT_OPT_INT, &window, "TOKENS", "of a window of --text", "quantize", .min = 2,
	 .max = 1 << 30, .def_text = "the model's positions, 2048 at most"},
	{"max-file-size", 0, DT_OPT_SIZE, &max_file, "SIZE",
	 "begin another safetensors file past this; 0: never", "convert,avg,upcycle,lora-merge",
	 .def = "5GB"},
	{"step", 0, DT_OPT_INT, &step, "N", "step of the checkpoint that is made",
	 "convert,avg,upcycle,lora-merge", .given = &step_given, .def_text = "the source's, or 0"},
	{"experts", 0, DT_OPT_INT, &experts, "N", "experts of a layer", "upcycle", 1, 4096},
	{"top-k", 0, DT_OPT_INT, &top_k, "K", "experts that a token goes to", "upcycle", 1, 4096},
	{"seed", 0, DT_OPT_INT, &seed, "N", "of the routers", "upcycle", .def = "1337"},
	{"keep", 0, DT_OPT_INT, &keep, "N", "keep the newest N", "prune", 1, 1 << 30},
	{"keep-every", 0, DT_OPT_INT, &keep_every, "STEPS", "also keep steps that are multiples of this",
	 "prune", 1, 1e15},
	{"any-base", 0, DT_OPT_FLAG, &any_base, .help = "take an adapter that was trained on other weights",
	 .commands = "lora-merge,lora-convert"},
	{"dry-run", 'n', DT_OPT_FLAG, &dry_run, .help = "only say what would go", .commands = "prune"},
	{"raw", 0, DT_OPT_FLAG, &raw, .help = "write the elements as little-endian bytes", .commands = "cat"},
	DT_OPT_END,
};
static const struct dt_program prog;
static struct dt_ckpt_team team = {.size = 1}; /* reshard under mpirun */
static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

/* A damaged checkpoint is an answer (3), not a failure of ours. */
static int fail(const struct dt_err *err)
{
	dt_program_fail(&prog, err);
	return err->code == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

static void say_note(const char *note)
{
	if (note && team.rank == 0)
		dt_program_say(&prog, "%s", note);
}

static int open_tensors(const char *path, struct dt_tensors **ret)
{
	struct dt_err err = {0};

	if (dt_tensors_open(path, ret, &err) < 0)
		return fail(&err);
	say_note(dt_tensors_note(*ret));
	return 0;
}

static int print_json(json_t *o)
{
	struct dt_err err = {0};
	int rc = dt_json_write_line(stdout, o, &err);

	json_decref(o);
	return rc < 0 ? fail(&err) : 0;
}

static void draw(void *arg, uint64_t done, uint64_t total)
{
	struct dt_progress *bar = arg;

	bar->total = total;
	dt_progress_set(bar, done);
}

static int cmd_ls(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_tensors *t;
	int rc = open_tensors(argv[0], &t);

	if (rc)
		return rc;
	if (json)
		rc = print_json(dt_report_list_json(t));
	else if (dt_report_list(t, all_lines, stdout, &err) < 0)
		rc = fail(&err);
	dt_tensors_close(t);
	return rc;
}

static int cmd_verify(int n, char **argv)
{
	json_t *out = json_array();
	int status = 0, w = 0;

	for (int i = 0; i < n; i++) {
		struct dt_progress bar;
		struct dt_err err = {0};
		int rc;

		dt_progress_start(&bar, stderr, argv[i], 0, true);
		rc = dt_report_verify(argv[i], (int)workers, draw, &bar, json ? NULL : stdout, out, &err);
		dt_progress_end(&bar);
		rc = rc < 0 ? fail(&err) : rc ? DT_EXIT_NO : 0;
		/* a failure of ours says less than a broken checkpoint, so it does not hide one */
		if (rc == DT_EXIT_NO || status == 0)
			status = rc;
	}
	if (json)
		w = print_json(
			json_pack("{s:i, s:b, s:O}", "schema", 1, "ok", status == 0, "checkpoints", out));
	json_decref(out);
	return w ? w : status;
}

struct diffing {
	struct dt_progress bar; /* first: draw() takes it */
	struct dt_diff_report *report;
};

static void on_delta(void *arg, const struct dt_tensor_delta *d)
{
	dt_diff_report_add(((struct diffing *)arg)->report, d);
}

static int cmd_diff(int n, char **argv)
{
	struct diffing v = {.report = dt_diff_report_new()};
	struct dt_diff o = {.tolerance = tolerance_given ? tolerance : -1,
			    .weights_only = weights,
			    .report = on_delta,
			    .progress = draw,
			    .arg = &v};
	struct dt_tensors *a = NULL, *b = NULL;
	struct dt_err err = {0};
	int rc = v.report ? open_tensors(argv[0], &a) : fail(&err), w = 0, differ;

	if (rc == 0)
		rc = open_tensors(argv[1], &b);
	if (rc == 0) {
		dt_progress_start(&v.bar, stderr, "diff", 0, true);
		differ = dt_tensors_diff(a, b, &o, &err);
		dt_progress_end(&v.bar);
		rc = differ < 0 ? fail(&err) : differ ? DT_EXIT_NO : 0;
		if (differ >= 0 && json)
			w = print_json(dt_diff_report_json(v.report));
		else if (differ >= 0)
			dt_diff_report_print(v.report, a, b, all_lines, stdout);
	}
	dt_diff_report_free(v.report);
	dt_tensors_close(a);
	dt_tensors_close(b);
	return w ? w : rc;
}

static bool draw_unless_stopped(void *arg, uint64_t done, uint64_t total)
{
	draw(arg, done, total);
	return !stopped;
}

static int reshard_to(struct dt_ckpt *src, const struct dt_layout *l, const char *root, struct dt_err *err)
{
	struct dt_progress bar;
	int rc;

	dt_progress_start(&bar, team.rank ? NULL : stderr, "reshard", 0, true);
	if (root)
		rc = dt_ckpt_reshard(src, l, root, compress, (int)workers, team.size > 1 ? &team : NULL,
				     draw_unless_stopped, &bar, err);
	else if (team.size > 1)
		rc = dt_err_set(err, -EINVAL, "a tar stream is made by one process");
	else
		rc = dt_ckpt_reshard_tar(src, l, compress, (int)workers, STDOUT_FILENO, draw_unless_stopped,
					 &bar, err);
	dt_progress_end(&bar);
	return rc;
}

static void catch_signals(void)
{
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
}

/* A signal that stopped the work ends the program as it would have. */
static int finish(int rc, const struct dt_err *err)
{
	if (stopped) {
		signal(stopped, SIG_DFL);
		raise(stopped);
	}
	return rc < 0 ? fail(err) : rc;
}

static int team_agree(void *arg, int rc, struct dt_err *err)
{
	return dt_comm_agree(arg, rc, NULL, err);
}

static int team_gather(void *arg, const char *text, size_t n, char **ret, size_t **ret_lens,
		       struct dt_err *err)
{
	return dt_gather_bytes(arg, text, n, ret, ret_lens, 0, "piece lists", err);
}

static int cut(struct dt_ckpt *c, const struct dt_layout *l, const char *dst, struct dt_err *err)
{
	char root[PATH_MAX], made[PATH_MAX], abs_src[PATH_MAX], abs_made[PATH_MAX];
	int rc;

	catch_signals();
	if (!strcmp(dst, "-"))
		return reshard_to(c, l, NULL, err);
	rc = dt_ckpt_split_path(dst, dt_ckpt_step(c), root, made, sizeof(made), err);
	if (rc == -EEXIST && realpath(made, abs_made) && realpath(dt_ckpt_path(c), abs_src) &&
	    !strcmp(abs_made, abs_src))
		dt_err_hint(err, "it is the source itself");
	if (team.size > 1)
		rc = team_agree(team.arg, rc, err);
	if (rc == -EINVAL && err->msg[0])
		return dt_opt_usage_error(&prog, stderr, "%s", err->msg);
	if (rc == 0 && (rc = reshard_to(c, l, root, err)) == 0 && team.rank == 0)
		printf("%s\n", made);
	return rc;
}

/* The same on every process of the team. */
static int reshard(const char *src, const char *dst, const struct dt_layout *l)
{
	struct dt_err err = {0};
	struct dt_ckpt *c;
	int rc = dt_ckpt_open(src, &c, &err), all = rc;

	if (team.size > 1)
		all = team_agree(team.arg, rc, &err);
	if (rc == 0 && all == 0) {
		say_note(dt_ckpt_note(c));
		all = cut(c, l, dst, &err);
	}
	if (rc == 0)
		dt_ckpt_close(c);
	return finish(all, &err);
}

/* Several processes of mpirun recut together; of another command each would do the same. */
static int cmd_reshard(int n, char **argv)
{
	struct dt_log log = {.f = stderr, .name = prog.name, .rank = -1};
	struct dt_world_info info;
	struct dt_err err = {0};
	struct dt_comm *all = NULL;
	struct dt_world *w;
	struct dt_layout l;
	int rc;

	if (!layout_text)
		return dt_opt_usage_error(&prog, stderr, "reshard needs --layout");
	if (dt_layout_parse(layout_text, &l, &err) < 0)
		return dt_opt_usage_error(&prog, stderr, "%s", err.msg);
	if (dt_world_init(&w, 0, &log, &err) < 0)
		return fail(&err);
	dt_world_info(w, &info);
	if (dt_comm_create(&all, w, "world", 0, info.rank, &err) < 0) {
		fail(&err);
		dt_world_abort(w, DT_EXIT_FAILED);
	}
	team = (struct dt_ckpt_team){info.rank, info.size, all, team_agree, team_gather};
	rc = reshard(argv[0], argv[1], &l);
	dt_comm_free(all);
	dt_world_finalize(w);
	return rc;
}

/* The cut for one rank. */
static int cmd_merge(int n, char **argv)
{
	layout_text = "dp1";
	return cmd_reshard(n, argv);
}

/* Says what happens to the tokenizer; its hash is what the trainer compares. */
static const char *tokenizer_hash(const struct dt_source *s, char hash[32])
{
	struct dt_tokenizer *tok;
	struct dt_err err = {0};
	const char *text;
	size_t n;

	text = dt_source_tokenizer(s, &n);
	if (dt_source_note(s))
		dt_program_say(&prog, "%s", dt_source_note(s));
	else if (!text && !dt_source_images(s) && (!tokenizer || strcmp(tokenizer, "none")))
		dt_program_say(&prog, "the source has no tokenizer to take along");
	if (!text)
		return NULL;
	if (dt_tokenizer_from_text(text, n, &tok, &err) < 0) {
		dt_program_say(&prog, "the tokenizer is taken along, but dt cannot use it: %s", err.msg);
		return NULL;
	}
	snprintf(hash, 32, "%s", dt_tokenizer_hash(tok));
	dt_tokenizer_close(tok);
	return hash;
}

/* Writes s to dst; takes s over. */
static int export(struct dt_source *s, const char *dst, struct dt_err *err)
{
	char made[PATH_MAX], hash[32], word[16];
	int unpacked = 0, smaller = 0, rc;
	struct dt_progress bar;
	struct dt_export x = {
		.to = to_given ? (enum dt_source_kind)to : DT_SOURCE_AUTO,
		.format = type_given ? dt_format_parse(dt_opt_choice_name(TYPES, type, word, sizeof(word)))
				     : -1,
		.ret_unpacked = &unpacked,
		.ret_smaller = &smaller,
		.step = step_given	    ? step
			: dt_source_ckpt(s) ? dt_ckpt_step(dt_source_ckpt(s))
					    : 0,
		.compress = compress,
		.max_file_bytes = max_file,
		.progress = draw_unless_stopped,
		.arg = &bar};

	rc = dt_export_check(s, dst, &x, made, sizeof(made), err);
	if (rc == -EINVAL)
		rc = dt_opt_usage_error(&prog, stderr, "%s", err->msg);
	if (rc == 0) {
		x.tokenizer_hash = tokenizer_hash(s, hash);
		catch_signals();
		dt_progress_start(&bar, stderr, "convert", 0, true);
		rc = dt_export(s, dst, &x, err);
		dt_progress_end(&bar);
	}
	if (rc == 0 && unpacked)
		dt_program_say(&prog, "%d matrices have rows no block fits and are f16", unpacked);
	if (rc == 0 && smaller)
		dt_program_say(&prog, "%d matrices have rows no block of 256 fits and are %s", smaller,
			       x.format == DT_FMT_Q4_K ? "q5_0" : "q8_0");
	if (rc == 0)
		printf("%s\n", made);
	dt_source_close(s);
	return rc;
}

/* convert and quantize of one source, avg of several. */
static int cmd_convert(int n, char **argv)
{
	struct dt_source *v[64] = {NULL}, *s;
	struct dt_err err = {0};
	int rc = 0, k = 0;

	for (; k < n - 1 && rc == 0; k++)
		rc = dt_source_open(argv[k], from_given ? (enum dt_source_kind)from : DT_SOURCE_AUTO,
				    tokenizer, &v[k], &err);
	if (rc < 0) {
		for (k -= 2; k >= 0; k--)
			dt_source_close(v[k]);
		return fail(&err);
	}
	s = v[0];
	if (n > 2)
		rc = dt_source_average(v, n - 1, &s, &err);
	if (rc == 0)
		rc = export(s, argv[n - 1], &err);
	return finish(rc, &err);
}

static int cmd_upcycle(int n, char **argv)
{
	struct dt_source *dense, *s = NULL;
	const char *end = strrchr(argv[1], '.');
	struct dt_err err = {0};
	int rc;

	if (!experts || !top_k)
		return dt_opt_usage_error(&prog, stderr, "upcycle needs --experts and --top-k");
	if (!to_given && (!end || strcmp(end, ".gguf"))) {
		to_given = true;
		to = DT_SOURCE_DT;
	}
	rc = dt_source_open(argv[0], from_given ? (enum dt_source_kind)from : DT_SOURCE_AUTO, tokenizer,
			    &dense, &err);
	if (rc == 0)
		rc = dt_source_upcycle(dense, experts, top_k, (uint64_t)seed, &s, &err);
	if (rc == 0)
		rc = export(s, argv[1], &err);
	return finish(rc, &err);
}

/* What the rounding has cost, on a text. */
static int judge(const char *before, const char *after)
{
	struct dt_ppl_files f = {before, after, judged_on, tokenizer, window};
	struct dt_err err = {0};
	struct dt_ppl_pair p;
	double a, b;

	if (dt_ppl_compare_files(&f, &p, &err) < 0)
		return fail(&err);
	a = dt_ppl_perplexity(&p.a);
	b = dt_ppl_perplexity(&p.b);
	dt_program_say(
		&prog,
		"perplexity %.4f before, %.4f after (%+.2f%%), KL %.5f, same top-1 %.2f%%, over %lld tokens",
		a, b, 100 * (b / a - 1), p.kl, 100 * p.same_top, (long long)p.a.tokens);
	return 0;
}

static int cmd_quantize(int n, char **argv)
{
	int rc;

	if (!type_given || type < 3)
		return dt_opt_usage_error(&prog, stderr,
					  "quantize needs --type q8_0, q6_k, q5_0, q4_k, q4_1 or q4_0");
	to = DT_SOURCE_GGUF;
	to_given = true;
	rc = cmd_convert(n, argv);
	return rc == 0 && judged_on ? judge(argv[0], argv[1]) : rc;
}

/* The base and the adapter of a command; 0, or an exit status. */
static int open_adapter(char **argv, struct dt_source **base, struct dt_adapter **a, struct dt_err *err)
{
	int rc = dt_source_open(argv[0], from_given ? (enum dt_source_kind)from : DT_SOURCE_AUTO, tokenizer,
				base, err);

	if (rc < 0)
		return rc;
	rc = dt_adapter_open(argv[1], dt_source_config(*base), dt_source_params(*base), a, err);
	if (rc == 0 && !any_base && (rc = dt_adapter_check_base(*a, *base, err)) < 0)
		dt_adapter_close(*a);
	if (rc < 0)
		dt_source_close(*base);
	return rc;
}

/* Blocks round most of a small update away: how much of it, is said. */
static int warn_of_blocks(struct dt_source *s, struct dt_err *err)
{
	char word[16];
	int f = type_given ? (int)dt_format_parse(dt_opt_choice_name(TYPES, type, word, sizeof(word))) : -1;
	double lost = 0;
	int rc = 0;

	if (f < 0 || dt_format_info((enum dt_format)f)->dtype >= 0)
		return 0;
	rc = dt_adapted_loss(s, (enum dt_format)f, &lost, err);
	if (rc == 0 && lost > 0)
		dt_program_say(
			&prog,
			"in %s the error of rounding is %.2g times the adapter's update; a 16-bit base "
			"keeps it",
			dt_format_info((enum dt_format)f)->name, lost);
	return rc;
}

static int cmd_lora_merge(int n, char **argv)
{
	struct dt_source *base, *s;
	struct dt_adapter *a;
	struct dt_err err = {0};
	int rc = open_adapter(argv, &base, &a, &err);

	if (rc == 0)
		rc = dt_source_adapted(base, a, &s, &err);
	if (rc == 0 && (rc = warn_of_blocks(s, &err)) < 0)
		dt_source_close(s);
	if (rc == 0)
		rc = export(s, argv[2], &err);
	return finish(rc, &err);
}

static int cmd_lora_convert(int n, char **argv)
{
	struct dt_source *base;
	struct dt_adapter *a;
	struct dt_err err = {0};
	int rc = open_adapter(argv, &base, &a, &err);

	if (rc < 0)
		return finish(rc, &err);
	rc = dt_adapter_write(a, base, argv[2], &err);
	if (rc == 0)
		printf("%s: %d linears\n", argv[2], a->n);
	dt_adapter_close(a);
	dt_source_close(base);
	return finish(rc, &err);
}

static void print_line(void *arg, const char *text)
{
	puts(text);
}

static int cmd_prune(int n, char **argv)
{
	struct dt_err err = {0};

	if (!keep && !keep_every)
		return dt_opt_usage_error(&prog, stderr, "prune needs --keep or --keep-every");
	return dt_ckpt_prune(argv[0], -1, (int)keep, keep_every, dry_run, print_line, NULL, &err) < 0
		       ? fail(&err)
		       : 0;
}

static int cmd_repair(int n, char **argv)
{
	struct dt_err err = {0};
	int repaired = dt_ckpt_repair(argv[0], argv[1], print_line, NULL, &err);

	if (repaired == 0)
		printf("%s: nothing to repair\n", argv[0]);
	return repaired < 0 ? fail(&err) : 0;
}

static int cmd_cat(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_tensors *t;
	char full[128];
	int i, rc = open_tensors(argv[1], &t);

	if (rc)
		return rc;
	i = dt_tensors_find(t, argv[0]);
	if (i < 0 && (size_t)snprintf(full, sizeof(full), "model/%s", argv[0]) < sizeof(full))
		i = dt_tensors_find(t, full);
	if (i < 0)
		dt_err_set(&err, -ENOENT, "'%s' has no tensor '%s'", dt_tensors_path(t), argv[0]);
	rc = i < 0 || dt_tensors_print(t, i, raw, stdout, &err) < 0 ? fail(&err) : 0;
	dt_tensors_close(t);
	return rc;
}

static int cmd_stats(int n, char **argv)
{
	struct dt_err err = {0};
	struct dt_progress bar;
	struct dt_tensors *t;
	json_t *o = NULL;
	int rc = open_tensors(argv[0], &t);

	if (rc)
		return rc;
	dt_progress_start(&bar, stderr, "stats", 0, false);
	rc = dt_report_stats(t, draw, &bar, stdout, json ? &o : NULL, &err);
	dt_progress_end(&bar);
	rc = rc < 0 ? fail(&err) : json ? print_json(o) : 0;
	dt_tensors_close(t);
	return rc;
}

static const struct dt_command commands[] = {
	{"ls", "CKPT", "Show the tensors as a tree, and how they are cut", cmd_ls, 1, 1},
	{"verify", "CKPT...", "Read everything and check structure and checksums", cmd_verify, 1, -1},
	{"diff", "A B", "Compare two checkpoints or models tensor by tensor", cmd_diff, 2, 2},
	{"reshard", "SRC DST", "Write SRC again as another layout would have; DST - is a tar stream",
	 cmd_reshard, 2, 2},
	{"merge", "SRC DST", "Write SRC again with a single shard", cmd_merge, 2, 2},
	{"convert", "SRC DST", "Between checkpoints, safetensors, GGUF, llm.c and llama2.c", cmd_convert, 2,
	 2},
	{"quantize", "SRC DST", "Write a GGUF file of small blocks (--type q8_0, q4_k, ...)", cmd_quantize, 2,
	 2},
	{"upcycle", "DENSE DST", "Write a mixture of experts whose experts are copies of DENSE's MLPs",
	 cmd_upcycle, 2, 2},
	{"avg", "SRC... DST", "Write the mean of several models", cmd_convert, 3, 64},
	{"lora-merge", "BASE ADAPTER DST", "Write BASE with the adapter added to its weights", cmd_lora_merge,
	 3, 3},
	{"lora-convert", "BASE ADAPTER DST",
	 "Write the adapter as PEFT's folder, or where DST ends in .gguf as llama.cpp's file",
	 cmd_lora_convert, 3, 3},
	{"prune", "ROOT", "Remove old checkpoints by --keep and --keep-every", cmd_prune, 1, 1},
	{"repair", "CKPT REPLICA", "Replace what is damaged in CKPT by what REPLICA has", cmd_repair, 2, 2},
	{"cat", "NAME CKPT", "Print the elements of a tensor", cmd_cat, 2, 2},
	{"stats", "CKPT", "Print mean, deviation, extremes, zeros and non-numbers of each tensor", cmd_stats,
	 1, 1},
	{NULL},
};

static const char *const examples[] = {"dt-shard-ckpt verify run/latest",
				       "dt-shard-ckpt reshard --layout tp2 run serve-tp2",
				       "dt-shard-ckpt convert Qwen3-0.6B/ qwen", NULL};
static const struct dt_program prog = {
	.name = "dt-shard-ckpt",
	.summary = "Inspect, verify, compare, recut and convert checkpoints.",
	.examples = examples,
	.opts = opts,
	.commands = commands,
};

int main(int argc, char **argv)
{
	workers = sysconf(_SC_NPROCESSORS_ONLN);
	workers = workers < 1 ? 1 : workers > 8 ? 8 : workers;
	return dt_program_main(&prog, argc, argv);
}
/* SPDX-License-Identifier: Apache-2.0 */
