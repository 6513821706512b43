/*
 * Mamba-2's convolution and scan in serving: against those of training over whole sequences, which test_ssm.c
 * holds to a recurrence in f64; the same bits however the rows come in calls.
 */
#include "check.h"

static struct dt_dev *dev;

enum { SEQS = 3, SLOTS = 5, ROWS = 90 };

struct operands { /* u, t and results of each sequence, and the weights */
	struct dt_tensor u[SEQS], t[SEQS], xbc[SEQS], y[SEQS], w, bias, dt_bias, a_log, d;
};

static const int64_t length[SEQS] = {ROWS, 1, 37};

static struct operands make(enum dt_dtype type, const struct dt_ssm *p)
{
	const int64_t n = dt_ssm_conv(p);
	struct operands o = {.w = random_tensor(type, n, p->kernel, 1, 1),
			     .bias = random_tensor(type, 1, n, 2, 1),
			     .dt_bias = random_tensor(DT_F32, 1, p->heads, 3, 1),
			     .a_log = random_tensor(DT_F32, 1, p->heads, 4, 1),
			     .d = random_tensor(type, 1, p->heads, 5, 1)};

	for (int i = 0; i < SEQS; i++) {
		o.u[i] = random_tensor(type, length[i], n, 10 + (uint32_t)i, 1.5);
		o.t[i] = random_tensor(type, length[i], p->heads, 20 + (uint32_t)i, 1.5);
		o.xbc[i] = tensor(type, length[i], n);
		o.y[i] = tensor(type, length[i], dt_ssm_inner(p));
	}
	return o;
}

static void drop(struct operands *o)
{
	free_all(o->w.data, o->bias.data, o->dt_bias.data, o->a_log.data, o->d.data);
	for (int i = 0; i < SEQS; i++)
		free_all(o->u[i].data, o->t[i].data, o->xbc[i].data, o->y[i].data);
}

/* As in training. */
static void whole(struct operands *o, struct dt_ssm p)
{
	for (int i = 0; i < SEQS; i++) {
		p.seq = length[i];
		assert_int_equal(dev->ops->ssm_conv(dev, o->xbc[i], o->u[i], o->w, o->bias, &p), 0);
		assert_int_equal(
			dev->ops->ssm_scan(dev, o->y[i], o->xbc[i], o->t[i], o->dt_bias, o->a_log, o->d, &p),
			0);
	}
}

static void move(struct dt_tensor to, int64_t at, struct dt_tensor from, int64_t row, int64_t n)
{
	const int64_t bytes = dt_cols(from) * dt_dtype_size(from.dtype);

	memcpy((char *)to.data + at * bytes, (const char *)from.data + row * bytes, (size_t)(n * bytes));
}

static struct dt_tensor from_row(struct dt_tensor t, int64_t row)
{
	t.data = (char *)t.data + row * dt_cols(t) * dt_dtype_size(t.dtype);
	return t;
}

/* In calls of at most `most` rows of each sequence; base: slots with rubbish in them. */
static void in_calls(struct operands *o, struct dt_ssm p, int64_t most, float *base)
{
	const enum dt_dtype type = o->u[0].dtype;
	static const int32_t slots[SEQS] = {4, 0, 2};
	int64_t done[SEQS] = {0};

	for (;;) {
		struct dt_tensor u = tensor(type, SEQS * most, dt_ssm_conv(&p)),
				 t = tensor(type, SEQS * most, p.heads),
				 xbc = tensor(type, SEQS * most, dt_ssm_conv(&p)),
				 y = tensor(type, SEQS * most, dt_ssm_inner(&p));
		int32_t q_start[SEQS + 1] = {0}, pos[SEQS * ROWS], slot[SEQS];
		struct dt_ssm_slots s = {
			.q_start = q_start, .pos = pos, .slot = slot, .slots = SLOTS, .base = base};
		int of[SEQS];

		for (int i = 0; i < SEQS; i++) {
			const int64_t left = length[i] - done[i], n = left < most ? left : most,
				      at = q_start[s.nseq];

			if (!n)
				continue;
			move(u, at, o->u[i], done[i], n);
			move(t, at, o->t[i], done[i], n);
			for (int64_t k = 0; k < n; k++)
				pos[at + k] = (int32_t)(done[i] + k);
			slot[s.nseq] = slots[i];
			of[s.nseq++] = i;
			q_start[s.nseq] = (int32_t)(at + n);
		}
		if (s.nseq) {
			p.seq = q_start[s.nseq];
			u.dim[0] = t.dim[0] = xbc.dim[0] = y.dim[0] = p.seq;
			assert_int_equal(dev->ops->ssm_conv_step(dev, xbc, u, o->w, o->bias, &p, &s), 0);
			assert_int_equal(
				dev->ops->ssm_scan_step(dev, y, xbc, t, o->dt_bias, o->a_log, o->d, &p, &s),
				0);
		}
		for (int i = 0; i < s.nseq; i++) {
			const int64_t n = q_start[i + 1] - q_start[i];

			move(o->xbc[of[i]], done[of[i]], from_row(xbc, q_start[i]), 0, n);
			move(o->y[of[i]], done[of[i]], from_row(y, q_start[i]), 0, n);
			done[of[i]] += n;
		}
		free_all(u.data, t.data, xbc.data, y.data);
		if (!s.nseq)
			return;
	}
}

