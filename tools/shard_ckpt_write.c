#include "base/log.h"
#include "convert/convert.h"
#include "convert/onnx.h"
#include "eval/ppl.h"
#include "tools/shard_ckpt.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static int rank; /* reshard under mpirun */
static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

static bool draw_unless_stopped(void *arg, uint64_t done, uint64_t total)
{
	shard_draw(arg, done, total);
	return !stopped;
}

/* Before writing output: a signal will stop the work and remove the output. */
static void begin(struct dt_convert_job *job, const char *label)
{
	static const int which[] = {SIGINT, SIGTERM, SIGHUP};

	*job = (struct dt_convert_job){.note = shard_say, .progress = draw_unless_stopped};
	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++)
		if (signal(which[i], on_signal) == SIG_IGN) /* under nohup(1), or in the background */
			signal(which[i], SIG_IGN);
	dt_progress_start(&shard_bar, rank ? NULL : stderr, label, 0, true);
}

/* Prints what was written. Returns the exit status; re-raises a signal that stopped the work. */
static int end(int rc, const struct dt_convert_job *job, const struct dt_err *err)
{
	dt_progress_end(&shard_bar);
	if (stopped) {
		signal(stopped, SIG_DFL);
		raise(stopped);
	}
	if (rc < 0)
		return job->misused ? dt_opt_usage_of(&shard_program, stderr, NULL, err) : shard_fail(err);
	if (rank == 0 && job->made[0])
		printf("%s\n", job->made);
	return 0;
}

static int recut(const char *src, const char *dst, const char *layout)
{
	struct dt_recut r = {.compress = shard_options.compress,
			     .workers = (int)shard_options.workers,
			     .fd = STDOUT_FILENO};
	struct dt_log log = {.f = stderr, .name = shard_program.name, .rank = -1};
	struct dt_convert_job job;
	struct dt_world_info info;
	struct dt_err err = {0};
	struct dt_comm *all = NULL;
	struct dt_world *w;
	int rc;

	if (dt_layout_parse(layout, &r.layout, &err) < 0)
		return dt_opt_usage_of(&shard_program, stderr, NULL, &err);
	if (dt_world_init(&w, 0, &log, &err) < 0)
		return shard_fail(&err);
	dt_world_info(w, &info);
	if (dt_comm_create(&all, w, "world", 0, info.rank, &err) < 0) {
		shard_fail(&err);
		dt_world_abort(w, DT_EXIT_FAILED);
	}
	rank = info.rank;
	begin(&job, "reshard");
	rc = end(dt_recut(all, info.rank, info.size, src, dst, &r, &job, &err), &job, &err);
	dt_comm_free(all);
	dt_world_finalize(w);
	return rc;
}

/* reshard splits the work over processes of mpirun; with other commands each process would repeat it. */
int shard_reshard(int n, char **argv)
{
	if (!shard_options.layout)
		return dt_opt_usage_error(&shard_program, stderr, "reshard needs --layout");
	return recut(argv[0], argv[1], shard_options.layout);
}

/* Reshards for a single rank. */
int shard_merge(int n, char **argv)
{
	return recut(argv[0], argv[1], "dp1");
}

/* The conversion that the options ask for. */
static struct dt_convert conversion(void)
{
	struct dt_export x = {.to = DT_SOURCE_AUTO};
	char word[16];
	const char *type = dt_opt_choice_name(SHARD_CKPT_TYPES, shard_options.type, word, sizeof(word));
	const enum dt_format_mix mix =
		shard_options.type_given ? dt_format_mix_parse(type) : DT_FORMAT_MIX_NONE;

	if (shard_options.to_given)
		dt_export_to(shard_options.to, &x);
	return (struct dt_convert){
		.from = shard_options.from_given ? (enum dt_source_kind)shard_options.from : DT_SOURCE_AUTO,
		.to = x.to,
		.packing = x.packing,
		.tokenizer = shard_options.tokenizer,
		.format = mix			     ? (int)dt_format_mix_base(mix)
			  : shard_options.type_given ? dt_format_parse(type)
						     : -1,
		.mix = mix,
		.step = shard_options.step_given ? shard_options.step : -1,
		.compress = shard_options.compress,
		.max_file_bytes = shard_options.max_file,
		.any_base = shard_options.any_base,
		.change = shard_options.calibrated_on ? dt_round_source : NULL,
		.change_arg = &shard_options.rounding,
	};
}

/* For commands that change the model: the output format is dt unless dst says otherwise. */
static struct dt_convert conversion_to(const char *dst)
{
	struct dt_convert c = conversion();
	const char *ending = strrchr(dst, '.');

	if (!shard_options.to_given && (!ending || strcmp(ending, ".gguf")))
		c.to = DT_SOURCE_DT;
	return c;
}

