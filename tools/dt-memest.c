/* dt-memest: what a model and a layout need in memory, and whether it fits. */
#include "base/opt.h"
#include "base/table.h"
#include "base/tmpfile.h"
#include "base/units.h"
#include "plan/estimate.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SEQ 4096
#define MAX_STAGES  4096
#define MAX_SOLVE   (INT64_C(1) << 30)
#define MAX_GPUS    4096

#define SOLVE_CHOICES "no|batch|seq|gpus"
enum { SOLVE_NOTHING, SOLVE_BATCH, SOLVE_SEQ, SOLVE_GPUS };

static struct args {
	bool train, serve, list, json, buffers, bars, bars_given, microbatch_given, optimizer_given,
		seqs_given;
	const char *layout_text, *explain;
	int precision, optimizer, recompute, account, solve, kv;
	int64_t microbatch, accumulate, seq, loss_chunk, max_seqs, max_len, block, max_tokens;
	uint64_t gpu_mem;
	double margin;
	struct dt_config config;
	struct dt_layout layout;
} a = {
	.layout_text = "dp1",
	.precision = DT_WF_BF16,
	.optimizer = DT_OPTIM_ADAMW,
	.microbatch = 1,
	.accumulate = 0,
	.max_seqs = 32,
	.block = 16,
	.max_tokens = 2048,
	.margin = 5,
};

static const char *const examples[] = {
	"dt-memest llama-2-7b --train --optimizer adamw --layout dp8.z3 --gpu-mem 80GiB && "
	"echo fits",
	"dt-memest --json llama-2-7b | jq .peak_bytes",
	"dt-memest llama-3-8b --serve --max-seqs 32 --max-len 8192 --gpu-mem 80GiB",
	NULL,
};

static const struct dt_opt opts[] = {
	{"train", 0, DT_OPT_FLAG, &a.train, NULL, "memory of training; the default"},
	{"serve", 0, DT_OPT_FLAG, &a.serve, NULL, "memory of serving"},
	{"layout", 'l', DT_OPT_STR, &a.layout_text, "LAYOUT",
	 "how ranks split the work, dp2.tp2.pp2.z1 for example; see dt-layout(7); default dp1"},
	{"precision", 'p', DT_OPT_CHOICE, &a.precision, DT_WEIGHT_CHOICES,
	 "type of weights (and activations where it is one that computes); default bf16"},
	DT_OPT_HEADING("Training"),
	{"optimizer", 0, DT_OPT_CHOICE, &a.optimizer, DT_OPTIM_CHOICES, "update rule; default adamw",
	 .given = &a.optimizer_given},
	{"microbatch", 'b', DT_OPT_INT, &a.microbatch, "SAMPLES",
	 "samples a rank computes at a time; default 1", .min = 1, .max = 1 << 24,
	 .given = &a.microbatch_given},
	{"accumulate", 0, DT_OPT_INT, &a.accumulate, "N",
	 "microbatches of a step, which bounds those in flight in a pipeline; default twice the stages",
	 .min = 1, .max = 1 << 24},
	{"seq", 's', DT_OPT_INT, &a.seq, "TOKENS", "sequence length; default the model's, 4096 at most",
	 .min = 1, .max = 1 << 24},
	{"recompute", 0, DT_OPT_CHOICE, &a.recompute, DT_RECOMPUTE_CHOICES,
	 "what backward computes again instead of keeping; default none"},
	{"loss-chunk", 0, DT_OPT_INT, &a.loss_chunk, "TOKENS", "rows of logits held at a time", .min = 1,
	 .max = 1 << 24},
	{"account", 0, DT_OPT_CHOICE, &a.account, "auto|" DT_ACCOUNT_CHOICES,
	 "what is counted: what dt-train allocates (dt), textbook formulas (generic) or what Megatron-LM "
	 "keeps; default auto: dt for what dt-train can run, else generic"},
	DT_OPT_HEADING("Serving"),
	{"max-seqs", 0, DT_OPT_INT, &a.max_seqs, "N", "sequences served at a time; default 32", .min = 1,
	 .max = 1 << 24, .given = &a.seqs_given},
	{"max-len", 0, DT_OPT_INT, &a.max_len, "TOKENS",
	 "longest prompt and completion together; default the model's, 4096 at most", .min = 1,
	 .max = 1 << 30},
	{"max-tokens", 0, DT_OPT_INT, &a.max_tokens, "TOKENS", "new tokens of one forward pass; default 2048",
	 .min = 1, .max = 1 << 24},
	{"block-size", 0, DT_OPT_INT, &a.block, "TOKENS", "tokens a block of the cache holds; default 16",
	 .min = 1, .max = 1 << 16},
	{"kv-precision", 0, DT_OPT_CHOICE, &a.kv, "auto|fp32|bf16|fp16",
	 "type of activations and cache; default that of the weights, bf16 for block formats"},
	DT_OPT_HEADING("The question"),
	{"gpu-mem", 'm', DT_OPT_SIZE, &a.gpu_mem, "SIZE",
	 "memory of one device, or of one rank on a processor"},
	{"margin", 0, DT_OPT_REAL, &a.margin, "PCT",
	 "percent of it kept free, for libraries and the driver; default 5", .min = 0, .max = 99},
	{"solve", 0, DT_OPT_CHOICE, &a.solve, SOLVE_CHOICES,
	 "find the largest batch, the longest sequence or the fewest ranks that fit --gpu-mem"},
	DT_OPT_HEADING("Output"),
	{"list", 0, DT_OPT_FLAG, &a.list, NULL, "list the models known by name, and their parameters"},
	{"json", 0, DT_OPT_FLAG, &a.json, NULL, "one JSON object"},
	{"buffers", 0, DT_OPT_FLAG, &a.buffers, NULL, "list every buffer of the fullest rank"},
	{"explain", 0, DT_OPT_STR, &a.explain, "CATEGORY", "say what a category holds, and list its buffers"},
	{"bars", 0, DT_OPT_FLAG, &a.bars, NULL, "draw shares as bars; default on a terminal",
	 .given = &a.bars_given, .negatable = true},
	DT_OPT_END,
};

