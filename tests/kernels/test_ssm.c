/*
 * Mamba-2's mixer against the recurrence token by token in f64, and its gradients against finite differences
 * of that recurrence: of several chunks, with documents that end within a chunk and at its edge.
 */
#include "check.h"

static struct dt_dev *dev;

enum { W, BIAS, DT_BIAS, A_LOG, D, WEIGHTS };

/* The mixer in f64: u [rows, conv], t [rows, heads] and z -> y [rows, inner], the weights in v. */
struct mixer {
	const struct dt_ssm *p;
	double *u, *t, *z, *v[WEIGHTS];
	double *xbc, *scan, *y;
};

static double softplus(double x)
{
	return x > 20 ? x : log1p(exp(x));
}

static int64_t starts(const struct dt_ssm *p, int64_t row)
{
	return p->first ? p->first[row] : 0;
}

static void conv_ref(const struct mixer *m)
{
	const struct dt_ssm *p = m->p;
	const int64_t n = dt_ssm_conv(p);

	for (int64_t row = 0; row < p->batch * p->seq; row++)
		for (int64_t c = 0; c < n; c++) {
			double sum = m->v[BIAS][c];

			for (int64_t k = 0; k < p->kernel; k++) {
				const int64_t t = row % p->seq - p->kernel + 1 + k;

				if (t >= starts(p, row))
					sum += m->v[W][c * p->kernel + k] *
					       m->u[(row - p->kernel + 1 + k) * n + c];
			}
			m->xbc[row * n + c] = act_ref(sum, DT_ACT_SILU);
		}
}

static void scan_ref(const struct mixer *m)
{
	const struct dt_ssm *p = m->p;
	const int64_t n = dt_ssm_conv(p), inner = dt_ssm_inner(p);
	double *s = reals(p->head_dim * p->state);

	for (int64_t h = 0; h < p->heads; h++) {
		const int64_t g = h / (p->heads / p->groups);

		for (int64_t row = 0; row < p->batch * p->seq; row++) {
			const double *x = m->xbc + row * n + h * p->head_dim,
				     *b = m->xbc + row * n + inner + g * p->state,
				     *c = b + p->groups * p->state,
				     dt = softplus(m->t[row * p->heads + h] + m->v[DT_BIAS][h]),
				     keep = row % p->seq == starts(p, row) ? 0
									   : exp(-dt * exp(m->v[A_LOG][h]));

			for (int64_t i = 0; i < p->head_dim; i++) {
				double sum = m->v[D][h] * x[i];

				for (int64_t j = 0; j < p->state; j++) {
					double *e = s + i * p->state + j;

					*e = (keep > 0 ? keep * *e : 0) + dt * x[i] * b[j];
					sum += *e * c[j];
				}
				m->scan[row * inner + h * p->head_dim + i] = sum;
			}
		}
	}
	free(s);
}

static void mixer_ref(const struct mixer *m)
{
	const struct dt_ssm *p = m->p;

	conv_ref(m);
	scan_ref(m);
	for (int64_t i = 0; i < p->batch * p->seq * dt_ssm_inner(p); i++)
		m->y[i] = m->scan[i] * act_ref(m->z[i], DT_ACT_SILU);
}

struct case_of {
	struct dt_tensor u, t, z, w[WEIGHTS], xbc, scan, y; /* forward */
	struct dt_tensor dy, du, dt, dz, dxbc, dscan, dw[WEIGHTS];
};

static int64_t weight_n(const struct dt_ssm *p, int i)
{
	return i == W ? dt_ssm_conv(p) * p->kernel : i == BIAS ? dt_ssm_conv(p) : p->heads;
}

static void run(struct case_of *c, const struct dt_ssm *p)
{
	const struct dt_ops *o = dev->ops;

	assert_int_equal(o->ssm_conv(dev, c->xbc, c->u, c->w[W], c->w[BIAS], p), 0);
	assert_int_equal(o->ssm_scan(dev, c->scan, c->xbc, c->t, c->w[DT_BIAS], c->w[A_LOG], c->w[D], p), 0);
	assert_int_equal(o->ssm_gate(dev, c->y, c->scan, c->z), 0);
	assert_int_equal(o->ssm_gate_backward(dev, c->dscan, c->dz, c->dy, c->scan, c->z), 0);
	assert_int_equal(o->ssm_scan_backward(dev, c->dxbc, c->dt, c->dw[DT_BIAS], c->dw[A_LOG], c->dw[D],
					      c->dscan, c->xbc, c->t, c->w[DT_BIAS], c->w[A_LOG], c->w[D], p),
			 0);
	assert_int_equal(o->ssm_conv_backward(dev, c->du, c->dw[W], c->dw[BIAS], c->dxbc, c->u, c->w[W],
					      c->w[BIAS], p),
			 0);
}

