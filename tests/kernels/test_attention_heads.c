/*
 * Backward of attention on a processor of many threads. Where there are few heads, all threads share each of
 * them: the same bits as of one thread, which the other files hold to f64 loops.
 */
#include "kernels/cpu/cpu.h"

#include "check.h"

#define THREADS 12

static struct dt_dev *one, *many;

static int64_t width(const struct dt_attn *p)
{
	return (p->heads + p->kv_heads) * p->head_dim + p->kv_heads * dt_attn_value_dim(p);
}

static int64_t scratch(const struct dt_dev *dev)
{
	return (int64_t)dt_dev_scratch_most(dev, DT_SCRATCH_OP);
}

/* Bits of both devices. Sums are added to numbers if s adds. */
static void same(const struct dt_attn *p, const struct dt_attn_span *s, enum dt_dtype type, int64_t keys)
{
	const int64_t rows = p->batch * s->rows, out = p->heads * dt_attn_value_dim(p);
	const enum dt_dtype sums = s->add ? DT_F32 : type;
	struct dt_tensor q = random_tensor(type, rows, p->heads * p->head_dim, 1, 1),
			 kv = random_tensor(type, keys, width(p), 2, 1),
			 g = random_tensor(type, rows, out, 3, 1), o = tensor(type, rows, out),
			 lse = tensor(DT_F32, p->batch * p->heads, s->rows);
	struct dt_tensor dq = random_tensor(sums, rows, q.dim[1], 4, 1),
			 dkv = random_tensor(sums, keys, kv.dim[1], 5, 1), dq1 = copy_of(dq),
			 dkv1 = copy_of(dkv);

	assert_int_equal(one->ops->attention_span_forward(one, o, lse, q, kv, p, s), 0);
	assert_int_equal(one->ops->attention_span_backward(one, dq1, dkv1, g, o, lse, q, kv, p, s), 0);
	assert_int_equal(many->ops->attention_span_backward(many, dq, dkv, g, o, lse, q, kv, p, s), 0);
	check_same_bits("dq over threads", dq, dq1);
	check_same_bits("dkv over threads", dkv, dkv1);
	free_all(q.data, kv.data, g.data, o.data, lse.data, dq.data, dkv.data, dq1.data, dkv1.data);
}

/* The keys of a sequence are its own rows, columns after nobody's. */
static void test_own_keys(void **state)
{
	static const struct dt_attn shapes[] = {
		{1, 450, 1, 1, 64, 0, 0.125f},
		{1, 257, 5, 1, 40, 0, 0.2f},
		{2, 300, 4, 2, 16, 70, 0.25f, 2},
		{1, 333, 3, 3, 33, 0, 0.2f, 0, 24},
		{1, 200, 16, 1, 80, 1, 0.125f},
		{4, 260, 1, 1, 8, 0, 0.3f},
		{1, 30, 2, 1, 16, 0, 0.25f /* one tile */},
		{3, 210, 4, 2, 8, 0, 0.3f /* half as many as threads */},
	};
	static const struct dt_attn_run from_0 = {0, 0};

	for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes) * TYPES; i++) {
		const struct dt_attn *p = &shapes[i / TYPES];
		const struct dt_attn_span s = {.rows = p->seq,
					       .nrun = 1,
					       .run = &from_0,
					       .run_keys = p->seq,
					       .stride = p->seq,
					       .k_col = p->heads * p->head_dim,
					       .v_col = (p->heads + p->kv_heads) * p->head_dim,
					       .add = i % 2};

		same(p, &s, compute_types[i % TYPES], p->batch * p->seq);
	}
}

/* Documents, and keys in two runs of which the second comes first; the last queries see none of the keys. */
static void test_runs(void **state)
{
	static const struct dt_attn_run run[] = {{0, 230}, {150, 10}};
	const struct dt_attn p = {1, 0, 6, 2, 24, 0, 0.2f};
	int32_t pos[400], first[400];

	for (int i = 0; i < 400; i++) {
		pos[i] = 2 * i;
		first[i] = pos[i] / 170 * 170;
	}
	for (int i = 0; i < TYPES * 2; i++) {
		const struct dt_attn_span s = {.rows = 400,
					       .pos = pos,
					       .first = first,
					       .nrun = 2,
					       .run = run,
					       .run_keys = 150,
					       .stride = 400,
					       .k_col = p.heads * p.head_dim,
					       .v_col = (p.heads + p.kv_heads) * p.head_dim,
					       .add = i >= TYPES};

		same(&p, &s, compute_types[i % TYPES], 400);
	}
}

/* Threads share the sums and the packed keys of a head, and so need little more memory than one thread. */
static void test_scratch(void **state)
{
	const struct dt_attn p = {1, 4096, 1, 1, 16, 8, 0.25f};
	struct dt_tensor x = random_tensor(DT_BF16, p.seq, width(&p), 1, 1), g = tensor(DT_BF16, p.seq, 16),
			 o = tensor(DT_BF16, p.seq, 16), lse = tensor(DT_F32, 1, p.seq),
			 dx = tensor(DT_BF16, p.seq, width(&p));

	assert_int_equal(one->ops->attention_forward(one, o, lse, x, &p), 0);
	assert_int_equal(one->ops->attention_backward(one, dx, g, o, lse, x, &p), 0);
	assert_int_equal(many->ops->attention_backward(many, dx, g, o, lse, x, &p), 0);
	assert_in_range(scratch(many), scratch(one), 3 * scratch(one));
	free_all(x.data, g.data, o.data, lse.data, dx.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scratch), /* first: scratch memory only grows */
		cmocka_unit_test(test_own_keys),
		cmocka_unit_test(test_runs),
	};
	int rc;

	one = open_device(1);
	many = open_device(THREADS);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(one);
	dt_dev_close(many);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