static const struct dt_program program = {
	.name = "dt-memest",
	.summary = "estimate the memory of training or serving a model, and whether it fits",
	.operands = "MODEL",
	.examples = examples,
	.opts = opts,
};

static const struct {
	const char *how, *text;
} categories[DT_EST_CAT_N] = {
	[DT_MEM_WEIGHTS] =
		{"parameters x bytes an element",
		 "The parameters this rank holds, in the type it computes in. tp cuts most of them, pp\n"
		 "gives each rank some of the layers, ZeRO stage 3 divides what is left over dp."},
	[DT_MEM_MASTER] =
		{"parameters x 4 bytes",
		 "The f32 copy the optimizer updates when the weights are 16-bit. ZeRO stage 1 divides\n"
		 "it over dp. Training in fp32 has none."},
	[DT_MEM_GRADS] =
		{"parameters x bytes an element of a gradient",
		 "Gradients of the rank's parameters, f32 in dt-train, kept over all microbatches of a\n"
		 "step. ZeRO stage 2 divides them over dp."},
	[DT_MEM_OPTIM] =
		{"parameters x 4 bytes x states of the optimizer",
		 "What the optimizer remembers: two f32 numbers a parameter for adam and adamw, one for\n"
		 "momentum, rmsprop and adagrad, none for sgd. ZeRO stage 1 divides them over dp."},
	[DT_MEM_ACTIVATIONS] =
		{"kept for backward: tokens x elements a token x layers",
		 "What forward keeps for backward. Grows with the microbatch and the sequence; tp, cp\n"
		 "and s1 cut it, --recompute trades it for time."},
	[DT_MEM_LOGITS] =
		{"rows at a time x vocabulary",
		 "The output layer's scores and their gradient, on the last stage only. dt-train computes\n"
		 "them in chunks of rows (--loss-chunk), so they do not grow with the batch."},
	[DT_MEM_WORKSPACE] =
		{"tokens x widest tensors of one layer",
		 "Buffers that layers share and use in turn: gradients of activations, what recomputation\n"
		 "writes, tables of the rotary embedding."},
	[DT_MEM_DATA] = {"4 bytes a token, thrice", "Token ids, targets and positions of one microbatch."},
	[DT_EST_CACHE] =
		{"sequences x whole blocks x 2 layers kv_heads head_dim",
		 "Keys and values of every token served, for --max-seqs sequences of --max-len tokens,\n"
		 "rounded up to whole blocks. tp cuts its heads until each rank has one."},
};