/* Checks that the format of dst reads the options. Returns 0 or an exit status. */
static int check_target(const struct dt_convert *c, const char *dst)
{
	const char *ending = strrchr(dst, '.');
	const enum dt_source_kind to = c->to != DT_SOURCE_AUTO		    ? c->to
				       : ending && !strcmp(ending, ".gguf") ? DT_SOURCE_GGUF
									    : DT_SOURCE_DT;

	if (to != DT_SOURCE_DT && (shard_options.compress || shard_options.step_given))
		return dt_opt_usage_error(&shard_program, stderr, "--%s has no effect: it is for --to dt",
					  shard_options.compress ? "compress" : "step");
	if (to != DT_SOURCE_SAFETENSORS && shard_options.max_file_given)
		return dt_opt_usage_error(
			&shard_program, stderr,
			"--max-file-size has no effect: it is for safetensors, gptq and awq");
	return 0;
}

/* convert has one source, avg several. */
int shard_convert(int n, char **argv)
{
	const struct dt_convert c = n > 2 ? conversion_to(argv[n - 1]) : conversion();
	int status = check_target(&c, argv[n - 1]);
	struct dt_convert_job job;
	struct dt_err err = {0};

	if (status)
		return status;
	begin(&job, "convert");
	return end(dt_convert((const char *const *)argv, n - 1, argv[n - 1], &c, &job, &err), &job, &err);
}

int shard_upcycle(int n, char **argv)
{
	const struct dt_convert c = conversion_to(argv[1]);
	struct dt_convert_job job;
	struct dt_err err = {0};
	int rc;

	if (!shard_options.experts || !shard_options.top_k)
		return dt_opt_usage_error(&shard_program, stderr, "upcycle needs --experts and --top-k");
	if ((rc = check_target(&c, argv[1])))
		return rc;
	begin(&job, "convert");
	rc = dt_convert_upcycle(argv[0], shard_options.experts, shard_options.top_k,
				(uint64_t)shard_options.seed, argv[1], &c, &job, &err);
	return end(rc, &job, &err);
}

int shard_resize_vocab(int n, char **argv)
{
	const struct dt_convert c = conversion_to(argv[1]);
	int status = check_target(&c, argv[1]);
	struct dt_convert_job job;
	struct dt_err err = {0};

	if (!shard_options.vocab)
		return dt_opt_usage_error(&shard_program, stderr, "resize-vocab needs --vocab");
	if (status)
		return status;
	begin(&job, "convert");
	return end(dt_convert_vocab(argv[0], shard_options.vocab, argv[1], &c, &job, &err), &job, &err);
}

/* Perplexity on a text before and after rounding. */
static int judge(const struct dt_ppl_files *f)
{
	struct dt_err err = {0};
	struct dt_ppl_pair p;
	double a, b;

	if (dt_ppl_compare_files(f, &p, &err) < 0)
		return shard_fail(&err);
	a = dt_ppl_perplexity(&p.a);
	b = dt_ppl_perplexity(&p.b);
	dt_program_say(
		&shard_program,
		"perplexity %.4f before, %.4f after (%+.2f%%), KL %.5f, same top-1 %.2f%%, over %lld tokens",
		a, b, 100 * (b / a - 1), p.kl, 100 * p.same_top, (long long)p.a.tokens);
	return 0;
}

/* Options for the calibration text, common to rounding and pruning. */
static void ask_text(const char *dst)
{
	shard_options.rounding.method = (enum dt_rounding_method)shard_options.method;
	shard_options.rounding.text = shard_options.calibrated_on;
	shard_options.rounding.tokenizer = shard_options.tokenizer;
	shard_options.rounding.threads = shard_options.threads;
	shard_options.rounding.near = dst;
	shard_options.rounding.progress = draw_unless_stopped;
}

/* Options for rounding. Returns an exit status if they do not fit together. */
static int ask_rounding(const char *dst)
{
	if (!shard_options.type_given || shard_options.type < 3)
		return dt_opt_usage_error(&shard_program, stderr, "quantize needs --type, one of %s",
					  &(DT_BLOCK_CHOICES DT_FORMAT_MIX_CHOICES)[1]);
	if (dt_rounding_prunes((enum dt_rounding_method)shard_options.method))
		return dt_opt_usage_error(&shard_program, stderr, "--method %s belongs to sparsify",
					  shard_options.method == DT_ROUND_WANDA ? "wanda" : "magnitude");
	if (shard_options.calibrated_on && conversion().mix)
		return dt_opt_usage_error(&shard_program, stderr,
					  "--calibrate rounds all matrices to one format, not to a mix");
	if (!shard_options.calibrated_on && shard_options.method_given)
		return dt_opt_usage_error(&shard_program, stderr, "--method needs --calibrate");
	if ((shard_options.rounding.act_order || shard_options.damping_given) &&
	    shard_options.method != DT_ROUND_GPTQ)
		return dt_opt_usage_error(&shard_program, stderr, "--%s needs --method gptq",
					  shard_options.damping_given ? "damping" : "act-order");
	ask_text(dst);
	return 0;
}

