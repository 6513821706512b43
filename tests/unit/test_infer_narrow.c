/*
 * A pass leaves out of its last layer the rows whose logits are not wanted: those that are wanted keep their
 * bits, whichever they are, and so do later passes, which read the keys of all rows.
 */
#include "infer_golden.h"

#include "nn/infer_priv.h"

static const struct {
	int lasts[2], without;
} cases[] = {
	{{1, 1}, -1},			 /* as a prompt's */
	{{0, 1}, -1},			 /* one sequence's prompt continues in a later pass */
	{{0, 0}, -1},			 /* both */
	{{3, 2}, -1},			 /* as a draft's */
	{{0, ROWS}, -1}, {{ROWS, 2}, 7}, /* not the last rows */
};
enum { STEP = 5 };

/*
 * Whether the pass of these rows has fewer in its last layer; not with Mamba-2's mixer there, and on a card
 * not with latent attention.
 */
static bool drops(const struct dt_infer *m, int from, int to)
{
	const int fewest = lasts[0] < lasts[1] ? lasts[0] : lasts[1];

	return !dt_layer_is_ssm(&m->config, (int)m->config.layers - 1) && !(on_card() && m->config.kv_rank) &&
	       to - from > fewest && !(without >= from && without < to);
}

/* Both sequences in parts: rows that are wanted have the bits of all, and the others are not written. */
static void some_rows(const char *name, struct dt_infer *m, const int32_t *ids, int seq, const float *all,
		      int64_t n, int i)
{
	const size_t row = (size_t)dt_infer_config(m)->vocab;
	float *got = malloc((size_t)n * sizeof(*got)), *none = malloc(row * sizeof(*none));

	memset(got, 0xff, (size_t)n * sizeof(*got));
	memset(none, 0xff, row * sizeof(*none));
	memcpy(lasts, cases[i].lasts, sizeof(lasts));
	without = cases[i].without;
	for (int at = 0, end; at < seq; at = end) {
		end = at + STEP < seq ? at + STEP : seq;
		pass(m, ids, seq, at, end, got);
		if ((m->batch == &m->narrow.batch) != drops(m, at, end))
			fail_msg("%s, case %d: rows %d to %d", name, i, at, end);
		for (int t = at; t < end; t++)
			for (int s = 0; s < 2; s++) {
				const size_t first = (size_t)(s * seq + t) * row;

				if (memcmp(got + first, is_wanted(s, t, end) ? all + first : none,
					   row * sizeof(*got)))
					fail_msg("%s, case %d: token %d of sequence %d", name, i, t, s);
			}
	}
	lasts[0] = lasts[1] = ROWS;
	without = -1;
	free(none);
	free(got);
}

static void model(const char *name, enum dt_dtype dtype, enum dt_dtype cache)
{
	const struct dt_infer_params p = {.dtype = dtype,
					  .cache = cache,
					  .weights = -1,
					  .max_tokens = ROWS,
					  .max_seqs = ROWS,
					  .blocks = BLOCKS,
					  .states = 2,
					  .block_size = BLOCK};
	struct golden g;
	struct dt_source *src;
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;
	int32_t *ids;
	float *all;
	int64_t n, seq;

	golden_open(&g, name);
	src = golden_checkpoint(&g, tests_dir(), name);
	seq = golden_int(&g, "/", "seq");
	ids = golden_i32(&g, "ids", NULL);
	all = golden_f32(&g, "logits", &n);
	assert_int_equal(dt_dev_open(&dev, on_card() ? DT_DEV_CUDA : DT_DEV_CPU, 0, 2), 0);
	dev->batch_invariant = true;
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	m->narrow.worth = 1;
	for (int at = 0; at < seq; at += STEP)
		pass(m, ids, (int)seq, at, at + STEP < seq ? at + STEP : (int)seq, all);
	for (int i = 0; i < (int)(sizeof(cases) / sizeof(*cases)); i++)
		some_rows(name, m, ids, (int)seq, all, n, i);
	dt_infer_close(m);
	dt_dev_close(dev);
	free(ids);
	free(all);
	dt_source_close(src);
	golden_close(&g);
}

static void test_models(void **state)
{
	/* Of each kind of attention, norm, activation and mixture; Mamba-2 behind attention or not. */
	static const char *const names[] = {"deepseek2", "gpt2",      "llama",	       "qwen3",
					    "gemma2",	 "gemma3",    "olmo2",	       "qwen3moe",
					    "mixtral",	 "deepseek3", "granitehybrid", "granitehybridmoe"};

	for (size_t i = 0; i < (on_card() ? 3 : sizeof(names) / sizeof(*names)); i++) {
		model(names[i], DT_F32, DT_F32);
		if (!on_card()) /* emulated it takes long */
			model(names[i], DT_BF16, DT_I8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_models)};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