/* ---- estimating ---- */

struct stage {
	struct dt_estimate est;
	int first_rank, ranks;
};

struct answer {
	struct stage *stage;
	int n, worst;
	enum dt_account account; /* the one used */
};

static void answer_release(struct answer *r)
{
	for (int i = 0; i < r->n; i++)
		dt_estimate_release(&r->stage[i].est);
	free(r->stage);
	memset(r, 0, sizeof(*r));
}

static enum dt_dtype compute_type(void)
{
	static const enum dt_dtype plain[] = {DT_F32, DT_BF16, DT_F16};

	if (a.serve && a.kv > 0)
		return plain[a.kv - 1];
	return a.precision < DT_WF_Q8_0 ? plain[a.precision] : DT_BF16;
}

static int estimate_stage(const struct args *q, int stage, enum dt_account account, struct dt_estimate *ret,
			  struct dt_err *err)
{
	struct dt_train_shape t = {.config = &q->config,
				   .layout = q->layout,
				   .at = {.pp = stage},
				   .microbatch = q->microbatch,
				   .seq = q->seq,
				   .compute = compute_type(),
				   .optim = (enum dt_optim_kind)q->optimizer,
				   .recompute = (enum dt_recompute)q->recompute,
				   .loss_chunk = q->loss_chunk};
	struct dt_serve_shape s = {.config = &q->config,
				   .layout = q->layout,
				   .weights = (enum dt_weight_format)q->precision,
				   .compute = compute_type(),
				   .max_seqs = q->max_seqs,
				   .max_len = q->max_len,
				   .block = q->block,
				   .max_tokens = q->max_tokens};

	if (q->serve)
		return dt_estimate_serve(&s, ret, err);
	return dt_estimate_train(&t, q->accumulate ? q->accumulate : 2 * q->layout.pp, account, ret, err);
}

/* Every stage's fullest rank: the first of its tensor-parallel group has the larger cuts. */
static int estimate(const struct args *q, struct answer *ret, struct dt_err *err)
{
	struct answer r = {0};
	int rc = dt_layout_check(&q->layout, &q->config, err);

	if (rc < 0)
		return rc;
	r.account = q->account == 0 ? DT_ACCOUNT_DT : (enum dt_account)(q->account - 1);
	r.stage = calloc((size_t)q->layout.pp, sizeof(*r.stage));
	if (!r.stage)
		return dt_err_sys(err, -ENOMEM, "cannot estimate");
	for (; r.n < q->layout.pp; r.n++) {
		rc = estimate_stage(q, r.n, r.account, &r.stage[r.n].est, err);
		/* Stage 0 has the most in flight: what dt covers there it covers on every stage. */
		if (rc == -ENOTSUP && q->account == 0 && r.n == 0 && !q->serve) {
			r.account = DT_ACCOUNT_GENERIC;
			rc = estimate_stage(q, r.n, r.account, &r.stage[r.n].est, err);
		}
		if (rc < 0) {
			answer_release(&r);
			return rc;
		}
		r.stage[r.n].ranks = dt_layout_world(&q->layout) / q->layout.pp;
		r.stage[r.n].first_rank = r.n * r.stage[r.n].ranks;
		if (r.stage[r.n].est.peak_bytes > r.stage[r.worst].est.peak_bytes)
			r.worst = r.n;
	}
	*ret = r;
	return 0;
}

static uint64_t peak_of(const struct answer *r)
{
	return r->stage[r->worst].est.peak_bytes;
}

static uint64_t budget(void)
{
	return (uint64_t)((double)a.gpu_mem * (1 - a.margin / 100));
}

/* 1: fits, 0: does not, negative: cannot be estimated. */
static int fits(const struct args *q, struct dt_err *err)
{
	struct answer r;
	int rc = estimate(q, &r, err);

	if (rc < 0)
		return rc;
	rc = peak_of(&r) <= budget();
	answer_release(&r);
	return rc;
}

/* ---- solving ---- */

