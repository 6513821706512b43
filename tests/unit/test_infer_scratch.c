/*
 * The scratch that an engine reserves (plan/inferplan.h) is what its largest passes take, to the byte, and
 * none is allocated once it is open: golden models in several formats, on one device after another.
 */
#include "infer_golden.h"
#include "plan/inferplan.h"

#include <unistd.h>

static void check_reserved(const char *what, const struct dt_dev *dev, const struct dt_infer *m, bool most)
{
	const struct dt_scratch *s = dt_infer_reserved(m);

	for (int b = 0; b < DT_SCRATCH_N; b++) {
		const size_t taken = dt_dev_scratch_most(dev, (enum dt_scratch_buffer)b);

		if (taken > s->bytes[b] || (most && taken != s->bytes[b]))
			fail_msg("%s: %s: %zu bytes taken, %zu reserved", what,
				 dt_scratch_name((enum dt_scratch_buffer)b), taken, s->bytes[b]);
	}
}

/* Draws all rows of passes from now on. */
static void draw_all(void)
{
	static struct dt_draw draw[ROWS];
	static struct dt_drawn drawn[ROWS];

	for (int i = 0; i < ROWS; i++)
		draw[i] = (struct dt_draw){.cold = 1, .top_p = 0.9, .repetition = 1, .index = (uint64_t)i};
	draws = (struct dt_infer_batch){.draw = draw, .drawn = drawn};
}

/*
 * A pass of all the rows there can be takes all that is reserved; smaller ones no more, and nothing grows.
 * Returns the bytes reserved.
 */
static size_t check(const char *name, struct dt_source *src, struct golden *g, enum dt_dtype dtype,
		    int weights, int threads)
{
	const int seq = (int)golden_int(g, "/", "seq");
	const struct dt_infer_params p = {.dtype = dtype,
					  .cache = threads == 2 ? DT_I8 : dtype,
					  .weights = weights,
					  .max_tokens = 2 * seq,
					  .max_seqs = 2 * seq,
					  .blocks = BLOCKS,
					  .block_size = BLOCK};
	int32_t *ids = golden_i32(g, "ids", NULL);
	int64_t n;
	float *logits = golden_f32(g, "logits", &n);
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;
	size_t before, reserved;

	logits = realloc(logits, (size_t)(2 * seq * dt_source_config(src)->vocab) * sizeof(*logits));
	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, threads), 0);
	dev->batch_invariant = true;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	before = dt_dev_scratch_bytes(dev);
	assert_true(before >= dt_infer_reserved(m)->bytes[DT_SCRATCH_OP] && before > 0);
	assert_true(dt_infer_bytes(m).scratch >= dt_infer_reserved(m)->bytes[DT_SCRATCH_OP]);
	for (int b = 0; b < DT_SCRATCH_N; b++)
		assert_int_equal(dt_dev_scratch_most(dev, (enum dt_scratch_buffer)b), 0);
	draw_all();
	pass(m, ids, seq, 0, 5, logits);
	pass(m, ids, seq, 5, 6, logits);
	pass(m, ids, seq, 0, 8, logits);
	check_reserved(name, dev, m, false);
	pass(m, ids, seq, 0, seq, logits);
	draws = (struct dt_infer_batch){0};
	check_reserved(name, dev, m, true);
	if (!dt_source_config(src)->experts) /* oneDNN allocates a workspace for a router's first product */
		assert_int_equal(dt_dev_scratch_bytes(dev), before);
	reserved = dt_infer_reserved(m)->bytes[DT_SCRATCH_OP];
	dt_infer_close(m);
	dt_dev_close(dev);
	free(ids);
	free(logits);
	return reserved;
}

static void test_families(void **state)
{
	static const char *const models[] = {"gpt2",  "llama",	  "qwen3", "gemma3",	"gemma2",   "mixtral",
					     "olmoe", "qwen3moe", "olmo2", "deepseek2", "deepseek3"};

	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		struct dt_source *src;
		struct golden g;

		golden_open(&g, models[i]);
		src = golden_checkpoint(&g, tests_dir(), models[i]);
		check(models[i], src, &g, DT_F32, -1, 3);
		check(models[i], src, &g, DT_BF16, -1, 1);
		if (dt_source_config(src)->experts &&
		    !dt_source_config(src)->kv_rank) /* rows of whole blocks */
			check(models[i], src, &g, DT_BF16, DT_FMT_Q8_0, 2);
		dt_source_close(src);
		golden_close(&g);
	}
}

