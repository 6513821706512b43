/*
 * Encoders served: final hidden states and classes against transformers (tests/data/golden_encoders.py), with
 * token types, sequences of different lengths in one pass, pooling, and GGUF files.
 */
#include "infer_golden.h"

#include "ckpt/export.h"
#include "kernels/device.h"
#include "nn/labels.h"

#include <errno.h>
#include <math.h>

struct fixture {
	struct golden g;
	struct dt_source *src;
	struct dt_dev *dev;
	struct dt_infer *m;
	int32_t *ids, *types, pos[ROWS];
	float *states; /* of transformers, [batch, seq, hidden] */
	int64_t seq, hidden;
};

/* Writes the source as a GGUF file, and opens that. */
static void through_gguf(struct dt_source **src, const char *name, enum dt_format format)
{
	const struct dt_export x = {.to = DT_SOURCE_GGUF, .format = (int)format};
	const char *left;
	char path[600];
	struct dt_err err;

	snprintf(path, sizeof(path), "%s/%s-%s.gguf", tests_dir(), name, dt_format_info(format)->name);
	if (dt_source_bare(src, &left, &err) < 0 || dt_export(*src, path, &x, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	dt_source_close(*src);
	if (dt_source_open(path, DT_SOURCE_AUTO, NULL, src, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	assert_string_equal(dt_source_config(*src)->family, "bert");
	assert_int_equal(dt_source_config(*src)->pos_first, 0);
	assert_int_equal(dt_source_config(*src)->max_seq, 24);
}

/* gguf < 0: the checkpoint itself is served. */
static void setup_from(struct fixture *f, const char *name, bool pools_first, int gguf)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = -1,
				    .max_tokens = ROWS,
				    .max_seqs = 8,
				    .blocks = BLOCKS,
				    .block_size = BLOCK,
				    .embeds = true,
				    .pools_first = pools_first};
	struct dt_err err;

	golden_open(&f->g, name);
	f->src = golden_checkpoint(&f->g, tests_dir(), name);
	if (gguf >= 0)
		through_gguf(&f->src, name, (enum dt_format)gguf);
	f->ids = golden_i32(&f->g, "ids", NULL);
	f->types = golden_i32(&f->g, "types", NULL);
	f->states = golden_f32(&f->g, "states", NULL);
	f->seq = golden_int(&f->g, "/", "seq");
	f->hidden = golden_int(&f->g, "/", "hidden");
	for (int i = 0; i < ROWS; i++)
		f->pos[i] = (int32_t)(i % f->seq);
	assert_int_equal(dt_dev_open(&f->dev, DT_DEV_CPU, 0, 2), 0);
	if (dt_infer_open(&f->m, f->dev, f->src, &p, &err) < 0)
		fail_msg("%s: %s", name, err.msg);
}

static void setup(struct fixture *f, const char *name, bool pools_first)
{
	setup_from(f, name, pools_first, -1);
}

static void teardown(struct fixture *f)
{
	dt_infer_close(f->m);
	dt_dev_close(f->dev);
	dt_source_close(f->src);
	golden_close(&f->g);
	free(f->ids);
	free(f->types);
	free(f->states);
}

/* A pass over the first two sequences of the file, and pooled states of both. */
static void run(struct fixture *f, float *hidden, float *pool[2])
{
	const int32_t q_start[] = {0, (int32_t)f->seq, (int32_t)(2 * f->seq)};
	const struct dt_infer_batch b = {.nseq = 2,
					 .ntokens = (int)(2 * f->seq),
					 .ids = f->ids,
					 .pos = f->pos,
					 .types = f->types,
					 .q_start = q_start,
					 .hidden = hidden,
					 .pool = pool};
	struct dt_err err;

	if (dt_infer_forward(f->m, &b, NULL, &err) < 0)
		fail_msg("%s", err.msg);
}

/* Of the checkpoint, or (gguf >= 0) of a GGUF file of that format; far: how far from transformers. */
static void states_of(const char *name, int gguf, double far)
{
	struct fixture f;
	float *got, sum[2][64] = {{0}}, *pool[2] = {sum[0], sum[1]};
	int64_t n;

	setup_from(&f, name, false, gguf);
	n = 2 * f.seq * f.hidden;
	got = malloc((size_t)n * sizeof(*got));
	run(&f, got, pool);
	golden_assert_close(name, got, f.states, n, 1e-3, far);
	for (int s = 0; s < 2; s++)
		for (int64_t i = 0; i < f.hidden; i++) {
			double want = 0;

			for (int64_t t = 0; t < f.seq; t++)
				want += (double)f.states[(s * f.seq + t) * f.hidden + i];
			if (!(fabs((double)sum[s][i] - want) < 20 * far))
				fail_msg("%s: sum %d of sequence %d is %.7g, not %.7g", name, (int)i, s,
					 (double)sum[s][i], want);
		}
	free(got);
	teardown(&f);
}

static void test_bert(void **state)
{
	states_of("bert", -1, 1e-5);
}

static void test_roberta(void **state)
{
	states_of("roberta", -1, 1e-5);
}

/* Rows of 56 elements become f16 in q8_0. */
static void test_gguf(void **state)
{
	states_of("bert", DT_FMT_F32, 1e-5);
	states_of("roberta", DT_FMT_F32, 1e-5);
	states_of("bert", DT_FMT_F16, 5e-3);
	states_of("roberta", DT_FMT_Q8_0, 5e-2);
}

/* A sequence's states do not depend on the others of the pass, whose lengths differ. */
static void test_ragged(void **state)
{
	static const int lengths[] = {5, 1, 9, 9, 3};
	struct fixture f;
	float together[ROWS * 32], alone[ROWS * 32];
	int32_t q_start[6] = {0}, ids[ROWS], pos[ROWS];
	struct dt_err err;
	int rows = 0;

	setup(&f, "bert", false);
	assert_int_equal(f.hidden, 32);
	f.dev->batch_invariant = true;
	for (int s = 0; s < 5; s++) {
		for (int i = 0; i < lengths[s]; i++, rows++) {
			ids[rows] = (7 * s + 3 * i) % 60;
			pos[rows] = i;
		}
		q_start[s + 1] = rows;
	}
	struct dt_infer_batch b = {
		.nseq = 5, .ntokens = rows, .ids = ids, .pos = pos, .q_start = q_start, .hidden = together};
	assert_int_equal(dt_infer_forward(f.m, &b, NULL, &err), 0);
	for (int s = 0; s < 5; s++) {
		const int32_t own[] = {0, lengths[s]};
		const struct dt_infer_batch one = {.nseq = 1,
						   .ntokens = lengths[s],
						   .ids = ids + q_start[s],
						   .pos = f.pos,
						   .q_start = own,
						   .hidden = alone};

		assert_int_equal(dt_infer_forward(f.m, &one, NULL, &err), 0);
		golden_assert_close("alone", together + q_start[s] * 32, alone, lengths[s] * 32, 1e-3, 1e-6);
	}
	teardown(&f);
}

static void classes_of(int gguf)
{
	struct dt_labels *l;
	struct fixture f;
	float first[2][64] = {{0}}, *pool[2] = {first[0], first[1]}, got[6], *want;
	struct dt_err err;
	int64_t n;

	setup_from(&f, "bertclasses", true, gguf);
	run(&f, NULL, pool);
	want = golden_f32(&f.g, "label_logits", &n);
	assert_int_equal(n, 6);
	assert_int_equal(dt_labels_open(f.src, &l, &err), 0);
	assert_non_null(l);
	for (int s = 0; s < 2; s++)
		assert_int_equal(dt_labels_of(l, first[s], got + 3 * s), 0);
	golden_assert_close("classes", got, want, n, 1e-3, 1e-5);
	dt_labels_close(l);
	free(want);
	teardown(&f);
}

static void test_classes(void **state)
{
	classes_of(-1);
	classes_of(DT_FMT_F32);
}

/* Who asks for next tokens is refused, by name. */
static void test_refused(void **state)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = -1,
				    .max_tokens = 8,
				    .max_seqs = 1,
				    .blocks = 1,
				    .block_size = 8};
	struct fixture f;
	struct dt_infer *m;
	struct dt_err err;

	setup(&f, "bert", false);
	assert_int_equal(dt_infer_open(&m, f.dev, f.src, &p, &err), -ENOTSUP);
	assert_non_null(strstr(err.msg, "is an encoder: it predicts no next token"));
	p.embeds = true;
	p.adapters = 4;
	assert_int_equal(dt_infer_open(&m, f.dev, f.src, &p, &err), -ENOTSUP);
	assert_non_null(strstr(err.msg, "with adapters"));
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bert),	cmocka_unit_test(test_roberta), cmocka_unit_test(test_ragged),
		cmocka_unit_test(test_classes), cmocka_unit_test(test_refused), cmocka_unit_test(test_gguf),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
/* SPDX-License-Identifier: Apache-2.0 */