/* The largest value of one argument that fits, at most max: doubling, then halving the gap. */
static int solve_largest(int64_t *value, int64_t max, struct dt_err *err)
{
	int64_t lo = 0, hi = 1;
	int rc = 0;

	while (hi <= max) {
		*value = hi;
		rc = fits(&a, err);
		if (rc <= 0)
			break;
		lo = hi;
		hi = hi == max ? max + 1 : hi > max / 2 ? max : 2 * hi;
	}
	if (rc < 0 && rc != -ERANGE) /* too many tokens for one microbatch is too large, not wrong */
		return rc;
	while (hi - lo > 1) {
		*value = lo + (hi - lo) / 2;
		rc = fits(&a, err);
		if (rc < 0 && rc != -ERANGE)
			return rc;
		if (rc > 0)
			lo = *value;
		else
			hi = *value;
	}
	*value = lo ? lo : 1;
	return lo > 0;
}

/*
 * The fewest ranks, a power of two: of the layouts with so many the simplest, ZeRO before tensor parallelism
 * (8 ranks at most, a node) before pipelines. A layout the account cannot estimate is passed over.
 */
static int solve_gpus(struct dt_err *err)
{
	struct args q = a;
	int estimated = 0, rc;

	for (int n = 1; n <= MAX_GPUS; n *= 2) {
		for (int pp = 1; pp <= (a.serve ? 1 : n); pp *= 2) {
			/* Replicas do not make a server smaller: there tp is all ranks. */
			for (int tp = a.serve ? n : 1; tp <= n / pp && tp <= 8; tp *= 2) {
				for (int z = 0; z <= (n / pp / tp > 1 ? 3 : 0); z++) {
					q.layout = (struct dt_layout){n / pp / tp, tp, pp, 1, 1, z, false};
					if (dt_layout_check(&q.layout, &q.config, NULL) < 0)
						continue;
					rc = fits(&q, err);
					if (rc < 0 && rc != -ENOTSUP)
						return rc;
					estimated |= rc >= 0;
					if (rc > 0) {
						a.layout = q.layout;
						return 1;
					}
				}
			}
		}
	}
	return estimated ? 0 : -ENOTSUP;
}

static int solve(struct dt_err *err)
{
	int64_t positions = a.config.pos == DT_POS_LEARNED ? a.config.max_seq : MAX_SOLVE;

	switch (a.solve) {
	case SOLVE_BATCH:
		return solve_largest(a.serve ? &a.max_seqs : &a.microbatch, 1 << 20, err);
	case SOLVE_SEQ:
		return solve_largest(a.serve ? &a.max_len : &a.seq, positions < 1 << 24 ? positions : 1 << 24,
				     err);
	default:
		return solve_gpus(err);
	}
}

static int64_t solved_value(void)
{
	switch (a.solve) {
	case SOLVE_BATCH:
		return a.serve ? a.max_seqs : a.microbatch;
	case SOLVE_SEQ:
		return a.serve ? a.max_len : a.seq;
	default:
		return dt_layout_world(&a.layout);
	}
}

/* ---- printing ---- */

static void print_bar(struct dt_table *t, double share)
{
	bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	char bar[100] = "";
	int n = (int)lround(share * 30);

	for (int i = 0; i < n && i < 30; i++)
		strcat(bar, utf8 ? "\342\226\210" : "#");
	dt_table_cell(t, "%s", bar);
}

static void print_heading(const struct answer *r)
{
	char layout[80], params[24], chosen[24];
	struct dt_params table;
	double total = 0;

	if (dt_model_params(&a.config, &table, NULL) == 0) {
		total = (double)dt_params_total(&table);
		dt_params_release(&table);
	}
	printf("%s, %s parameters, %s on %s (%d rank%s)\n", a.config.name,
	       dt_format_count(total, params, sizeof(params)), a.serve ? "served" : "trained",
	       dt_layout_format(&a.layout, layout, sizeof(layout)), dt_layout_world(&a.layout),
	       dt_layout_world(&a.layout) == 1 ? "" : "s");
	printf("%s, ", dt_opt_choice_name(DT_WEIGHT_CHOICES, a.precision, chosen, sizeof(chosen)));
	if (a.serve) {
		printf("%lld sequences of %lld tokens, blocks of %lld, %lld tokens a pass\n\n",
		       (long long)a.max_seqs, (long long)a.max_len, (long long)a.block,
		       (long long)a.max_tokens);
		return;
	}
	printf("%s, ", dt_opt_choice_name(DT_OPTIM_CHOICES, a.optimizer, chosen, sizeof(chosen)));
	printf("microbatch %lld x %lld tokens, ", (long long)a.microbatch, (long long)a.seq);
	printf("recompute %s, ",
	       dt_opt_choice_name(DT_RECOMPUTE_CHOICES, a.recompute, chosen, sizeof(chosen)));
	printf("account %s%s\n\n",
	       dt_opt_choice_name(DT_ACCOUNT_CHOICES, (int)r->account, chosen, sizeof(chosen)),
	       a.account == 0 && r->account != DT_ACCOUNT_DT ? " (dt-train cannot run this yet)" : "");
}

