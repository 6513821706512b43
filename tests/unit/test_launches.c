/*
 * Launches of a step on a card, counted on the emulated one: a step of few rows waits for them as much as for
 * memory. What the device joins has the bits of what it does apart.
 */
#include "infer_golden.h"
#include "nn/infer_priv.h"

long dt_emu_launches(void); /* kernels/cuda/emulate */

#define LAYER 6 /* q k v; heads and cache; attention; o and norm; gate and up; down and norm */
#define ENDS  3 /* embedding, the first norm, head */

/* Logits of every position, the prompt's first and then one step each; returns launches of the last step. */
static long decode(struct dt_source *src, struct golden *g, enum dt_dtype type, bool apart, float *got)
{
	struct dt_infer_params p = {.dtype = type,
				    .cache = type,
				    .weights = -1,
				    .max_tokens = ROWS,
				    .max_seqs = ROWS,
				    .blocks = BLOCKS,
				    .block_size = BLOCK};
	int seq = (int)golden_int(g, "/", "seq");
	int32_t *ids = golden_i32(g, "ids", NULL);
	struct dt_infer *m;
	struct dt_dev *dev;
	struct dt_err err;
	long n = 0;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CUDA, 0, 2), 0);
	if (dt_infer_open(&m, dev, src, &p, &err) < 0)
		fail_msg("%s", err.msg);
	if (apart)
		m->x.joins = NULL;
	pass(m, ids, seq, 0, 4, got);
	for (int at = 4; at < seq; at++) {
		const long before = dt_emu_launches();

		pass(m, ids, seq, at, at + 1, got);
		n = dt_emu_launches() - before;
	}
	dt_infer_close(m);
	dt_dev_close(dev);
	free(ids);
	return n;
}

/* A model with norms of heads, and one without; each with weights of one format. */
static void test_few(void **state)
{
	static const char *const models[] = {"qwen3", "llama31"};

	for (size_t i = 0; i < 4; i++) {
		const enum dt_dtype type = i / 2 ? DT_BF16 : DT_F32;
		const char *model = models[i % 2];
		struct dt_source *src;
		struct golden g;
		int64_t n;
		char name[32];

		golden_open(&g, model);
		snprintf(name, sizeof(name), "model-%zu", i);
		src = golden_checkpoint(&g, tests_dir(), name);
		float *golden = golden_f32(&g, "logits", &n), *got = malloc((size_t)n * sizeof(*got)),
		      *apart = malloc((size_t)n * sizeof(*apart));
		const long layers = dt_source_config(src)->layers;
		const long few = decode(src, &g, type, false, got), many = decode(src, &g, type, true, apart);

		print_message("%s %s: %ld launches a step, %ld where nothing is joined\n", model,
			      type == DT_F32 ? "f32" : "bf16", few, many);
		assert_memory_equal(got, apart, (size_t)n * sizeof(*got));
		/* Attention over a cache of f32 joins its parts in a launch of its own. */
		if (few > (LAYER + (type == DT_F32)) * layers + ENDS)
			fail_msg("%ld launches, of %ld layers", few, layers);
		assert_true(many > few);
		dt_source_close(src);
		golden_close(&g);
		free(golden);
		free(got);
		free(apart);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_few)};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