static struct case_of make(enum dt_dtype t, const struct dt_ssm *p)
{
	const int64_t rows = p->batch * p->seq, inner = dt_ssm_inner(p), n = dt_ssm_conv(p);
	struct case_of c = {.u = random_tensor(t, rows, n, 1, 1.5),
			    .t = random_tensor(t, rows, p->heads, 40, 1.5),
			    .z = random_tensor(t, rows, inner, 41, 1.5),
			    .xbc = tensor(t, rows, n),
			    .scan = tensor(t, rows, inner),
			    .y = tensor(t, rows, inner),
			    .dy = random_tensor(t, rows, inner, 2, 1),
			    .du = tensor(t, rows, n),
			    .dt = tensor(t, rows, p->heads),
			    .dz = tensor(t, rows, inner),
			    .dxbc = tensor(t, rows, n),
			    .dscan = tensor(t, rows, inner)};

	for (int i = 0; i < WEIGHTS; i++) {
		c.w[i] = random_tensor(i == A_LOG ? DT_F32 : t, 1, weight_n(p, i), 3 + (uint32_t)i, 1);
		c.dw[i] = random_tensor(DT_F32, 1, weight_n(p, i), 20 + (uint32_t)i, 0);
	}
	return c;
}

static void drop(struct case_of *c)
{
	free_all(c->u.data, c->t.data, c->z.data, c->dt.data, c->dz.data, c->xbc.data, c->scan.data,
		 c->y.data, c->dy.data, c->du.data, c->dxbc.data, c->dscan.data);
	for (int i = 0; i < WEIGHTS; i++)
		free_all(c->w[i].data, c->dw[i].data);
}

static struct mixer mixer_of(const struct case_of *c, const struct dt_ssm *p)
{
	struct mixer m = {.p = p,
			  .u = values(c->u),
			  .t = values(c->t),
			  .z = values(c->z),
			  .xbc = reals(dt_numel(c->xbc)),
			  .scan = reals(dt_numel(c->y)),
			  .y = reals(dt_numel(c->y))};

	for (int i = 0; i < WEIGHTS; i++)
		m.v[i] = values(c->w[i]);
	return m;
}

static void drop_mixer(struct mixer *m)
{
	free_all(m->u, m->t, m->z, m->xbc, m->scan, m->y);
	for (int i = 0; i < WEIGHTS; i++)
		free(m->v[i]);
}

static double loss(const struct mixer *m, const double *dy)
{
	double sum = 0;

	mixer_ref(m);
	for (int64_t i = 0; i < m->p->batch * m->p->seq * dt_ssm_inner(m->p); i++)
		sum += m->y[i] * dy[i];
	return sum;
}

static double largest(const double *x, int64_t n)
{
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

/* Some elements of a gradient against central differences of the loss in *at. */
static void check_gradient(const char *what, const struct mixer *m, const double *dy, double *at,
			   struct dt_tensor got, int some, double tol)
{
	const int64_t n = dt_numel(got), step = n > some ? n / some : 1;
	double most = 0;

	for (int64_t i = 0; i < n; i++)
		most = fmax(most, fabs(get(got, i)));
	for (int64_t i = 0; i < n; i += step) {
		const double was = at[i], h = 1e-5;
		double want;

		at[i] = was + h;
		want = loss(m, dy);
		at[i] = was - h;
		want = (want - loss(m, dy)) / (2 * h);
		at[i] = was;
		if (!(fabs(get(got, i) - want) <= tol * (1 + most)))
			fail_msg("d%s [%lld] of %lld: got %.9g, want %.9g (largest %.3g)", what, (long long)i,
				 (long long)n, get(got, i), want, most);
	}
}

static void mixer(enum dt_dtype t, struct dt_ssm p, double tol, double tol_d)
{
	static const char *const name[] = {"w", "bias", "dt_bias", "a_log", "d"};
	struct case_of c = make(t, &p);
	struct mixer m = mixer_of(&c, &p);
	double *dy = values(c.dy);

	run(&c, &p);
	mixer_ref(&m);
	check_close("xbc", c.xbc, m.xbc, tol * largest(m.xbc, dt_numel(c.xbc)), 0);
	check_close("scan", c.scan, m.scan, tol * largest(m.scan, dt_numel(c.y)), 0);
	check_close("y", c.y, m.y, tol * largest(m.y, dt_numel(c.y)), 0);
	check_gradient("u", &m, dy, m.u, c.du, 100, tol_d);
	check_gradient("t", &m, dy, m.t, c.dt, 30, tol_d);
	check_gradient("z", &m, dy, m.z, c.dz, 20, tol_d);
	for (int i = 0; i < WEIGHTS;
	     i++) /* those of the scan are sums over all pairs of rows, which cancel */
		check_gradient(name[i], &m, dy, m.v[i], c.dw[i], 12, i < DT_BIAS ? tol_d : 5 * tol_d);
	free(dy);
	drop_mixer(&m);
	drop(&c);
}

static void test_mixer(void **state)
{
	static const struct dt_ssm shapes[] = {{2, 37, 4, 8, 2, 16, 4},	  {1, 1, 1, 1, 1, 1, 1},
					       {1, 300, 3, 20, 1, 17, 4}, {2, 129, 2, 5, 2, 3, 2},
					       {1, 128, 4, 16, 1, 32, 4}, {1, 70, 34, 3, 17, 2, 7},
					       {1, 70, 2, 72, 1, 72, 16}};

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		mixer(DT_F32, shapes[i], 4e-6, 2e-5);
		mixer(DT_BF16, shapes[i], 3e-2, 4e-2);
		mixer(DT_F16, shapes[i], 4e-3, 6e-3);
	}
}