static void compare(enum dt_dtype type, const struct dt_ssm *p, double tol)
{
	struct operands want = make(type, p), got = make(type, p), other = make(type, p);
	const int64_t n = SLOTS * dt_ssm_slot(p);
	float *base = malloc((size_t)n * sizeof(*base));

	for (int64_t i = 0; i < n; i++)
		base[i] = i % 7 ? 1e30f : NAN;
	whole(&want, *p);
	in_calls(&got, *p, ROWS, base);
	for (int i = 0; i < SEQS; i++) {
		double *x = values(want.xbc[i]), *y = values(want.y[i]), most = 0;

		for (int64_t k = 0; k < dt_numel(want.y[i]); k++)
			most = fmax(most, fabs(y[k]));
		check_close("xbc", got.xbc[i], x, tol, tol);
		check_close("y", got.y[i], y, tol * most, 0);
		free_all(x, y);
	}
	for (int64_t each = 1; each < ROWS; each = 3 * each + 1) {
		in_calls(&other, *p, each, base); /* the slots hold what the calls before left */
		for (int i = 0; i < SEQS; i++) {
			check_same_bits("xbc", other.xbc[i], got.xbc[i]);
			check_same_bits("y", other.y[i], got.y[i]);
		}
	}
	drop(&want);
	drop(&got);
	drop(&other);
	free(base);
}

static void test_steps(void **state)
{
	static const struct dt_ssm shapes[] = {{1, 0, 4, 16, 2, 24, 4},
					       {1, 0, 3, 20, 1, 17, 4},
					       {1, 0, 1, 1, 1, 1, 1},
					       {1, 0, 2, 64, 1, 128, 2},
					       {1, 0, 1, 40, 1, 136, 7}};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		compare(DT_F32, &shapes[i], 1e-5);
		compare(DT_BF16, &shapes[i], 1e-2);
	}
}

static void test_refused(void **state)
{
	const struct dt_ssm p = {1, 1, 2, 8, 1, 8, 4}, two = {2, 1, 2, 8, 1, 8, 4};
	struct operands o = make(DT_F32, &p);
	const int32_t q_start[] = {0, 1}, zero[] = {0};
	float base[256] = {0}; /* a slot */
	const struct dt_ssm_slots s = {1, q_start, zero, zero, 1, base},
				  none = {1, q_start, zero, zero, 1, NULL};

	assert_int_equal(dev->ops->ssm_conv_step(dev, o.xbc[1], o.u[1], o.w, o.bias, &two, &s), -EINVAL);
	assert_int_equal(dev->ops->ssm_conv_step(dev, o.xbc[1], o.u[1], o.w, o.bias, &p, &none), -EINVAL);
	assert_int_equal(
		dev->ops->ssm_scan_step(dev, o.y[1], o.xbc[1], o.t[1], o.dt_bias, o.a_log, o.d, &p, &none),
		-EINVAL);
	drop(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps), cmocka_unit_test(test_refused)};
	int rc;

	dev = open_device(3);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
