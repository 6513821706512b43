/* dt-shard-ckpt: looks into checkpoints, checks, compares, recuts and converts them. */
#include "base/json.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "ckpt/ckpt.h"
#include "ckpt/export.h"
#include "ckpt/look.h"
#include "comm/comm.h"
#include "data/tokenizer.h"
#include "plan/layout.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool json, all_lines, raw, compress, dry_run;
static double tolerance;
static bool tolerance_given, step_given, from_given, to_given, type_given;
static int64_t workers, keep, keep_every, step;
static uint64_t max_file;
static const char *layout_text, *tokenizer;
static int from, to, type;

#define TYPES "f32|f16|bf16|q8_0|q4_0"

static const struct dt_opt opts[] = {
	{"json", 0, DT_OPT_FLAG, &json, .help = "print one JSON object", .commands = "ls,verify,diff,stats"},
	{"all", 'a', DT_OPT_FLAG, &all_lines, .help = "a line for every tensor: fold no layers",
	 .commands = "ls"},
	{"workers", 'j', DT_OPT_INT, &workers, "N", "threads", "verify,reshard,merge", 1, 64,
	 .def_text = "one a processor, at most 8"},
	{"tolerance", 't', DT_OPT_REAL, &tolerance, "X",
	 "call tensors equal up to X times the largest magnitude in A", "diff", 0, 1e30, &tolerance_given,
	 .def_text = "bit by bit"},
	{"layout", 'l', DT_OPT_STR, &layout_text, "LAYOUT",
	 "the layout to cut for, as dp2.tp4.pp2.z1 (dt-layout(7))", "reshard"},
	{"compress", 0, DT_OPT_FLAG, &compress, .help = "shuffle and deflate the pieces",
	 .commands = "reshard,merge,convert,avg"},
	{"from", 0, DT_OPT_CHOICE, &from, DT_SOURCE_KINDS, "what SRC is", "convert,quantize,avg",
	 .given = &from_given, .def_text = "what is there"},
	{"to", 0, DT_OPT_CHOICE, &to, DT_SOURCE_KINDS, "what DST becomes", "convert,avg", .given = &to_given,
	 .def_text = "gguf by its ending; else dt, when SRC is something else"},
	{"type", 0, DT_OPT_CHOICE, &type, TYPES, "type of the weights", "convert,quantize,avg",
	 .given = &type_given, .def_text = "as they are"},
	{"tokenizer", 0, DT_OPT_STR, &tokenizer, "FILE",
	 "tokenizer.json, folder, GGUF or llama2.c tokenizer to take along instead; none: leave it out",
	 "convert,quantize,avg", .complete = DT_COMPLETE_TOKENIZER},
	{"max-file-size", 0, DT_OPT_SIZE, &max_file, "SIZE",
	 "begin another safetensors file past this; 0: never", "convert,avg", .def = "5GB"},
	{"step", 0, DT_OPT_INT, &step, "N", "step of the checkpoint that is made", "convert,avg",
	 .given = &step_given, .def_text = "the source's, or 0"},
	{"keep", 0, DT_OPT_INT, &keep, "N", "keep the newest N", "prune", 1, 1 << 30},
	{"keep-every", 0, DT_OPT_INT, &keep_every, "STEPS", "also keep steps that are multiples of this",
	 "prune", 1, 1e15},
	{"dry-run", 'n', DT_OPT_FLAG, &dry_run, .help = "only say what would go", .commands = "prune"},
	{"raw", 0, DT_OPT_FLAG, &raw, .help = "write the elements as little-endian bytes", .commands = "cat"},
	DT_OPT_END,
};
static const struct dt_command commands[] = {
	{"ls", "CKPT", "Show the tensors as a tree, and how they are cut"},
	{"verify", "CKPT...", "Read everything and check structure and checksums"},
	{"diff", "A B", "Compare two checkpoints tensor by tensor"},
	{"reshard", "SRC DST", "Write SRC again as another layout would have; DST - is a tar stream"},
	{"merge", "SRC DST", "Write SRC again with a single shard"},
	{"convert", "SRC DST", "Between checkpoints, safetensors, GGUF, llm.c and llama2.c"},
	{"quantize", "SRC DST", "Write a GGUF file of small blocks (--type q8_0 or q4_0)"},
	{"avg", "SRC... DST", "Write the mean of several models"},
	{"lora-merge", "BASE ADAPTER DST", "Reserved: adapters come with fine-tuning"},
	{"prune", "ROOT", "Remove old checkpoints by --keep and --keep-every"},
	{"repair", "CKPT REPLICA", "Replace what is damaged in CKPT by what REPLICA has"},
	{"cat", "NAME CKPT", "Print the elements of a tensor"},
	{"stats", "CKPT", "Print mean, deviation, extremes, zeros and non-numbers of each tensor"},
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
static struct dt_log logger = {.f = NULL, .name = "dt-shard-ckpt", .rank = -1};
static struct dt_ckpt_team team = {.size = 1}; /* reshard under mpirun */
static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

/* A damaged checkpoint is an answer (3), not a failure of ours. */
static int fail(const struct dt_err *err)
{
	struct dt_log log = logger;

	log.f = stderr;
	if (err->code != -EPIPE && err->msg[0]) /* of a team, one speaks */
		dt_log_err(&log, err);
	return err->code == -EBADMSG ? DT_EXIT_NO : DT_EXIT_FAILED;
}

static int open_ckpt(const char *path, struct dt_ckpt **ret)
{
	struct dt_err err = {0};

	if (dt_ckpt_open(path, ret, &err) < 0)
		return fail(&err);
	if (dt_ckpt_note(*ret) && team.rank == 0)
		fprintf(stderr, "%s: %s\n", prog.name, dt_ckpt_note(*ret));
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

static const char *join(char *buf, size_t n, int count, const int64_t *v)
{
	size_t k = 0;

	buf[0] = '\0';
	for (int i = 0; i < count && k < n; i++)
		k += (size_t)snprintf(buf + k, n - k, "%s%" PRId64, i ? "x" : "", v[i]);
	return buf;
}

struct listing {
	struct dt_ckpt *c;
	struct dt_table *tab;
};

static void on_line(void *arg, const struct dt_ckpt_line *l)
{
	struct listing *v = arg;
	char buf[128], times[32] = "";

	if (l->copies > 1)
		snprintf(times, sizeof(times), " x %" PRId64, l->copies);
	dt_table_cell(v->tab, "%*s%s%s", 2 * l->depth, "", l->label, times);
	if (l->tensor >= 0) {
		struct dt_ckpt_tensor t;
		int64_t grid[DT_CKPT_MAX_DIM];
		bool regular = dt_ckpt_grid(v->c, l->tensor, grid);

		dt_ckpt_tensor(v->c, l->tensor, &t);
		dt_table_cell(v->tab, "%s", dt_dtype_name(t.dtype));
		dt_table_cell(v->tab, "%s", join(buf, sizeof(buf), t.ndim, t.shape));
		dt_table_cell(v->tab, "%s", regular ? join(buf, sizeof(buf), t.ndim, grid) : "ranges");
	} else {
		for (int i = 0; i < 3; i++)
			dt_table_cell(v->tab, "%s", "");
	}
	dt_table_cell(v->tab, "%" PRId64, l->npieces);
	dt_table_cell(v->tab, "%s", dt_format_size(l->bytes, buf, sizeof(buf)));
}

static int cmd_ls(char **argv)
{
	struct listing v = {.tab = dt_table_new("tensor|dtype|shape|cut|>pieces|>size")};
	struct dt_err err = {0};
	const char *lay;
	uint64_t total = 0;
	char size[32];
	int rc = open_ckpt(argv[0], &v.c);

	if (rc) {
		dt_table_free(v.tab);
		return rc;
	}
	lay = json_string_value(json_object_get(dt_ckpt_meta(v.c), "layout"));
	for (int i = 0; i < dt_ckpt_ntensors(v.c); i++) {
		struct dt_ckpt_tensor t;

		dt_ckpt_tensor(v.c, i, &t);
		total += t.bytes;
	}
	if (json) {
		rc = print_json(json_pack("{s:i, s:s, s:I, s:s*, s:I, s:o}", "schema", 1, "path",
					  dt_ckpt_path(v.c), "step", (json_int_t)dt_ckpt_step(v.c), "layout",
					  lay, "total_bytes", (json_int_t)total, "tensors",
					  dt_ckpt_list_json(v.c)));
	} else if (dt_ckpt_tree(v.c, all_lines, on_line, &v, &err) < 0) {
		rc = fail(&err);
	} else {
		dt_table_print(v.tab, stdout);
		printf("\n%s: step %" PRId64 ", layout %s, %d tensors, %s\n", dt_ckpt_path(v.c),
		       dt_ckpt_step(v.c), lay ? lay : "unknown", dt_ckpt_ntensors(v.c),
		       dt_format_size(total, size, sizeof(size)));
	}
	dt_ckpt_close(v.c);
	dt_table_free(v.tab);
	return rc;
}

struct verifying {
	struct dt_progress bar; /* first: draw() takes it */
	json_t *findings;
	uint64_t bytes;
};

static void on_finding(void *arg, const char *text)
{
	struct verifying *v = arg;

	json_array_append_new(v->findings, json_string(text));
}

static void on_verified(void *arg, uint64_t done, uint64_t total)
{
	struct verifying *v = arg;

	v->bytes = done;
	draw(&v->bar, done, total);
}

/* Status of one checkpoint; out gets its JSON. */
static int verify_one(const char *path, json_t *out)
{
	struct verifying v = {.findings = json_array()};
	struct dt_err err = {0};
	char size[32];
	int n, status = 0;
	size_t i;
	json_t *f;

	dt_progress_start(&v.bar, stderr, path, 0, true);
	n = dt_ckpt_verify(path, (int)workers, on_finding, &v, on_verified, &err);
	dt_progress_end(&v.bar);
	if (n == -EBADMSG)
		json_array_append_new(v.findings, json_string(err.msg));
	else if (n < 0)
		status = fail(&err);
	if (status == 0 && json_array_size(v.findings))
		status = DT_EXIT_NO;
	if (!json && n != 0 && status == DT_EXIT_NO)
		json_array_foreach(v.findings, i, f) printf("%s: broken: %s\n", path, json_string_value(f));
	if (!json && n == 0)
		printf("%s: ok, %s\n", path, dt_format_size(v.bytes, size, sizeof(size)));
	if (status != DT_EXIT_FAILED)
		json_array_append_new(out, json_pack("{s:s, s:b, s:I, s:O}", "path", path, "ok", n == 0,
						     "bytes", (json_int_t)v.bytes, "findings", v.findings));
	json_decref(v.findings);
	return status;
}

static int cmd_verify(char **argv, int n)
{
	json_t *out = json_array();
	int status = 0, rc;

	for (int i = 0; i < n; i++) {
		rc = verify_one(argv[i], out);
		/* a failure of ours says less than a broken checkpoint, so it does not hide one */
		if (rc == DT_EXIT_NO || status == 0)
			status = rc;
	}
	if (json) {
		rc = print_json(
			json_pack("{s:i, s:b, s:O}", "schema", 1, "ok", status == 0, "checkpoints", out));
		status = rc ? rc : status;
	}
	json_decref(out);
	return status;
}

struct diffing {
	struct dt_progress bar; /* first: draw() takes it */
	struct dt_table *tab;
	json_t *list;
	int n;
};

static json_t *or_null(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static void on_delta(void *arg, const struct dt_ckpt_delta *d)
{
	struct diffing *v = arg;

	v->n++;
	json_array_append_new(v->list, json_pack("{s:s, s:b, s:s*, s:I, s:o, s:o}", "name", d->name, "equal",
						 !d->differs, "why", d->why, "elements_differ",
						 (json_int_t)d->n_differ, "max_abs", or_null(d->max_abs),
						 "max_rel", or_null(d->max_rel)));
	if (!d->differs)
		return;
	dt_table_cell(v->tab, "%s", d->name);
	if (d->why) {
		dt_table_cell(v->tab, "%s", d->why);
		dt_table_end_row(v->tab);
		return;
	}
	dt_table_cell(v->tab, "values");
	dt_table_cell(v->tab, "%" PRIu64, d->n_differ);
	dt_table_cell(v->tab, "%.3e", d->max_abs);
	dt_table_cell(v->tab, "%.3e", d->max_rel);
}

static int cmd_diff(char **argv)
{
	struct diffing v = {.tab = dt_table_new("tensor|differs in|>elements|>max abs|>max rel"),
			    .list = json_array()};
	struct dt_ckpt *a = NULL, *b = NULL;
	struct dt_err err = {0};
	int rc = open_ckpt(argv[0], &a), n = 0;

	if (rc == 0)
		rc = open_ckpt(argv[1], &b);
	if (rc == 0) {
		dt_progress_start(&v.bar, stderr, "diff", 0, true);
		n = dt_ckpt_diff(a, b, tolerance_given ? tolerance : -1, on_delta, &v, draw, &err);
		dt_progress_end(&v.bar);
		rc = n < 0 ? fail(&err) : n ? DT_EXIT_NO : 0;
	}
	if (n >= 0 && a && b && json) {
		int w = print_json(json_pack("{s:i, s:b, s:i, s:i, s:O}", "schema", 1, "equal", n == 0,
					     "tensors_total", v.n, "tensors_differ", n, "tensors", v.list));

		rc = w ? w : rc;
	} else if (n >= 0 && a && b) {
		if (n)
			dt_table_print(v.tab, stdout);
		printf(n ? "%d of %d tensors differ\n" : "equal%.0d: %d tensors\n", n, v.n);
	}
	dt_table_free(v.tab);
	json_decref(v.list);
	dt_ckpt_close(a);
	dt_ckpt_close(b);
	return rc;
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
	rc = dt_ckpt_reshard(src, l, root, compress, (int)workers, team.size > 1 ? &team : NULL,
			     draw_unless_stopped, &bar, err);
	dt_progress_end(&bar);
	return rc;
}

/* Shards need random access while they are made, so the stream is spooled in a folder of its own first. */
static int reshard_tar(struct dt_ckpt *src, const struct dt_layout *l, struct dt_err *err)
{
	const char *base = getenv("TMPDIR");
	char spool[PATH_MAX];
	struct dt_ckpt *c;
	int rc;

	if (isatty(STDOUT_FILENO))
		return dt_err_set(err, -EINVAL, "a tar stream does not belong on a terminal");
	snprintf(spool, sizeof(spool), "%s/dt-reshard-XXXXXX", base && *base ? base : "/var/tmp");
	if (!mkdtemp(spool))
		return dt_err_sys(err, -errno, "cannot create '%s'", spool);
	signal(SIGPIPE, SIG_IGN);
	rc = reshard_to(src, l, spool, err);
	if (rc == 0)
		rc = dt_ckpt_open(spool, &c, err);
	if (rc == 0) {
		rc = dt_ckpt_tar(c, STDOUT_FILENO, err);
		dt_ckpt_close(c);
	}
	dt_remove_tree(spool, NULL);
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

/* The lowest rank that failed is the one to speak; all end with its status. */
static int team_agree(void *arg, int rc, struct dt_err *err)
{
	int32_t guilty = rc < 0 ? team.rank : team.size, code = rc;
	int now = dt_all_reduce(arg, &guilty, NULL, 1, DT_I32, DT_MIN, "verdict", err);

	if (now < 0 || guilty == team.size)
		return now;
	now = dt_broadcast(arg, &code, 1, DT_I32, guilty, "failure", err);
	if (now < 0 || guilty == team.rank)
		return now < 0 ? now : rc;
	err->code = code;
	err->msg[0] = '\0';
	return code;
}

static int team_gather(void *arg, const char *text, size_t n, char **ret, size_t **ret_lens,
		       struct dt_err *err)
{
	return dt_gather_bytes(arg, text, n, ret, ret_lens, 0, "piece lists", err);
}

/* merge is the cut for one rank. */
static int cmd_reshard(char **argv)
{
	char root[PATH_MAX], made[PATH_MAX], abs_src[PATH_MAX], abs_made[PATH_MAX];
	struct dt_layout l;
	struct dt_err err = {0};
	struct dt_ckpt *c;
	int rc;

	if (!layout_text)
		return team.rank ? DT_EXIT_USAGE
				 : dt_opt_usage_error(&prog, stderr, "reshard needs --layout");
	if (dt_layout_parse(layout_text, &l, &err) < 0)
		return team.rank ? DT_EXIT_USAGE : dt_opt_usage_error(&prog, stderr, "%s", err.msg);
	rc = dt_ckpt_open(argv[0], &c, &err);
	if (team.size > 1) {
		int all = team_agree(team.arg, rc, &err);

		if (rc == 0 && all < 0)
			dt_ckpt_close(c);
		rc = all;
	}
	if (rc < 0)
		return fail(&err);
	if (dt_ckpt_note(c) && team.rank == 0)
		fprintf(stderr, "%s: %s\n", prog.name, dt_ckpt_note(c));
	catch_signals();
	if (!strcmp(argv[1], "-")) {
		rc = team.size > 1 ? dt_err_set(&err, -EINVAL, "a tar stream is made by one process")
				   : reshard_tar(c, &l, &err);
	} else {
		rc = dt_ckpt_split_path(argv[1], dt_ckpt_step(c), root, made, sizeof(made), &err);
		if (rc == -EEXIST && realpath(made, abs_made) && realpath(dt_ckpt_path(c), abs_src) &&
		    !strcmp(abs_made, abs_src))
			dt_err_hint(&err, "it is the source itself");
		if (team.size > 1)
			rc = team_agree(team.arg, rc, &err);
		if (rc == -EINVAL && err.msg[0])
			rc = dt_opt_usage_error(&prog, stderr, "%s", err.msg);
		else if (rc == 0 && (rc = reshard_to(c, &l, root, &err)) == 0 && team.rank == 0)
			printf("%s\n", made);
	}
	dt_ckpt_close(c);
	return finish(rc, &err);
}

/* Several processes of mpirun recut together; of another command each would do the same. */
static int reshard_together(char **argv)
{
	struct dt_world_info info;
	struct dt_err err = {0};
	struct dt_comm *all = NULL;
	struct dt_world *w;
	int rc;

	logger.f = stderr;
	if (dt_world_init(&w, 0, &logger, &err) < 0)
		return fail(&err);
	dt_world_info(w, &info);
	if (dt_comm_create(&all, w, "world", 0, info.rank, &err) < 0) {
		fail(&err);
		dt_world_abort(w, DT_EXIT_FAILED);
	}
	team = (struct dt_ckpt_team){info.rank, info.size, all, team_agree, team_gather};
	rc = cmd_reshard(argv);
	dt_comm_free(all);
	dt_world_finalize(w);
	return rc;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n > k && !strcmp(s + n - k, with);
}

/* What DST is to be, DT_SOURCE_AUTO: cannot be told. */
static enum dt_source_kind target(const struct dt_source *s, const char *dst)
{
	if (to_given && to != DT_SOURCE_AUTO)
		return (enum dt_source_kind)to;
	if (ends(dst, ".gguf"))
		return DT_SOURCE_GGUF;
	return dt_source_kind(s) == DT_SOURCE_DT ? DT_SOURCE_AUTO : DT_SOURCE_DT;
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
		fprintf(stderr, "%s: %s\n", prog.name, dt_source_note(s));
	else if (!text && (!tokenizer || strcmp(tokenizer, "none")))
		fprintf(stderr, "%s: the source has no tokenizer to take along\n", prog.name);
	if (!text)
		return NULL;
	if (dt_tokenizer_from_text(text, n, &tok, &err) < 0) {
		fprintf(stderr, "%s: the tokenizer is taken along, but dt cannot use it: %s\n", prog.name,
			err.msg);
		return NULL;
	}
	snprintf(hash, 32, "%s", dt_tokenizer_hash(tok));
	dt_tokenizer_close(tok);
	return hash;
}

/* Writes s to dst; takes s over. */
static int export(struct dt_source *s, const char *dst, struct dt_err *err)
{
	char root[PATH_MAX], made[PATH_MAX], hash[32], word[16];
	int unpacked = 0, rc = 0;
	struct dt_progress bar;
	struct dt_export x = {
		.to = target(s, dst),
		.format = type_given ? dt_format_parse(dt_opt_choice_name(TYPES, type, word, sizeof(word)))
				     : -1,
		.ret_unpacked = &unpacked,
		.step = step_given	    ? step
			: dt_source_ckpt(s) ? dt_ckpt_step(dt_source_ckpt(s))
					    : 0,
		.compress = compress,
		.max_file_bytes = max_file,
		.progress = draw_unless_stopped,
		.arg = &bar};

	if (x.to == DT_SOURCE_AUTO)
		rc = dt_opt_usage_error(&prog, stderr, "what '%s' is to become cannot be told: give --to",
					dst);
	else if (x.format >= 0 && x.to != DT_SOURCE_GGUF &&
		 dt_format_info((enum dt_format)x.format)->dtype < 0)
		rc = dt_opt_usage_error(&prog, stderr, "weights of type %s are for GGUF only",
					dt_format_info((enum dt_format)x.format)->name);
	else if (x.to == DT_SOURCE_DT)
		rc = dt_ckpt_split_path(dst, x.step, root, made, sizeof(made), err);
	if (rc == -EINVAL)
		rc = dt_opt_usage_error(&prog, stderr, "%s", err->msg);
	if (rc == 0) {
		x.tokenizer_hash = tokenizer_hash(s, hash);
		catch_signals();
		dt_progress_start(&bar, stderr, "convert", 0, true);
		rc = dt_export(s, x.to == DT_SOURCE_DT ? root : dst, &x, err);
		dt_progress_end(&bar);
	}
	if (rc == 0 && unpacked)
		fprintf(stderr, "%s: %d matrices have rows no block fits and are f16\n", prog.name, unpacked);
	if (rc == 0)
		printf("%s\n", x.to == DT_SOURCE_DT ? made : dst);
	dt_source_close(s);
	return rc;
}

static int cmd_convert(char **argv, int n, bool blocks)
{
	struct dt_source *v[64] = {NULL}, *s;
	struct dt_err err = {0};
	int rc = 0, k = 0;

	if (blocks && (!type_given || type < 3))
		return dt_opt_usage_error(&prog, stderr, "quantize needs --type q8_0 or q4_0");
	if (blocks) {
		to = DT_SOURCE_GGUF;
		to_given = true;
	}
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

static void print_line(void *arg, const char *text)
{
	puts(text);
}

static int cmd_prune(char **argv)
{
	struct dt_err err = {0};

	if (!keep && !keep_every)
		return dt_opt_usage_error(&prog, stderr, "prune needs --keep or --keep-every");
	return dt_ckpt_prune(argv[0], -1, (int)keep, keep_every, dry_run, print_line, NULL, &err) < 0
		       ? fail(&err)
		       : 0;
}

static int cmd_repair(char **argv)
{
	struct dt_err err = {0};
	int n = dt_ckpt_repair(argv[0], argv[1], print_line, NULL, &err);

	if (n == 0)
		printf("%s: nothing to repair\n", argv[0]);
	return n < 0 ? fail(&err) : 0;
}

static int cmd_cat(char **argv)
{
	struct dt_err err = {0};
	struct dt_ckpt *c;
	char full[128];
	int i, rc = open_ckpt(argv[1], &c);

	if (rc)
		return rc;
	i = dt_ckpt_find(c, argv[0]);
	if (i < 0 && (size_t)snprintf(full, sizeof(full), "model/%s", argv[0]) < sizeof(full))
		i = dt_ckpt_find(c, full);
	if (i < 0)
		dt_err_set(&err, -ENOENT, "'%s' has no tensor '%s'", dt_ckpt_path(c), argv[0]);
	rc = i < 0 || dt_ckpt_print(c, i, raw, stdout, &err) < 0 ? fail(&err) : 0;
	dt_ckpt_close(c);
	return rc;
}

static void stats_row(struct dt_table *tab, json_t *list, const char *name, const struct dt_ckpt_stats *s)
{
	double v[] = {s->mean, s->std, s->min, s->max};
	uint64_t n[] = {s->zeros, s->nans, s->infs};

	dt_table_cell(tab, "%s", name);
	for (int i = 0; i < 4; i++)
		dt_table_cell(tab, "%.4g", v[i]);
	for (int i = 0; i < 3; i++)
		dt_table_cell(tab, "%" PRIu64, n[i]);
	json_array_append_new(list,
			      json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "name", name,
					"elements", (json_int_t)s->n, "mean", s->mean, "std", s->std, "rms",
					s->rms, "min", s->min, "max", s->max, "zeros", (json_int_t)s->zeros,
					"nans", (json_int_t)s->nans, "infs", (json_int_t)s->infs));
}

static int cmd_stats(char **argv)
{
	struct dt_table *tab = dt_table_new("tensor|>mean|>std|>min|>max|>zeros|>nan|>inf");
	json_t *list = json_array();
	struct dt_err err = {0};
	struct dt_progress bar;
	struct dt_ckpt *c;
	int rc = open_ckpt(argv[0], &c);

	if (rc == 0) {
		dt_ckpt_read_once(c);
		dt_progress_start(&bar, stderr, "stats", (uint64_t)dt_ckpt_ntensors(c), false);
		for (int i = 0; rc == 0 && i < dt_ckpt_ntensors(c); i++) {
			struct dt_ckpt_tensor t;
			struct dt_ckpt_stats s;

			dt_ckpt_tensor(c, i, &t);
			if (dt_ckpt_tensor_stats(c, i, &s, &err) < 0)
				rc = fail(&err);
			else
				stats_row(tab, list, t.name, &s);
			dt_progress_set(&bar, (uint64_t)i + 1);
		}
		dt_progress_end(&bar);
		if (rc == 0 && json)
			rc = print_json(json_pack("{s:i, s:s, s:O}", "schema", 1, "path", dt_ckpt_path(c),
						  "tensors", list));
		else if (rc == 0)
			dt_table_print(tab, stdout);
		dt_ckpt_close(c);
	}
	dt_table_free(tab);
	json_decref(list);
	return rc;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status = 0, n = dt_opt_main(&prog, argc, argv, stdout, stderr, &status) - 1;
	const char *cmd = argv[1];
	char **args = argv + 2;

	if (n < 0)
		return status;
	if (!workers) {
		workers = sysconf(_SC_NPROCESSORS_ONLN);
		workers = workers < 1 ? 1 : workers > 8 ? 8 : workers;
	}
	if (!strcmp(cmd, "merge"))
		layout_text = "dp1";
	if (!strcmp(cmd, "verify") && n >= 1)
		status = cmd_verify(args, n);
	else if (!strcmp(cmd, "ls") && n == 1)
		status = cmd_ls(args);
	else if (!strcmp(cmd, "diff") && n == 2)
		status = cmd_diff(args);
	else if ((!strcmp(cmd, "reshard") || !strcmp(cmd, "merge")) && n == 2)
		status = reshard_together(args);
	else if ((!strcmp(cmd, "convert") || !strcmp(cmd, "quantize")) && n == 2)
		status = cmd_convert(args, n, !strcmp(cmd, "quantize"));
	else if (!strcmp(cmd, "avg") && n >= 3 && n <= 64)
		status = cmd_convert(args, n, false);
	else if (!strcmp(cmd, "prune") && n == 1)
		status = cmd_prune(args);
	else if (!strcmp(cmd, "repair") && n == 2)
		status = cmd_repair(args);
	else if (!strcmp(cmd, "cat") && n == 2)
		status = cmd_cat(args);
	else if (!strcmp(cmd, "stats") && n == 1)
		status = cmd_stats(args);
	else if (!strcmp(cmd, "lora-merge"))
		status = dt_opt_usage_error(&prog, stderr,
					    "lora-merge is reserved: no dt writes adapters yet");
	else
		status = dt_opt_usage_error(&prog, stderr, "%s takes other operands than these %d", cmd, n);
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED) /* else it has been said */
		status = fail(&err);
	return status;
}
