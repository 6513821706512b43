/* Three steps of every optimizer against the formulas of optim.h in f64. */
#include "group.h"
#include "optim_ref.h"

#include "kernels/blocks8.h"

static void one(enum dt_optim_kind kind, int64_t n, enum dt_dtype gtype, enum dt_dtype copy_type)
{
	struct dt_optim o = {kind, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 0, 0.3f};
	const bool direction = dt_optim_rule(kind)->flags & DT_OPTIM_DIRECTION;
	struct dt_tensor p = random_tensor(DT_F32, 1, n, 1, 1), s1 = tensor(DT_F32, 1, n),
			 s2 = tensor(DT_F32, 1, n);
	struct dt_tensor copy = tensor(copy_type, 1, n), want_copy = tensor(copy_type, 1, n);
	double *rp = values(p), *r1 = reals(n), *r2 = reals(n);

	if (direction)
		gtype = DT_F32;
	assert_int_equal(dev->ops->fill(dev, s1, 0), 0);
	assert_int_equal(dev->ops->fill(dev, s2, 0), 0);
	for (o.t = 1; o.t <= 3; o.t++) {
		struct dt_tensor g = random_tensor(gtype, 1, n, 10 + (uint32_t)o.t, 1);
		double *rg = values(g);

		for (int64_t i = 0; i < n; i++)
			ref_step(&o, &rp[i], &rg[i], &r1[i], &r2[i]);
		assert_int_equal(dev->ops->optim_step(dev, &o,
						      copy_type == DT_F32 || direction ? DT_NONE : copy, p, g,
						      dt_optim_states(kind) > 0 ? s1 : DT_NONE,
						      dt_optim_states(kind) > 1 ? s2 : DT_NONE),
				 0);
		check_close("g", g, rg, direction ? 2e-5 : 1e-6, direction ? 2e-6 : 1e-6);
		free(g.data);
		free(rg);
	}
	check_close("p", p, rp, 1e-6, 1e-6);
	check_close("s1", s1, r1, 1e-6, 1e-6);
	check_close("s2", s2, r2, 1e-6, 1e-6);
	for (int64_t i = 0; i < n; i++)
		put(want_copy, i, get(p, i));
	if (copy_type != DT_F32 && !direction)
		check_same_bits("copy", copy, want_copy);
	o.t = 0;
	if (dt_optim_rule(kind)->flags & DT_OPTIM_CORRECTED)
		assert_int_equal(dev->ops->optim_step(dev, &o, DT_NONE, p, p, s1, s2), -EINVAL);
	free_all(p.data, s1.data, s2.data, copy.data, want_copy.data, rp, r1, r2);
}

static void test_optimizers(void **state)
{
	for (int k = 0; k < DT_OPTIM_N; k++) {
		const struct dt_optim_rule *r = dt_optim_rule((enum dt_optim_kind)k);

		/* Those with factors are held to golden data, tests/unit/test_whole_step.c. */
		if ((r->flags & DT_OPTIM_FACTORED) || r->state[0].shape == DT_STATE_BLOCKS)
			continue;
		one((enum dt_optim_kind)k, 1, DT_F32, DT_F32);
		one((enum dt_optim_kind)k, 4099, DT_F32, DT_BF16);
		one((enum dt_optim_kind)k, 10007, DT_BF16, DT_F16);
		one((enum dt_optim_kind)k, 513, DT_F16, DT_F16);
	}
}

/* Moments of parameters without gradients decay to subnormals, where 0.9 x rounds to x: they become zero. */
static void test_subnormals(void **state)
{
	enum { N = 4100 };

	if (dev->kind != DT_DEV_CPU)
		skip();
	for (int k = 0; k < DT_OPTIM_N; k++) {
		const struct dt_optim_rule *r = dt_optim_rule((enum dt_optim_kind)k);
		const struct dt_optim o = {(enum dt_optim_kind)k, 0.01f, 0.9f, 0.95f, 1e-8f, 0, 1, 100, 0.3f};
		struct dt_tensor p, g, s[2];

		if ((r->flags & DT_OPTIM_FACTORED) || r->state[0].shape == DT_STATE_BLOCKS)
			continue;
		p = tensor(DT_F32, 1, N);
		g = tensor(DT_F32, 1, N);
		for (int i = 0; i < 2; i++)
			assert_int_equal(dev->ops->fill(dev, s[i] = tensor(DT_F32, 1, N), 4e-45), 0);
		assert_int_equal(dev->ops->fill(dev, p, 0.5), 0);
		assert_int_equal(dev->ops->fill(dev, g, 0), 0);
		assert_int_equal(dev->ops->optim_step(dev, &o, DT_NONE, p, g,
						      dt_optim_states(o.kind) > 0 ? s[0] : DT_NONE,
						      dt_optim_states(o.kind) > 1 ? s[1] : DT_NONE),
				 0);
		for (int i = 0; i < (k == DT_OPTIM_MUON ? 1 : dt_optim_states(o.kind)); i++)
			for (int64_t j = 0; j < N; j++)
				if (get(s[i], j) != 0)
					fail_msg("%s: state %d is %g", r->name, i, get(s[i], j));
		/* arithmetic is as before behind it */
		assert_true((float)get(p, 0) * 0x1p-140f > 0);
		free_all(p.data, g.data, s[0].data, s[1].data);
	}
}

