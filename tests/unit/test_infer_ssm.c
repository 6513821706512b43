/*
 * Mamba-2, alone and beside attention, served: logits against PyTorch's (tests/data/golden_models.py), with
 * the prompt in parts beside another sequence, in blocks and slots that held others' keys and states; from a
 * folder of transformers; scratch as reserved.
 */
#include "ckpt/export.h"
#include "infer_golden.h"

#include "kernels/device.h"

#include <errno.h>
#include <math.h>

enum { MOST = 150 };

static const char *const models[] = {"mamba2", "granitehybrid", "granitehybridmoe", "bamba"};
#define MODELS (sizeof(models) / sizeof(*models))

struct fixture {
	struct golden g;
	struct dt_source *src;
	struct dt_dev *dev;
	struct dt_infer *m;
	int32_t *ids;
	float *want, *got; /* [2, seq, vocab] */
	int64_t seq, vocab, n;
};

static void open_model(struct fixture *f, enum dt_dtype type)
{
	struct dt_infer_params p = {.dtype = type,
				    .cache = type,
				    .weights = -1,
				    .max_tokens = (int)(2 * f->seq),
				    .max_seqs = (int)(2 * f->seq),
				    .max_len = (int)f->seq,
				    .blocks = 4,
				    .states = 4,
				    .block_size = (int)f->seq};
	struct dt_err err;

	if (dt_infer_open(&f->m, f->dev, f->src, &p, &err) < 0)
		fail_msg("%s", err.msg);
}

static void setup(struct fixture *f, const char *name, enum dt_dtype type)
{
	golden_open(&f->g, name);
	f->src = golden_checkpoint(&f->g, tests_dir(), type == DT_F32 ? "f32" : "bf16");
	f->ids = golden_i32(&f->g, "ids", NULL);
	f->want = golden_f32(&f->g, "logits", &f->n);
	f->got = malloc((size_t)f->n * sizeof(*f->got));
	f->seq = golden_int(&f->g, "/", "seq");
	f->vocab = dt_source_config(f->src)->vocab;
	assert_int_equal(dt_dev_open(&f->dev, on_card() ? DT_DEV_CUDA : DT_DEV_CPU, 0, 2), 0);
	f->dev->batch_invariant = true;
	open_model(f, type);
}

static void teardown(struct fixture *f)
{
	dt_infer_close(f->m);
	dt_dev_close(f->dev);
	dt_source_close(f->src);
	golden_close(&f->g);
	free(f->ids);
	free(f->want);
	free(f->got);
}

/* Tokens [at[i], end[i]) of both sequences, whose keys are in these blocks and states in slots 3 - block. */
static void both(struct fixture *f, const int64_t at[2], const int64_t end[2], const int32_t block[2])
{
	int32_t ids[2 * MOST], pos[2 * MOST], want[2 * MOST], q_start[3] = {0}, kv_len[2], table[4] = {0},
							      state[2];
	int64_t slot[2 * MOST] = {0}, row[2 * MOST];
	struct dt_infer_batch b = {.ids = ids,
				   .pos = pos,
				   .slot = slot,
				   .q_start = q_start,
				   .kv_len = kv_len,
				   .block_table = table,
				   .max_blocks = 2,
				   .state = state,
				   .want = want};
	float *logits = malloc((size_t)(2 * MOST * f->vocab) * sizeof(*logits));
	struct dt_err err;

	for (int i = 0; i < 2; i++) {
		if (at[i] == end[i])
			continue;
		for (int64_t t = at[i]; t < end[i]; t++) {
			ids[b.ntokens] = f->ids[i * f->seq + t];
			pos[b.ntokens] = (int32_t)t;
			want[b.ntokens] = b.ntokens;
			slot[b.ntokens] = block[i] * f->seq + t;
			row[b.ntokens++] = i * f->seq + t;
		}
		kv_len[b.nseq] = (int32_t)end[i];
		state[b.nseq] = 3 - block[i];
		table[2 * b.nseq++] = block[i];
		q_start[b.nseq] = b.ntokens;
	}
	b.nwant = b.ntokens;
	if (dt_infer_forward(f->m, &b, logits, &err) < 0)
		fail_msg("%s", err.msg);
	for (int i = 0; i < b.ntokens; i++)
		memcpy(f->got + row[i] * f->vocab, logits + i * f->vocab, (size_t)f->vocab * sizeof(*logits));
	free(logits);
}