static float *random_value(const struct dt_param *p, void *none)
{
	const int64_t n = dt_param_numel(p);
	float *x = malloc((size_t)n * sizeof(*x));

	(void)none;
	for (int64_t k = 0; k < n; k++)
		x[k] = (float)(rand() % 200 - 100) / 1000;
	return x;
}

/* The golden model of that name with other sizes, and random weights. */
static struct dt_source *widened(struct golden *g, void (*widen)(struct dt_config *c), const char *name)
{
	struct dt_config c;

	golden_config(g, &c);
	widen(&c);
	return tests_checkpoint(&c, random_value, NULL, tests_dir(), name);
}

static void wide_mlp(struct dt_config *c)
{
	c->ffn = 6144;
}

static void wide_vocab(struct dt_config *c)
{
	c->vocab = 20000;
}

static void wide_experts(struct dt_config *c)
{
	c->expert_ffn = 2048;
}

static void wide_latents(struct dt_config *c)
{
	c->heads = c->kv_heads = 48;
	c->kv_rank = 384;
}

/* So many that a router's product of 16 rows is small, and one of all rows is not (cpu/matmul_path.h). */
static void many_experts(struct dt_config *c)
{
	c->experts = 32768 / c->hidden;
}

/* Models in which another operation takes most: products, sampling, experts, latents, the router. */
static void test_wide(void **state)
{
	static const struct {
		const char *model;
		void (*widen)(struct dt_config *c);
		const char *name;
	} cases[] = {
		{"llama", wide_mlp, "mlp"},
		{"gpt2", wide_mlp, "mlp2"},
		{"llama", wide_vocab, "vocab"},
		{"mixtral", wide_experts, "experts"},
		{"deepseek2", wide_latents, "latents"},
		{"qwen3moe", many_experts, "router"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int formats = cases[i].widen == wide_experts ? 3 : 2;
		struct dt_source *src, *wide;
		struct golden g;

		golden_open(&g, cases[i].model);
		src = golden_checkpoint(&g, tests_dir(), "narrow");
		wide = widened(&g, cases[i].widen, cases[i].name);
		for (int k = 0; k < formats; k++) {
			const enum dt_dtype t = k ? DT_BF16 : DT_F32;
			const size_t was = check(cases[i].name, src, &g, t, -1, 1),
				     now = check(cases[i].name, wide, &g, t, k < 2 ? -1 : DT_FMT_Q8_0, 1);

			if (now <= was && cases[i].widen != many_experts)
				fail_msg("%s: %zu bytes, no more than %zu", cases[i].name, now, was);
		}
		dt_source_close(wide);
		dt_source_close(src);
		golden_close(&g);
	}
}

/* Two engines on one device reserve what either needs: a model and its drafter. */
static void test_two(void **state)
{
	const struct dt_infer_params p = {.dtype = DT_F32,
					  .cache = DT_F32,
					  .weights = -1,
					  .max_tokens = 48,
					  .max_seqs = 8,
					  .blocks = BLOCKS,
					  .block_size = BLOCK};
	struct dt_infer_params small = p;
	struct dt_source *src;
	struct dt_infer *a, *b;
	struct dt_dev *dev;
	struct golden g;
	struct dt_err err;
	size_t before;

	golden_open(&g, "llama");
	src = golden_checkpoint(&g, tests_dir(), "two");
	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 2), 0);
	assert_int_equal(dt_infer_open(&a, dev, src, &p, &err), 0);
	before = dt_dev_scratch_bytes(dev);
	small.max_tokens = 8;
	assert_int_equal(dt_infer_open(&b, dev, src, &small, &err), 0);
	assert_int_equal(dt_dev_scratch_bytes(dev), before);
	dt_infer_close(b);
	small.max_tokens = 4800;
	assert_int_equal(dt_infer_open(&b, dev, src, &small, &err), 0);
	assert_true(dt_dev_scratch_bytes(dev) > before);
	assert_true(dt_dev_scratch_bytes(dev) >= dt_infer_reserved(b)->bytes[DT_SCRATCH_OP]);
	dt_infer_close(b);
	dt_infer_close(a);
	dt_dev_close(dev);
	dt_source_close(src);
	golden_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_wide),
					   cmocka_unit_test(test_two)};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