static bool category_exact(const struct dt_estimate *e, int cat)
{
	bool exact = true;

	for (int i = 0; i < e->n; i++)
		exact &= e->e[i].cat != cat || e->e[i].exact;
	return exact;
}

static void print_categories(const struct dt_estimate *e)
{
	struct dt_table *t = dt_table_new(a.bars ? "category|>bytes|>share|bar|kind|how"
						 : "category|>bytes|>share|kind|how");
	char size[24];

	for (int c = 0; c < DT_EST_CAT_N; c++) {
		double share = (double)e->cat_bytes[c] / (double)e->peak_bytes;

		if (e->cat_bytes[c] == 0)
			continue;
		dt_table_cell(t, "%s", dt_est_cat_name(c));
		dt_table_cell(t, "%s", dt_format_size(e->cat_bytes[c], size, sizeof(size)));
		dt_table_cell(t, "%.1f%%", 100 * share);
		if (a.bars)
			print_bar(t, share);
		dt_table_cell(t, "%s", category_exact(e, c) ? "exact" : "formula");
		dt_table_cell(t, "%s", categories[c].how);
	}
	dt_table_end_row(t);
	dt_table_cell(t, "peak");
	dt_table_cell(t, "%s", dt_format_size(e->peak_bytes, size, sizeof(size)));
	dt_table_cell(t, "100%%");
	dt_table_end_row(t);
	dt_table_print(t, stdout);
	dt_table_free(t);
	if (a.serve)
		return;
	printf("\nby phase:");
	for (int p = 0; p < DT_PH_N; p++)
		printf("%s %s %s%s", p ? "," : "", dt_phase_name(p),
		       dt_format_size(e->phase_bytes[p], size, sizeof(size)),
		       p == (int)e->peak ? " (the peak)" : "");
	putchar('\n');
}

static void print_stages(const struct answer *r)
{
	struct dt_table *t = dt_table_new(">stage|ranks|layers|>parameters|>peak|phase|note");
	char size[24], params[24];

	for (int i = 0; i < r->n; i++) {
		const struct stage *s = &r->stage[i];

		dt_table_cell(t, "%d", i);
		dt_table_cell(t, "%d-%d", s->first_rank, s->first_rank + s->ranks - 1);
		dt_table_cell(t, "%d-%d", s->est.first_layer, s->est.last_layer - 1);
		dt_table_cell(t, "%s", dt_format_count((double)s->est.params, params, sizeof(params)));
		dt_table_cell(t, "%s", dt_format_size(s->est.peak_bytes, size, sizeof(size)));
		dt_table_cell(t, "%s", dt_phase_name(s->est.peak));
		dt_table_cell(t, "%s", i == r->worst ? "worst" : "");
	}
	putchar('\n');
	dt_table_print(t, stdout);
	dt_table_free(t);
}

/* cat < 0: all. Layers with the same buffer share a line. */
static void print_buffers(const struct dt_estimate *e, int cat)
{
	struct dt_table *t = dt_table_new("buffer|category|>count|>bytes each|>bytes|phases|kind|how");
	char size[24];

	for (int i = 0; i < e->n; i++) {
		const struct dt_entry *b = &e->e[i];
		const char *name = b->layer >= 0 ? strchr(strchr(b->name, '.') + 1, '.') + 1 : b->name;
		int count = 0;

		if ((cat >= 0 && b->cat != cat) || (b->layer > e->first_layer))
			continue;
		for (int k = 0; b->layer >= 0 && k < e->n; k++) {
			const struct dt_entry *o = &e->e[k];

			count += o->layer >= 0 && !strcmp(strchr(strchr(o->name, '.') + 1, '.') + 1, name);
		}
		count = count ? count : 1;
		dt_table_cell(t, "%s%s", b->layer >= 0 ? "layers.N." : "", name);
		dt_table_cell(t, "%s", dt_est_cat_name(b->cat));
		dt_table_cell(t, "%d", count);
		dt_table_cell(t, "%s", dt_format_size(b->bytes, size, sizeof(size)));
		dt_table_cell(t, "%s", dt_format_size(b->bytes * (uint64_t)count, size, sizeof(size)));
		if (a.serve)
			dt_table_cell(t, "always");
		else if (b->first == b->last)
			dt_table_cell(t, "%s", dt_phase_name(b->first));
		else
			dt_table_cell(t, "%s-%s", dt_phase_name(b->first), dt_phase_name(b->last));
		dt_table_cell(t, "%s", b->exact ? "exact" : "formula");
		dt_table_cell(t, "%s", b->formula);
	}
	putchar('\n');
	dt_table_print(t, stdout);
	dt_table_free(t);
}