/* A block's codes beside those of what the formulas give: the next one at most, and seldom. */
static void check_blocks(const char *name, struct dt_tensor got, const double *want, int64_t n,
			 bool is_signed)
{
	const int64_t scales = (n + DT_STATE_BLOCK - 1) / DT_STATE_BLOCK;
	struct dt_tensor state = tensor(DT_U8, 1, dt_numel(got));
	const uint8_t *a = (const uint8_t *)got.data + 4 * scales,
		      *b = (const uint8_t *)state.data + 4 * scales;
	float *x = malloc((size_t)n * sizeof(*x));
	int64_t other = 0;

	for (int64_t i = 0; i < n; i++)
		x[i] = (float)want[i];
	dt_blocks8_encode(state.data, n, 0, x, n, is_signed);
	for (int64_t i = 0; i < scales; i++) {
		const double g = (double)((float *)got.data)[i], w = (double)((float *)state.data)[i];

		if (!(fabs(g - w) <= 1e-6 * fabs(w)))
			fail_msg("%s: scale %lld is %.9g, want %.9g", name, (long long)i, g, w);
	}
	for (int64_t i = 0; i < n; i++) {
		if (abs(a[i] - b[i]) > 1)
			fail_msg("%s: code %lld is %d, want %d", name, (long long)i, a[i], b[i]);
		other += a[i] != b[i];
	}
	assert_in_range(other, 0, n / 500 + 1);
	free_all(state.data, x);
}

/* x [n], with the scale 1: the nearest code, and the lower one halfway; NaN has code 0. */
static void check_codes(const float *x, int n, bool is_signed)
{
	const int scales = (n + DT_STATE_BLOCK - 1) / DT_STATE_BLOCK;
	const float *map = dt_blocks8_map(is_signed);
	struct dt_tensor s = tensor(DT_U8, 1, 4 * scales + n);

	dt_blocks8_encode(s.data, n, 0, x, n, is_signed);
	for (int i = 0; i < n; i++) {
		const int code = ((uint8_t *)s.data)[4 * scales + i];
		int want = 0;

		while (want < 255 && x[i] > 0.5f * (map[want] + map[want + 1]))
			want++;
		if (code != want)
			fail_msg("%.9g has code %d, want %d", (double)x[i], code, want);
	}
	free(s.data);
}

/* The same on every processor: midpoints, the floats beside them, the map, and others. */
static void test_codes(void **state)
{
	enum { N = 9 * DT_STATE_BLOCK + 77 };
	static float x[N];

	for (int is_signed = 0; is_signed < 2; is_signed++)
		for (int set = 0; set < 5; set++) {
			const float *map = dt_blocks8_map(is_signed);

			for (int i = 0; i < N; i++) {
				const float half = 0.5f * (map[i % 255] + map[i % 255 + 1]);

				x[i] = set == 0	  ? half
				       : set == 1 ? nextafterf(half, 2)
				       : set == 2 ? nextafterf(half, -2)
				       : set == 3 ? map[i % 256]
						  : (float)ldexp(rnd(7, i), -(i % 29));
				x[i] = i % DT_STATE_BLOCK == 5 ? 1 : x[i]; /* the scale */
				x[i] = i % 100 == 99 ? NAN : i % 100 == 98 ? -0.f : x[i];
			}
			check_codes(x, N, is_signed);
		}
}

/* adamw8bit: each step from the moments that its states hold. */
static void blocks(int64_t n, enum dt_dtype gtype)
{
	struct dt_optim o = {DT_OPTIM_ADAMW8BIT, 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, 0, 0.3f};
	const int64_t bytes = dt_optim_state_bytes(&dt_optim_rule(o.kind)->state[0], 1, n);
	struct dt_tensor p = random_tensor(DT_F32, 1, n, 1, 1), copy = tensor(DT_BF16, 1, n),
			 s[2] = {tensor(DT_U8, 1, bytes), tensor(DT_U8, 1, bytes)};
	double *rp = values(p), *r[2] = {reals(n), reals(n)};
	float *wide = malloc((size_t)n * sizeof(*wide));

	memset(s[0].data, 0, (size_t)bytes);
	memset(s[1].data, 0, (size_t)bytes);
	for (o.t = 1; o.t <= 3; o.t++) {
		struct dt_tensor g = random_tensor(gtype, 1, n, 10 + (uint32_t)o.t, 1);
		double *rg = values(g);

		if (o.t == 2 && n > DT_STATE_BLOCK) /* two of the largest magnitude: the first counts */
			put(g, 3, 5), rg[3] = 5, put(g, 200, -5), rg[200] = -5;
		for (int k = 0; k < 2; k++) {
			dt_blocks8_decode(wide, s[k].data, n, 0, n, k == 0);
			for (int64_t i = 0; i < n; i++)
				r[k][i] = (double)wide[i];
		}
		for (int64_t i = 0; i < n; i++)
			rp[i] = get(p, i);
		for (int64_t i = 0; i < n; i++)
			ref_apart(&o, &rp[i], &rg[i], &r[0][i], &r[1][i]);
		assert_int_equal(dev->ops->optim_step(dev, &o, copy, p, g, s[0], s[1]), 0);
		check_close("p", p, rp, 1e-6, 1e-6);
		check_blocks("m", s[0], r[0], n, true);
		check_blocks("v", s[1], r[1], n, false);
		free_all(g.data, rg);
	}
	free_all(p.data, copy.data, s[0].data, s[1].data, rp, r[0], r[1], wide);
}