/* Documents that begin within chunks, at their edges, and with a single token. */
static void test_documents(void **state)
{
	static const int32_t begin[] = {0, 1, 40, 128, 130, 256, 290};
	struct dt_ssm p = {2, 300, 3, 20, 1, 17, 4};
	int32_t *first = malloc(2 * 300 * sizeof(*first));

	for (int i = 0; i < 600; i++) {
		first[i] = 0;
		for (size_t k = 0; k < sizeof(begin) / sizeof(begin[0]); k++)
			if (i < 300 ? i >= begin[k] : i - 300 >= begin[k] && k % 2 == 0)
				first[i] = begin[k];
	}
	p.first = first;
	mixer(DT_F32, p, 4e-6, 2e-5);
	mixer(DT_BF16, p, 3e-2, 4e-2);
	free(first);
}

/* The same bits on one thread and on three, and (a card) in every call. */
static void test_threads(void **state)
{
	const struct dt_ssm p = {3, 150, 4, 16, 2, 32, 4};
	struct case_of one = make(DT_F32, &p), more = make(DT_F32, &p);
	struct dt_dev *all = dev;

	run(&more, &p);
	if (!on_device())
		assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 1), 0);
	run(&one, &p);
	if (!on_device())
		dt_dev_close(dev);
	dev = all;
	check_same_bits("y", one.y, more.y);
	check_same_bits("du", one.du, more.du);
	check_same_bits("dt", one.dt, more.dt);
	check_same_bits("dz", one.dz, more.dz);
	for (int i = 0; i < WEIGHTS; i++)
		check_same_bits("dw", one.dw[i], more.dw[i]);
	drop(&one);
	drop(&more);
}

/* Gradients of weights are added, absent ones left out; tiny and large steps give finite gradients. */
static void test_edges(void **state)
{
	const struct dt_ssm p = {1, 140, 2, 8, 1, 8, 4};
	struct case_of c = make(DT_F32, &p);
	struct dt_tensor was;
	const struct dt_ssm bad[] = {
		{1, 140, 2, 8, 3, 8, 4}, {1, 140, 2, 8, 1, 8, 17}, {1, 141, 2, 8, 1, 8, 4}};

	run(&c, &p);
	was = copy_of(c.dw[A_LOG]);
	run(&c, &p);
	for (int64_t i = 0; i < p.heads; i++)
		assert_true(fabs(get(c.dw[A_LOG], i) - 2 * get(was, i)) <= 1e-5 * fabs(get(was, i)));
	for (int64_t i = 0; i < 140; i++) {
		put(c.t, 2 * i, i % 2 ? -200 : -100);
		put(c.t, 2 * i + 1, i % 3 ? -200 : 60);
	}
	for (int i = DT_BIAS; i < WEIGHTS; i++) {
		free(c.dw[i].data);
		c.dw[i] = DT_NONE;
	}
	run(&c, &p);
	for (int64_t i = 0; i < dt_numel(c.du); i++)
		assert_true(isfinite(get(c.du, i)));
	for (int64_t i = 0; i < dt_numel(c.dt); i++)
		assert_true(isfinite(get(c.dt, i)));
	for (int i = 0; i < 3; i++)
		assert_int_equal(dev->ops->ssm_conv(dev, c.xbc, c.u, c.w[W], c.w[BIAS], &bad[i]), -EINVAL);
	free(was.data);
	drop(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixer),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_edges),
	};
	int rc;

	dev = open_device(3);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