static void print_solution(bool solved)
{
	static const char *const largest[] = {NULL, "largest microbatch", "longest sequence", "fewest ranks"};
	static const char *const none[] = {NULL, "batch, however small,", "sequence, however short,",
					   "layout tried"};
	char layout[80];

	if (!solved)
		printf("no %s fits\n", none[a.solve]);
	else if (a.solve == SOLVE_GPUS)
		printf("fewest ranks: %lld, as %s\n", (long long)solved_value(),
		       dt_layout_format(&a.layout, layout, sizeof(layout)));
	else
		printf("%s: %lld%s\n",
		       a.serve && a.solve == SOLVE_BATCH ? "most sequences" : largest[a.solve],
		       (long long)solved_value(), a.solve == SOLVE_SEQ ? " tokens" : "");
}

static void print_verdict(const struct answer *r, bool solved)
{
	uint64_t peak = peak_of(r), room = budget();
	char mem[24], diff[24];

	if (a.gpu_mem == 0)
		return;
	putchar('\n');
	if (a.solve)
		print_solution(solved);
	dt_format_size(a.gpu_mem, mem, sizeof(mem));
	dt_format_size(peak <= room ? room - peak : peak - room, diff, sizeof(diff));
	printf("%s %s with %g%% kept free: %s %s\n", peak <= room ? "fits" : "does not fit", mem, a.margin,
	       diff, peak <= room ? "of headroom" : "too much");
}

/* ---- JSON ---- */

static json_t *json_stage(const struct stage *s, int i)
{
	return json_pack("{s:i, s:i, s:i, s:[i,i], s:I, s:I, s:s}", "stage", i, "first_rank", s->first_rank,
			 "ranks", s->ranks, "layers", s->est.first_layer, s->est.last_layer, "params",
			 (json_int_t)s->est.params, "peak_bytes", (json_int_t)s->est.peak_bytes, "peak_phase",
			 dt_phase_name(s->est.peak));
}

static json_t *json_categories(const struct dt_estimate *e)
{
	json_t *list = json_array();

	for (int c = 0; c < DT_EST_CAT_N; c++)
		if (e->cat_bytes[c])
			json_array_append_new(
				list, json_pack("{s:s, s:I, s:f, s:s, s:b}", "name", dt_est_cat_name(c),
						"bytes", (json_int_t)e->cat_bytes[c], "share",
						(double)e->cat_bytes[c] / (double)e->peak_bytes, "formula",
						categories[c].how, "exact", category_exact(e, c)));
	return list;
}

static json_t *json_buffers(const struct dt_estimate *e)
{
	json_t *list = json_array();

	for (int i = 0; i < e->n; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:b}", "name",
						      e->e[i].name, "category", dt_est_cat_name(e->e[i].cat),
						      "bytes", (json_int_t)e->e[i].bytes, "first_phase",
						      dt_phase_name(e->e[i].first), "last_phase",
						      dt_phase_name(e->e[i].last), "formula", e->e[i].formula,
						      "exact", e->e[i].exact));
	return list;
}