static void test_blocks(void **state)
{
	blocks(1, DT_F32);
	blocks(256, DT_F32);
	blocks(5003, DT_F32);
	blocks(1000, DT_BF16);
}

/* A wanted state that is missing, or a wrong type, changes nothing. */
static void test_refused(void **state)
{
	struct dt_optim o = {DT_OPTIM_ADAMW, 0.1f, 0.9f, 0.99f, 1e-8f, 0, 1, 1, 0};
	struct dt_tensor p = random_tensor(DT_F32, 1, 5, 1, 1), was = copy_of(p),
			 h = random_tensor(DT_BF16, 1, 5, 1, 1);

	assert_int_equal(dev->ops->optim_step(dev, &o, DT_NONE, p, p, p, DT_NONE), -EINVAL);
	assert_int_equal(dev->ops->optim_step(dev, &o, p, p, p, p, p), -EINVAL);
	assert_int_equal(dev->ops->optim_step(dev, &o, DT_NONE, h, p, p, p), -EINVAL);
	o.kind = DT_OPTIM_ADAFACTOR; /* its ops are others */
	assert_int_equal(dev->ops->optim_step(dev, &o, DT_NONE, p, p, p, p), -EINVAL);
	o.kind = DT_OPTIM_LAMB; /* a direction is f32 */
	assert_int_equal(dev->ops->optim_step(dev, &o, DT_NONE, p, h, p, p), -EINVAL);
	check_same_bits("p", p, was);
	free_all(p.data, was.data, h.data);
}

/* The table: rows in the order of the names, states side by side, and bytes of every shape by hand. */
static void test_table(void **state)
{
	const struct dt_optim_state each = {"m", DT_STATE_EACH, DT_BF16}, rows = {"r", DT_STATE_ROWS, DT_F32},
				    cols = {"c", DT_STATE_COLS, DT_F32},
				    blocks = {"m", DT_STATE_BLOCKS, DT_U8}, none = {0};
	const char *names = DT_OPTIM_CHOICES;

	for (int k = 0; k < DT_OPTIM_N; k++) {
		const struct dt_optim_rule *r = dt_optim_rule((enum dt_optim_kind)k);
		size_t n = strcspn(names, "|");

		assert_true(strlen(r->name) == n && !strncmp(r->name, names, n));
		names += n + (names[n] == '|');
		for (int i = 0; i < DT_OPTIM_STATES; i++) {
			assert_true((r->state[i].shape != DT_STATE_NONE) == (r->state[i].name != NULL));
			assert_true((i < dt_optim_states((enum dt_optim_kind)k)) ==
				    (r->state[i].name != NULL));
		}
	}
	assert_true(*names == '\0');
	assert_int_equal(dt_optim_state_bytes(&each, 300, 7), 300 * 7 * 2);
	assert_int_equal(dt_optim_state_bytes(&rows, 300, 7), 300 * 4);
	assert_int_equal(dt_optim_state_bytes(&cols, 300, 7), 7 * 4);
	assert_int_equal(dt_optim_state_bytes(&blocks, 300, 7),
			 2100 + 9 * 4); /* 8 whole blocks and one begun */
	assert_int_equal(dt_optim_state_bytes(&none, 300, 7), 0);
	assert_int_equal(dt_optim_bytes(DT_OPTIM_SGD, 300, 7), 0);
	assert_int_equal(dt_optim_bytes(DT_OPTIM_RMSPROP, 300, 7), 300 * 7 * 4);
	assert_int_equal(dt_optim_bytes(DT_OPTIM_ADAMW, 300, 7), 300 * 7 * 8);
	assert_int_equal(dt_optim_bytes(DT_OPTIM_MUON, 300, 7), 300 * 7 * 4);
	assert_int_equal(dt_optim_bytes(DT_OPTIM_ADAFACTOR, 300, 7), 307 * 4);
	assert_true(fabs(dt_optim_element_bytes(DT_OPTIM_ADAMW8BIT) - 2.03125) < 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_optimizers), cmocka_unit_test(test_subnormals),
		cmocka_unit_test(test_codes),	   cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_refused),	   cmocka_unit_test(test_table)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
