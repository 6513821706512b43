/*
 * A module for a further token as a model of its own, which reads the final hidden states that the model's
 * pass returns: its logits against PyTorch's (tests/data/golden_models.py), in one pass and in parts, with
 * all rows' logits and with the last one's.
 */
#include "infer_golden.h"

#include <errno.h>

#define TOL 5e-6

struct pair {
	struct dt_infer *model, *module;
	struct dt_dev *dev;
	int32_t *ids, *ahead;
	float *want[2]; /* logits of the model, and of the module */
	int64_t n;
	int seq;
};

static void pair_open(struct pair *p, const char *name, struct golden *g)
{
	struct dt_infer_params ip = {.dtype = DT_F32,
				     .cache = DT_F32,
				     .weights = -1,
				     .max_tokens = ROWS,
				     .max_seqs = ROWS,
				     .blocks = BLOCKS,
				     .block_size = BLOCK};
	char path[128];
	struct dt_source *src, *alone;
	struct dt_err err;

	src = golden_checkpoint(g, tests_dir(), name);
	snprintf(path, sizeof(path), "%s/%s", tests_dir(), name);
	if (dt_source_open_module(path, &alone, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	assert_int_equal(dt_source_config(src)->mtp_layers, 0);
	assert_int_equal(dt_dev_open(&p->dev, DT_DEV_CPU, 0, 2), 0);
	p->dev->batch_invariant = true;
	if (dt_infer_open(&p->model, p->dev, src, &ip, &err) < 0 ||
	    dt_infer_open(&p->module, p->dev, alone, &ip, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
	dt_source_close(src);
	dt_source_close(alone);
	p->seq = (int)golden_int(g, "/", "seq");
	p->ids = golden_i32(g, "ids", NULL);
	p->ahead = golden_i32(g, "ids_ahead", NULL);
	p->want[0] = golden_f32(g, "logits", &p->n);
	p->want[1] = golden_f32(g, "mtp_logits", NULL);
}

static void pair_close(struct pair *p)
{
	dt_infer_close(p->model);
	dt_infer_close(p->module);
	dt_dev_close(p->dev);
	free(p->ids);
	free(p->ahead);
	for (int i = 0; i < 2; i++)
		free(p->want[i]);
}

/* Both models over all tokens, `step` of them in a pass; last: only the last row's logits of the module. */
static void run(struct pair *p, int step, bool last, float *got[2])
{
	const size_t row = (size_t)dt_infer_config(p->model)->hidden * 4;
	char *hidden = malloc(ROWS * row);

	for (int at = 0, to; at < p->seq; at = to) {
		to = at + step < p->seq ? at + step : p->seq;
		memset(hidden, 0xff, ROWS * row);
		draws.hidden = hidden;
		lasts[0] = lasts[1] = 1; /* rows whose logits are not wanted have a hidden state too */
		pass(p->model, p->ids, p->seq, at, to, got[0]);
		draws.hidden = NULL;
		draws.given = hidden;
		lasts[0] = lasts[1] = last ? 1 : ROWS;
		pass(p->module, p->ahead, p->seq, at, to, got[1]);
		draws.given = NULL;
		lasts[0] = lasts[1] = ROWS;
	}
	free(hidden);
}

static void compare(const char *name)
{
	struct golden g;
	struct pair p;
	float *got[2], *all;
	size_t bytes;

	golden_open(&g, name);
	pair_open(&p, name, &g);
	bytes = (size_t)p.n * sizeof(*all);
	all = malloc(bytes);
	for (int i = 0; i < 2; i++)
		got[i] = malloc(bytes);
	run(&p, p.seq, false, got);
	memcpy(all, got[1], bytes);
	golden_assert_close(name, got[1], p.want[1], p.n, 1e-3, TOL);
	for (int step = 1; step < p.seq; step += 4) { /* however a prompt is cut, the bits are the same */
		memset(got[1], 0xff, bytes);
		run(&p, step, false, got);
		assert_memory_equal(got[1], all, bytes);
		memset(got[1], 0xff, bytes);
		run(&p, step, true, got);
		for (int s = 0; s < 2; s++) {
			const size_t vocab = (size_t)p.n / (size_t)(2 * p.seq),
				     at = (size_t)(s * p.seq + p.seq - 1) * vocab;

			assert_memory_equal(got[1] + at, all + at, vocab * sizeof(*all));
			golden_assert_close(name, got[0] + at, p.want[0] + at, (int64_t)vocab, 1e-3, TOL);
		}
	}
	free(all);
	for (int i = 0; i < 2; i++)
		free(got[i]);
	pair_close(&p);
	golden_close(&g);
}

static void test_logits(void **state)
{
	compare("deepseek3mtp");
	compare("glm4mtp");
}

/* A module reads hidden states, and a model does not; a source without a module is refused by name. */
static void test_refused(void **state)
{
	struct golden g;
	struct pair p;
	struct dt_infer_batch b = {.nseq = 1, .ntokens = 1};
	struct dt_source *src;
	struct dt_err err;
	char path[128], byte = 0;

	golden_open(&g, "glm4mtp");
	pair_open(&p, "refused", &g);
	assert_int_equal(dt_infer_forward(p.module, &b, NULL, &err), -EINVAL);
	b.given = &byte;
	assert_int_equal(dt_infer_forward(p.model, &b, NULL, &err), -EINVAL);
	pair_close(&p);
	golden_close(&g);
	golden_open(&g, "glm4moe");
	dt_source_close(golden_checkpoint(&g, tests_dir(), "none"));
	golden_close(&g);
	snprintf(path, sizeof(path), "%s/none", tests_dir());
	assert_int_equal(dt_source_open_module(path, &src, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "has no module"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logits),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