/* Both sequences in parts of so many tokens, the second behind the first by some. */
static void in_parts(struct fixture *f, int64_t each, int64_t behind, const int32_t block[2])
{
	memset(f->got, 0xff, (size_t)f->n * sizeof(*f->got));
	for (int64_t at = 0; at < f->seq + behind; at += each) {
		int64_t from[2], end[2];

		for (int i = 0; i < 2; i++) {
			from[i] = at - (i ? behind : 0);
			end[i] = from[i] + each < f->seq ? from[i] + each : f->seq;
			from[i] = from[i] < 0 ? 0 : from[i] > f->seq ? f->seq : from[i];
			end[i] = end[i] < from[i] ? from[i] : end[i];
		}
		both(f, from, end, block);
	}
}

static void logits(struct fixture *f, double tol)
{
	static const int32_t block[][2] = {{3, 0}, {0, 3}, {1, 3}};
	float *first = malloc((size_t)f->n * sizeof(*first));

	in_parts(f, MOST, 0, block[0]);
	golden_assert_close("logits", f->got, f->want, f->n, 1e-3, tol);
	memcpy(first, f->got, (size_t)f->n * sizeof(*first));
	in_parts(f, 1, 0, block[1]); /* token by token */
	assert_memory_equal(f->got, first, (size_t)f->n * sizeof(*first));
	in_parts(f, 37, 50, block[2]);
	assert_memory_equal(f->got, first, (size_t)f->n * sizeof(*first));
	free(first);
}

static void test_logits(void **state)
{
	struct fixture f;

	for (size_t i = 0; i < MODELS; i++) {
		setup(&f, models[i], DT_F32);
		logits(&f, 1e-4);
		teardown(&f);
		setup(&f, models[i], DT_BF16);
		logits(&f, 0.1);
		teardown(&f);
	}
}

/* The copy of a block and a state goes on as what it was copied from. */
static void test_copied(void **state)
{
	const int64_t zero[2] = {0, 0}, half[2] = {9, 9};
	static const int32_t block[2] = {0, 1}, other[2] = {2, 3};
	int64_t end[2];
	struct fixture f;

	for (size_t k = 0; k < MODELS; k++) {
		setup(&f, models[k], DT_F32);
		end[0] = end[1] = f.seq;
		both(&f, zero, half, block);
		for (int i = 0; i < 2; i++)
			assert_true(dt_infer_copy_block(f.m, block[i], other[i]) == 0 &&
				    dt_infer_copy_state(f.m, 3 - block[i], 3 - other[i]) == 0);
		both(&f, half, end, block); /* what follows in the first block does not reach its copy */
		both(&f, half, end, other);
		golden_assert_close("logits", f.got, f.want, f.n, 1e-3, 1e-4);
		teardown(&f);
	}
}

static void test_from_transformers(void **state)
{
	struct dt_export x = {.to = DT_SOURCE_SAFETENSORS, .format = DT_FMT_F32};
	static const int32_t block[2] = {0, 1};
	struct fixture f;
	char path[128];
	struct dt_err err = {0};

	for (size_t k = 0; k < MODELS; k++) {
		setup(&f, models[k], DT_F32);
		dt_infer_close(f.m);
		snprintf(path, sizeof(path), "%s/file-%s", tests_dir(), models[k]);
		if (dt_export(f.src, path, &x, &err) < 0)
			fail_msg("%s", err.msg);
		dt_source_close(f.src);
		if (dt_source_open(path, DT_SOURCE_AUTO, "none", &f.src, &err) < 0)
			fail_msg("%s", err.msg);
		open_model(&f, DT_F32);
		in_parts(&f, MOST, 0, block);
		golden_assert_close("logits", f.got, f.want, f.n, 1e-3, 1e-4);
		teardown(&f);
	}
}

/* The largest passes take the scratch that was reserved, to the byte, and no pass more. */
static void test_scratch(void **state)
{
	static const int32_t block[2] = {0, 1};
	struct fixture f;
	uint64_t before;

	if (on_card()) /* a card's is not planned */
		return;
	for (int k = 0; k < 2 * (int)MODELS; k++) {
		setup(&f, models[k / 2], k % 2 ? DT_BF16 : DT_F32);
		before = dt_dev_scratch_bytes(f.dev);
		in_parts(&f, 7, 3, block);
		in_parts(&f, MOST, 0, block);
		assert_int_equal(dt_dev_scratch_bytes(f.dev), before);
		for (int b = 0; b < DT_SCRATCH_N; b++)
			assert_int_equal(dt_dev_scratch_most(f.dev, (enum dt_scratch_buffer)b),
					 dt_infer_reserved(f.m)->bytes[b]);
		teardown(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_logits),
		cmocka_unit_test(test_copied),
		cmocka_unit_test(test_from_transformers),
		cmocka_unit_test(test_scratch),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