static json_t *json_request(const struct answer *ans)
{
	char p[24], o[24], r[24], acc[24];

	dt_opt_choice_name(DT_WEIGHT_CHOICES, a.precision, p, sizeof(p));
	if (a.serve)
		return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "mode", "serve", "precision", p,
				 "max_seqs", (json_int_t)a.max_seqs, "max_len_tokens", (json_int_t)a.max_len,
				 "block_tokens", (json_int_t)a.block, "max_tokens", (json_int_t)a.max_tokens);
	dt_opt_choice_name(DT_OPTIM_CHOICES, a.optimizer, o, sizeof(o));
	dt_opt_choice_name(DT_RECOMPUTE_CHOICES, a.recompute, r, sizeof(r));
	dt_opt_choice_name(DT_ACCOUNT_CHOICES, (int)ans->account, acc, sizeof(acc));
	return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "mode", "train", "precision", p, "account",
			 acc, "optimizer", o, "microbatch", (json_int_t)a.microbatch, "seq_tokens",
			 (json_int_t)a.seq, "recompute", r);
}

static int print_json(const struct answer *r, int solved, struct dt_err *err)
{
	const struct dt_estimate *e = &r->stage[r->worst].est;
	json_t *root = json_request(r), *ranks = json_array(), *phases = json_object();
	struct dt_params table;
	char layout[80], what[16];
	int rc = dt_model_params(&a.config, &table, err);

	if (rc < 0)
		goto out;
	json_object_set_new(root, "schema", json_integer(1));
	json_object_set_new(root, "model", json_string(a.config.name));
	json_object_set_new(root, "layout", json_string(dt_layout_format(&a.layout, layout, sizeof(layout))));
	json_object_set_new(root, "world", json_integer(dt_layout_world(&a.layout)));
	json_object_set_new(root, "params", json_integer(dt_params_total(&table)));
	json_object_set_new(root, "peak_bytes", json_integer((json_int_t)e->peak_bytes));
	json_object_set_new(root, "worst_stage", json_integer(r->worst));
	json_object_set_new(root, "categories", json_categories(e));
	for (int i = 0; i < r->n; i++)
		json_array_append_new(ranks, json_stage(&r->stage[i], i));
	json_object_set(root, "ranks", ranks);
	if (!a.serve) {
		json_object_set_new(root, "peak_phase", json_string(dt_phase_name(e->peak)));
		for (int p = 0; p < DT_PH_N; p++)
			json_object_set_new(phases, dt_phase_name(p),
					    json_integer((json_int_t)e->phase_bytes[p]));
		json_object_set(root, "phase_bytes", phases);
	}
	if (a.buffers)
		json_object_set_new(root, "buffers", json_buffers(e));
	if (a.gpu_mem) {
		json_object_set_new(root, "gpu_mem_bytes", json_integer((json_int_t)a.gpu_mem));
		json_object_set_new(root, "margin_percent", json_real(a.margin));
		json_object_set_new(root, "fits", json_boolean(e->peak_bytes <= budget()));
		json_object_set_new(root, "headroom_bytes",
				    json_integer((json_int_t)budget() - (json_int_t)e->peak_bytes));
	}
	if (a.solve)
		json_object_set_new(root, "solve",
				    json_pack("{s:s, s:b, s:I}", "what",
					      dt_opt_choice_name(SOLVE_CHOICES, a.solve, what, sizeof(what)),
					      "solved", solved, "value", (json_int_t)solved_value()));
	rc = dt_json_write_line(stdout, root, err);
	dt_params_release(&table);
out:
	json_decref(ranks);
	json_decref(phases);
	json_decref(root);
	return rc;
}

/* ---- the program ---- */

/* What the table cannot check; -1: all is well. */
static int check_usage(int nargs)
{
	const char *dumb = getenv("TERM");
	struct dt_err err = {0};

	if (nargs == 0 && a.list)
		return -1;
	if (nargs != 1 || a.list)
		return dt_opt_usage_error(&program, stderr,
					  a.list  ? "--list takes no model"
					  : nargs ? "one model at a time"
						  : "a model is missing");
	if (a.train && a.serve)
		return dt_opt_usage_error(&program, stderr, "--train and --serve exclude each other");
	if (dt_layout_parse(a.layout_text, &a.layout, &err) < 0)
		return dt_opt_usage_error(&program, stderr, "option '--layout': %s; %s", err.msg, err.hint);
	if (!a.serve && a.precision >= DT_WF_Q8_0)
		return dt_opt_usage_error(&program, stderr,
					  "--precision of block formats goes with --serve only");
	if (a.serve && (a.microbatch_given || a.optimizer_given))
		return dt_opt_usage_error(&program, stderr, "--microbatch and --optimizer go with --train");
	if (!a.serve && a.seqs_given)
		return dt_opt_usage_error(&program, stderr, "--max-seqs goes with --serve");
	if (a.solve && a.gpu_mem == 0)
		return dt_opt_usage_error(&program, stderr, "--solve needs --gpu-mem");
	if (a.explain && a.json)
		return dt_opt_usage_error(&program, stderr, "--explain and --json exclude each other");
	if (!a.bars_given)
		a.bars = isatty(STDOUT_FILENO) && dumb && strcmp(dumb, "dumb");
	return -1;
}