/* Likewise for pruning. */
static int ask_pruning(const char *dst)
{
	static const int patterns[][2] = {{2, 4}, {4, 8}};

	if (!shard_options.sparsity_given && !shard_options.pattern_given)
		return dt_opt_usage_error(&shard_program, stderr, "sparsify needs --sparsity or --pattern");
	if (!shard_options.method_given)
		shard_options.method = shard_options.calibrated_on ? DT_ROUND_WANDA : DT_ROUND_MAGNITUDE;
	if (!dt_rounding_prunes((enum dt_rounding_method)shard_options.method))
		return dt_opt_usage_error(&shard_program, stderr,
					  "--method of sparsify is magnitude or wanda");
	if ((shard_options.method == DT_ROUND_WANDA) != !!shard_options.calibrated_on)
		return dt_opt_usage_error(&shard_program, stderr,
					  shard_options.calibrated_on
						  ? "--method magnitude does not use --calibrate"
						  : "--method wanda needs --calibrate");
	if (shard_options.pattern_given) {
		shard_options.rounding.keep = patterns[shard_options.pattern][0];
		shard_options.rounding.of = patterns[shard_options.pattern][1];
	}
	ask_text(dst);
	return 0;
}

/* Writes the changed model, and prints the number of matrices changed and the effect on perplexity. */
static int write_changed(char **argv, struct dt_convert c, const char *doing, const char *done)
{
	struct dt_convert_job job;
	struct dt_err err = {0};
	struct dt_ppl_files f = {argv[0],
				 argv[1],
				 shard_options.judged_on,
				 shard_options.tokenizer,
				 shard_options.threads,
				 shard_options.window};
	char looked[64] = "";
	int rc;

	if (f.text && dt_ppl_read_text(&f, &err) < 0) { /* before the work, to fail early */
		dt_ppl_files_release(&f);
		return shard_fail(&err);
	}
	begin(&job, doing);
	dt_eval_threads(shard_options.threads);
	shard_options.rounding.arg = job.arg;
	rc = end(dt_convert((const char *const *)argv, 1, argv[1], &c, &job, &err), &job, &err);
	if (shard_options.calibrated_on)
		snprintf(looked, sizeof(looked), " using %lld tokens of text",
			 (long long)shard_options.rounding.read);
	if (rc == 0 && c.change)
		dt_program_say(&shard_program, "%d matrices were %s%s", shard_options.rounding.matrices, done,
			       looked);
	if (rc == 0 && f.text)
		rc = judge(&f);
	dt_ppl_files_release(&f);
	return rc;
}

int shard_quantize(int n, char **argv)
{
	int rc = ask_rounding(argv[1]);
	struct dt_convert c;

	if (rc)
		return rc;
	c = conversion();
	if (!shard_options.to_given)
		c.to = DT_SOURCE_GGUF;
	if (c.to != DT_SOURCE_GGUF && !c.packing)
		return dt_opt_usage_error(&shard_program, stderr,
					  "quantize can only write --to gguf, gptq or awq");
	if (c.packing && c.mix)
		return dt_opt_usage_error(&shard_program, stderr, "only GGUF files have mixes of formats");
	shard_options.rounding.format = (enum dt_format)c.format;
	shard_options.rounding.packing = c.packing;
	return write_changed(argv, c, shard_options.calibrated_on ? "round" : "convert", "rounded");
}

int shard_sparsify(int n, char **argv)
{
	int rc = ask_pruning(argv[1]);
	struct dt_convert c;

	if (rc)
		return rc;
	c = conversion_to(argv[1]);
	rc = check_target(&c, argv[1]);
	if (rc)
		return rc;
	c.change = dt_round_source;
	return write_changed(argv, c, "prune", "pruned");
}

int shard_export(int n, char **argv)
{
	const struct dt_convert c = conversion();
	struct dt_err err = {0};

	if (dt_convert_onnx(argv[0], argv[1], &c, &err) < 0)
		return shard_fail(&err);
	printf("%s\n", argv[1]);
	return 0;
}

int shard_lora_merge(int n, char **argv)
{
	const struct dt_convert c = conversion_to(argv[2]);
	int status = check_target(&c, argv[2]);
	struct dt_convert_job job;
	struct dt_err err = {0};

	if (status)
		return status;
	begin(&job, "convert");
	return end(dt_convert_merge(argv[0], argv[1], argv[2], &c, &job, &err), &job, &err);
}

int shard_lora_convert(int n, char **argv)
{
	const struct dt_convert c = conversion();
	struct dt_err err = {0};
	int linears = dt_convert_adapter(argv[0], argv[1], argv[2], &c, &err);

	if (linears >= 0)
		printf("%s: adapters of %d linear layers\n", argv[2], linears);
	return linears < 0 ? shard_fail(&err) : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