static int find_category(const char *name)
{
	for (int c = 0; c < DT_EST_CAT_N; c++)
		if (!strcmp(name, dt_est_cat_name(c)))
			return c;
	return -1;
}

static int print_explanation(const struct answer *r, int cat)
{
	const struct dt_estimate *e = &r->stage[r->worst].est;

	printf("%s: %s\n\n%s\n", dt_est_cat_name(cat), categories[cat].how, categories[cat].text);
	for (int i = 0; i < e->n; i++) {
		if (e->e[i].cat == cat) {
			print_buffers(e, cat);
			return 0;
		}
	}
	printf("\nThis rank has none.\n");
	return 0;
}

static int list_models(void)
{
	struct dt_table *t = dt_table_new("model|family|>parameters|>layers|>hidden|>positions");
	struct dt_params table;
	char params[24];

	for (int i = 0; dt_config_preset(i); i++) {
		const struct dt_config *c = dt_config_preset(i);

		if (dt_model_params(c, &table, NULL) < 0)
			continue;
		dt_table_cell(t, "%s", c->name);
		dt_table_cell(t, "%s", c->family);
		dt_table_cell(t, "%s",
			      dt_format_count((double)dt_params_total(&table), params, sizeof(params)));
		dt_table_cell(t, "%lld", (long long)c->layers);
		dt_table_cell(t, "%lld", (long long)c->hidden);
		dt_table_cell(t, "%lld", (long long)c->max_seq);
		dt_params_release(&table);
	}
	dt_table_print(t, stdout);
	dt_table_free(t);
	return DT_EXIT_OK;
}

static int fail(const struct dt_err *err)
{
	fprintf(stderr, "dt-memest: %s%s%s\n", err->msg, err->hint[0] ? "; " : "", err->hint);
	return DT_EXIT_FAILED;
}

static int run(const char *model, int cat)
{
	struct answer r;
	struct dt_err err = {0};
	int64_t usual;
	int solved = 0, status;

	if (dt_config_load(model, &a.config, &err) < 0)
		return fail(&err);
	usual = a.config.max_seq < DEFAULT_SEQ ? a.config.max_seq : DEFAULT_SEQ;
	a.seq = a.seq ? a.seq : usual;
	a.max_len = a.max_len ? a.max_len : usual;
	if (a.solve) {
		solved = solve(&err);
		if (solved < 0)
			return fail(&err);
	}
	if (estimate(&a, &r, &err) < 0)
		return fail(&err);
	status = a.gpu_mem && peak_of(&r) > budget() ? DT_EXIT_NO : DT_EXIT_OK;
	if (a.json) {
		if (print_json(&r, solved, &err) < 0)
			status = fail(&err);
	} else if (a.explain) {
		print_explanation(&r, cat);
	} else {
		print_heading(&r);
		print_categories(&r.stage[r.worst].est);
		if (r.n > 1)
			print_stages(&r);
		if (a.buffers)
			print_buffers(&r.stage[r.worst].est, -1);
		print_verdict(&r, solved);
	}
	answer_release(&r);
	return status;
}

int main(int argc, char **argv)
{
	struct dt_err err = {0};
	int status, cat = -1, nargs = dt_opt_main(&program, argc, argv, stdout, stderr, &status);

	setlocale(LC_CTYPE, "");
	if (nargs >= 0) {
		status = check_usage(nargs);
		if (status < 0 && a.explain) {
			cat = find_category(a.explain);
			if (cat < 0)
				status = dt_opt_usage_error(&program, stderr,
							    "option '--explain': no category is called '%s'",
							    a.explain);
		}
		if (status < 0)
			status = a.list ? list_models() : run(argv[1], cat);
	}
	if (dt_close_stdout(&err) < 0 && status != DT_EXIT_FAILED)
		status = err.code == -EPIPE ? DT_EXIT_FAILED : fail(&err);
	return status;
}
