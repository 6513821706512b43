/*
 * What trains mixtures of experts, against plain loops in f64 and finite differences: routers with sigmoids,
 * groups and biases, their gradient with both losses, choices by expert with and without a capacity, and
 * products by group in all three directions, with groups that are empty.
 */
#include "check.h"

#include "kernels/shape.h"

static struct dt_dev *dev;

static int32_t *ints(int64_t n)
{
	int32_t *p = malloc((size_t)n * 4 + 4);

	assert_non_null(p);
	memset(p, 0x7f, (size_t)n * 4 + 4);
	return p;
}

/* What experts are worth, whether each may be chosen, and the weights of those that are: by definition. */
static double worth(const struct dt_moe *p, const double *s, const double *bias, int64_t e)
{
	return (p->sigmoid ? 1 / (1 + exp(-s[e])) : s[e]) + (bias ? bias[e] : 0);
}

static double group_worth(const struct dt_moe *p, const double *s, const double *bias, int64_t g)
{
	const int64_t each = p->experts / p->groups;
	double best = -INFINITY, next = -INFINITY;

	for (int64_t e = g * each; e < (g + 1) * each; e++) {
		const double w = worth(p, s, bias, e);

		if (w > best) {
			next = best;
			best = w;
		} else if (w > next)
			next = w;
	}
	return p->sigmoid && each > 1 ? best + next : best;
}

static bool takes_part(const struct dt_moe *p, const double *s, const double *bias, int64_t e)
{
	const int64_t groups = p->groups > 1 ? p->groups : 1, mine = e / (p->experts / groups);
	int64_t better = 0;

	for (int64_t g = 0; g < groups && groups > 1; g++) {
		const double a = group_worth(p, s, bias, g), b = group_worth(p, s, bias, mine);

		better += a > b || (a == b && g < mine);
	}
	return groups == 1 || better < p->groups_used;
}

/* Weights of the given choices. */
static void weigh(const struct dt_moe *p, const double *s, const int32_t *expert, double *w)
{
	double sum = 0, scale = p->scale > 0 ? (double)p->scale : 1;

	for (int64_t j = 0; j < p->used; j++) {
		w[j] = p->sigmoid ? 1 / (1 + exp(-s[expert[j]])) : exp(s[expert[j]]);
		sum += w[j];
	}
	if (p->unscaled) {
		sum = p->sigmoid ? 1 : 0;
		for (int64_t e = 0; e < p->experts && !p->sigmoid; e++)
			sum += exp(s[e]);
	}
	for (int64_t j = 0; j < p->used; j++)
		w[j] *= scale / sum;
}

static const struct dt_moe routers[] = {
	{.experts = 6, .used = 2},
	{.experts = 6, .used = 2, .unscaled = true},
	{.experts = 9, .used = 9, .unscaled = true, .scale = 2.5f},
	{.experts = 12, .used = 3, .unscaled = true, .groups = 4, .groups_used = 2, .scale = 16},
	{.experts = 12, .used = 3, .sigmoid = true, .groups = 4, .groups_used = 2, .scale = 2.5f},
	{.experts = 8, .used = 3, .sigmoid = true},
	{.experts = 8, .used = 3, .sigmoid = true, .unscaled = true},
	{.experts = 256, .used = 8, .sigmoid = true, .groups = 8, .groups_used = 4, .scale = 2.5f},
};

static void route(const struct dt_moe *p, bool biased)
{
	const int64_t rows = 17;
	struct dt_tensor score = random_tensor(DT_F32, rows, p->experts, 3, 4),
			 weight = tensor(DT_F32, rows, p->used);
	struct dt_tensor bias = random_tensor(DT_F32, 1, p->experts, 5, 1);
	double *s = values(score), *b = values(bias), *want = reals(rows * p->used);
	int32_t *expert = ints(rows * p->used);

	bias = dt_t1(bias.data, DT_F32, p->experts);
	assert_int_equal(dev->ops->moe_route(dev, expert, weight.data, score, biased ? bias : DT_NONE, p), 0);
	for (int64_t i = 0; i < rows; i++) {
		const double *row = s + i * p->experts;

		for (int64_t j = 0; j < p->used; j++) {
			const int64_t e = expert[i * p->used + j];
			int64_t better = 0;

			assert_true(takes_part(p, row, biased ? b : NULL, e));
			for (int64_t o = 0; o < p->experts; o++)
				better += takes_part(p, row, biased ? b : NULL, o) &&
					  worth(p, row, biased ? b : NULL, o) >
						  worth(p, row, biased ? b : NULL, e);
			assert_int_equal(better, j);
		}
		weigh(p, row, expert + i * p->used, want + i * p->used);
	}
	check_close("weight", weight, want, 0, 2e-6);
	free_all(score.data, weight.data, bias.data, s, b, want, expert);
}

static void test_route(void **state)
{
	for (size_t i = 0; i < sizeof routers / sizeof *routers; i++) {
		route(&routers[i], false);
		route(&routers[i], true);
	}
}

/* The function whose gradient is asked for: choices stay as they are. */
static double total(const struct dt_moe *p, const double *s, const int32_t *expert, const double *dw,
		    const struct dt_moe_loss *l, int64_t i)
{
	double w[256], f = 0, sum = 0, top = -INFINITY, lse = 0;

	weigh(p, s, expert, w);
	for (int64_t j = 0; j < p->used; j++)
		f += dw[j] * w[j];
	for (int64_t e = 0; e < p->experts; e++) {
		top = s[e] > top ? s[e] : top;
		sum += p->sigmoid ? 1 / (1 + exp(-s[e])) : exp(s[e]);
	}
	for (int64_t e = 0; e < p->experts; e++)
		f += (double)l->balance * (double)l->load[i / l->load_rows * p->experts + e] *
		     (p->sigmoid ? 1 / (1 + exp(-s[e])) : exp(s[e])) / sum;
	for (int64_t e = 0; e < p->experts; e++)
		lse += exp(s[e] - top);
	lse = top + log(lse);
	return f + (double)l->z * lse * lse;
}

static void route_backward(const struct dt_moe *p)
{
	const int64_t rows = 6, n = p->experts;
	struct dt_tensor score = random_tensor(DT_F32, rows, n, 3, 2), weight = tensor(DT_F32, rows, p->used);
	struct dt_tensor dw = random_tensor(DT_F32, rows, p->used, 4, 1), got = tensor(DT_F32, rows, n);
	struct dt_tensor load = random_tensor(DT_F32, 2, n, 6, 1);
	double *s = values(score), *d = values(dw), *want = reals(rows * n), ret[2] = {0, 0},
	       sums[2] = {0, 0};
	int32_t *expert = ints(rows * p->used);
	struct dt_moe_loss l = {0.7f, 0.3f, load.data, 3, ret}, none = {.ret = NULL};

	assert_int_equal(dev->ops->moe_route(dev, expert, weight.data, score, DT_NONE, p), 0);
	assert_int_equal(dev->ops->moe_route_backward(dev, got, dw.data, expert, score, p, &l), 0);
	for (int64_t i = 0; i < rows; i++) {
		struct dt_moe_loss part = l;

		for (int64_t e = 0; e < n; e++) {
			const double h = 1e-5, was = s[i * n + e];
			double up, down;

			s[i * n + e] = was + h;
			up = total(p, s + i * n, expert + i * p->used, d + i * p->used, &l, i);
			s[i * n + e] = was - h;
			down = total(p, s + i * n, expert + i * p->used, d + i * p->used, &l, i);
			s[i * n + e] = was;
			want[i * n + e] = (up - down) / (2 * h);
		}
		part.z = 0;
		part.balance = 1;
		sums[0] += total(p, s + i * n, expert + i * p->used, d + i * p->used, &part, i);
		part.balance = 0;
		sums[0] -= total(p, s + i * n, expert + i * p->used, d + i * p->used, &part, i);
		part.z = 1;
		sums[1] += total(p, s + i * n, expert + i * p->used, d + i * p->used, &part, i);
		part.z = 0;
		sums[1] -= total(p, s + i * n, expert + i * p->used, d + i * p->used, &part, i);
	}
	check_close("dscore", got, want, 3e-6 * (p->scale > 1 ? (double)p->scale : 1), 1e-4);
	assert_true(fabs(ret[0] - sums[0]) < 1e-6 * (1 + fabs(sums[0])));
	assert_true(fabs(ret[1] - sums[1]) < 1e-6 * (1 + fabs(sums[1])));
	assert_int_equal(dev->ops->moe_route_backward(dev, got, dw.data, expert, score, p, &none), 0);
	expert[0] = (int32_t)n;
	assert_int_equal(dev->ops->moe_route_backward(dev, got, dw.data, expert, score, p, &l), -EINVAL);
	free_all(score.data, weight.data, dw.data, got.data, load.data, s, d, want, expert);
}

static void test_route_backward(void **state)
{
	for (size_t i = 0; i < sizeof routers / sizeof *routers; i++)
		route_backward(&routers[i]);
}

/* Of experts [begin, begin + n) the choices in order, at most capacity each, those of the largest weight. */
static void place(int64_t choices, const struct dt_moe_place *of)
{
	double dropped = 3, lost = 3;
	struct dt_moe_place with = *of;
	const struct dt_moe_place *p = &with;
	int32_t *expert = ints(choices), *at = ints(choices), *from = ints(choices), *first = ints(p->n + 1);
	struct dt_tensor weight = random_tensor(DT_F32, 1, choices, 8, 1);
	const float *w = weight.data;
	int32_t to = 0;

	with.dropped = &dropped;
	for (int64_t i = 0; i < choices; i++) {
		expert[i] = (int32_t)((i * i + i / 3) % p->experts);
		if (i % 4 == 1) /* some are equal */
			put(weight, i, 0.25);
	}
	assert_int_equal(dev->ops->moe_place(dev, first, at, from, expert, w, choices, p), 0);
	for (int64_t e = 0; e < p->n; e++) {
		assert_int_equal(first[e], to);
		for (int64_t i = 0; i < choices; i++) {
			int64_t before = 0;

			if (expert[i] != p->begin + e)
				continue;
			for (int64_t j = 0; j < choices; j++)
				before += expert[j] == expert[i] && (w[j] > w[i] || (w[j] == w[i] && j < i));
			if (p->capacity && before >= p->capacity) {
				assert_int_equal(at[i], DT_MOE_AWAY);
				lost++;
				continue;
			}
			assert_int_equal(at[i], to);
			assert_int_equal(from[to++], i);
		}
	}
	assert_int_equal(first[p->n], to);
	assert_true(dropped == lost);
	for (int64_t i = to; i < choices; i++)
		assert_int_equal(from[i], DT_MOE_AWAY);
	for (int64_t i = 0; i < choices; i++)
		if (expert[i] < p->begin || expert[i] >= p->begin + p->n)
			assert_int_equal(at[i], DT_MOE_AWAY);
	free_all(expert, at, from, first, weight.data);
}

static void test_place(void **state)
{
	static const struct dt_moe_place p[] = {{8, 0, 8, 0, NULL}, {8, 2, 3, 0, NULL},
						{8, 0, 8, 5, NULL}, {8, 4, 4, 1, NULL},
						{1, 0, 1, 7, NULL}, {64, 16, 16, 2, NULL}};
	struct dt_moe_place bad = {8, 4, 5, 0, NULL};
	int32_t none[9];

	for (size_t i = 0; i < sizeof p / sizeof *p; i++)
		for (int64_t n = 0; n < 300; n = 3 * n + 1)
			place(n, &p[i]);
	assert_int_equal(dev->ops->moe_place(dev, none, none, none, none, NULL, 0, &bad), -EINVAL);
}

static void count(int64_t choices, int64_t groups, int64_t experts)
{
	struct dt_tensor load = tensor(DT_F32, groups, experts);
	double *want = reals(groups * experts), *sums = reals(experts), *got = reals(experts);
	int32_t *expert = ints(choices);

	for (int64_t i = 0; i < choices; i++) {
		expert[i] = (int32_t)((i * i + i / 3) % experts);
		want[i / (choices / groups) * experts + expert[i]] += 1 / 7.;
	}
	for (int64_t i = 0; i < groups * experts; i++)
		sums[i % experts] += rint(want[i] * 7);
	for (int64_t e = 0; e < experts; e++) {
		sums[e] += (double)e;
		got[e] = (double)e;
	}
	assert_int_equal(dev->ops->moe_count(dev, load.data, groups, got, expert, choices, experts, 7), 0);
	check_close("load", load, want, 0, 1e-7);
	for (int64_t e = 0; e < experts; e++)
		assert_true(got[e] == sums[e]);
	assert_int_equal(dev->ops->moe_count(dev, load.data, groups, NULL, expert, choices, experts, 7), 0);
	check_close("load alone", load, want, 0, 1e-7);
	if (choices) {
		expert[choices - 1] = (int32_t)experts;
		assert_int_equal(
			dev->ops->moe_count(dev, load.data, groups, got, expert, choices, experts, 7),
			-EINVAL);
	}
	free_all(load.data, want, sums, got, expert);
}

static void test_count(void **state)
{
	float none[4];

	count(0, 1, 3);
	count(1, 1, 1);
	count(600, 2, 8);
	count(777, 7, 130);
	assert_int_equal(dev->ops->moe_count(dev, none, 2, NULL, NULL, 3, 2, 1), -EINVAL);
}

/* Choices there and back: gather, sum with weights and another operand, and the gradients of both. */
static void there_and_back(enum dt_dtype type, int64_t rows, int64_t n)
{
	const struct dt_moe_place p = {5, 1, 3, 0, NULL};
	const int64_t used = 2, choices = rows * used;
	int32_t *expert = ints(choices), *at = ints(choices), *from = ints(choices), first[4];
	struct dt_tensor x = random_tensor(type, rows, n, 1, 1), y = tensor(type, rows, n),
			 also = random_tensor(type, rows, n, 2, 1), dy = random_tensor(type, rows, n, 3, 1),
			 w = random_tensor(DT_F32, 1, choices, 4, 1), dw = tensor(DT_F32, 1, choices);
	struct dt_tensor sorted, dsorted;
	double *want = values(also), *back = reals(rows * n), *wdw = reals(choices);

	for (int64_t i = 0; i < choices; i++)
		expert[i] = (int32_t)((i * 3 + i / 7) % 5);
	assert_int_equal(dev->ops->moe_place(dev, first, at, from, expert, w.data, choices, &p), 0);
	sorted = tensor(type, first[3] + 2, n); /* more room than there are rows */
	dsorted = tensor(type, first[3] + 2, n);
	memset(sorted.data, 0xff, bytes_of(sorted));
	from[first[3]] = from[first[3] + 1] = DT_MOE_AWAY; /* there are more choices than of these experts */
	assert_int_equal(dev->ops->moe_gather(dev, sorted, x, from, used), 0);
	for (int64_t i = first[3] * n; i < dt_numel(sorted); i++)
		assert_true(isnan(get(sorted, i))); /* not written */
	assert_int_equal(dev->ops->moe_sum(dev, y, sorted, at, w.data, also, used), 0);
	assert_int_equal(dev->ops->moe_sum_backward(dev, dsorted, dw.data, dy, sorted, at, w.data, used), 0);
	for (int64_t i = 0; i < choices; i++)
		for (int64_t j = 0; j < n && at[i] != DT_MOE_AWAY; j++) {
			const double v = get(x, i / used * n + j), g = get(dy, i / used * n + j);

			assert_true(get(sorted, at[i] * n + j) == v);
			want[i / used * n + j] += get(w, i) * v;
			wdw[i] += g * v;
			back[i / used * n + j] += get(w, i) * g;
		}
	check_close("sum", y, want, 1e-6, 1e-6);
	check_close("dweight", dw, wdw, 1e-6, 1e-5);
	assert_int_equal(dev->ops->moe_sum(dev, y, dsorted, at, NULL, DT_NONE, used), 0);
	check_close("gather's gradient", y, back, type == DT_F32 ? 1e-6 : 2e-2, 1e-6);
	from[0] = (int32_t)choices;
	if (first[3])
		assert_int_equal(
			dev->ops->moe_gather(dev, dt_t2(sorted.data, type, first[3], n), x, from, used),
			-EINVAL);
	free_all(expert, at, from, x.data, y.data, also.data, dy.data, w.data, dw.data, sorted.data,
		 dsorted.data, want, back, wdw);
}

static void test_there_and_back(void **state)
{
	for (int t = 0; t < TYPES; t++) {
		there_and_back(compute_types[t], 1, 1);
		there_and_back(compute_types[t], 19, 33);
		there_and_back(compute_types[t], 40, 2050);
	}
}

static void grouped(enum dt_dtype type, const int32_t *first, int64_t groups, int64_t experts, int64_t n,
		    int64_t n2, int64_t k)
{
	const struct dt_grouped g = {first, groups, experts};
	const int64_t rows = first[groups], room = rows + 3, cols = n + n2;
	struct dt_tensor x = random_tensor(type, room, k, 1, 1),
			 w = random_tensor(type, experts * n, k, 2, 1),
			 w2 = n2 ? random_tensor(type, experts * n2, k, 3, 1) : DT_NONE,
			 y = tensor(type, room, cols), dy = random_tensor(type, room, cols, 4, 1),
			 dx = tensor(type, room, k), dw = random_tensor(DT_F32, experts * n, k, 5, 1),
			 dw2 = n2 ? random_tensor(DT_F32, experts * n2, k, 6, 1) : DT_NONE;
	double *wy = reals(rows * cols), *wdx = reals(rows * k), *wdw = values(dw),
	       *wdw2 = n2 ? values(dw2) : reals(1);
	const double tol = type == DT_F32 ? 1e-5 : 1e-2;

	for (int64_t i = 0; i < groups; i++)
		for (int64_t r = first[i]; r < first[i + 1]; r++)
			for (int64_t c = 0; c < cols; c++)
				for (int64_t j = 0; j < k; j++) {
					const int64_t e = i % experts, at = c < n ? (e * n + c) * k + j
										  : (e * n2 + c - n) * k + j;
					const double v = get(c < n ? w : w2, at), in = get(x, r * k + j),
						     d = get(dy, r * cols + c);

					wy[r * cols + c] += in * v;
					wdx[r * k + j] += d * v;
					(c < n ? wdw : wdw2)[at] += d * in;
				}
	assert_int_equal(dev->ops->grouped_matmul(dev, y, x, w, w2, &g), 0);
	assert_int_equal(dev->ops->grouped_matmul_dx(dev, dx, dy, w, w2, &g), 0);
	assert_int_equal(dev->ops->grouped_matmul_dw(dev, dw, dw2, dy, x, &g, true), 0);
	check_close("y", dt_t2(y.data, type, rows, cols), wy, tol, tol);
	check_close("dx", dt_t2(dx.data, type, rows, k), wdx, tol, tol);
	check_close("dw", dw, wdw, 1e-4, 1e-4);
	if (n2)
		check_close("dw2", dw2, wdw2, 1e-4, 1e-4);
	for (int64_t i = rows * cols; i < room * cols; i++)
		assert_true(isnan(get(y, i))); /* not written */
	/* without adding: what was there is gone, and experts without rows have zeros */
	memset(wdw, 0, (size_t)dt_numel(dw) * sizeof *wdw);
	for (int64_t i = 0; i < groups; i++)
		for (int64_t r = first[i]; r < first[i + 1]; r++)
			for (int64_t c = 0; c < n; c++)
				for (int64_t j = 0; j < k; j++)
					wdw[(i % experts * n + c) * k + j] +=
						get(dy, r * cols + c) * get(x, r * k + j);
	assert_int_equal(dev->ops->grouped_matmul_dw(dev, dw, dw2, dy, x, &g, false), 0);
	check_close("dw, anew", dw, wdw, 1e-4, 1e-4);
	free_all(x.data, w.data, w2.data, y.data, dy.data, dx.data, dw.data, dw2.data, wy, wdx, wdw, wdw2);
}

static void test_grouped(void **state)
{
	static const int32_t none[] = {0, 0, 0, 0}, some[] = {0, 5, 5, 22, 23}, one[] = {0, 0, 70, 70, 70},
			     ranks[] = {0, 3, 3, 9, 11, 11, 30}, many[] = {0, 0, 530, 530, 547, 580, 581};

	for (int t = 0; t < TYPES; t++) {
		grouped(compute_types[t], none, 3, 3, 4, 0, 5);
		grouped(compute_types[t], some, 4, 4, 16, 0, 33);
		grouped(compute_types[t], some, 4, 4, 7, 9, 20);
		grouped(compute_types[t], one, 4, 4, 24, 24, 40);
		grouped(compute_types[t], ranks, 6, 3, 8, 8, 17); /* two ranks' rows of three experts */
		grouped(compute_types[t], ranks, 6, 2, 5, 0, 3);
		grouped(compute_types[t], some, 4, 4, 1, 1, 1); /* a vector lies the same either way round */
		grouped(compute_types[t], some, 4, 4, 1, 0, 40);
		grouped(compute_types[t], one, 4, 4, 40, 0, 1);
		grouped(compute_types[t], one, 4, 4, 128, 64, 64); /* what AMX takes */
		grouped(compute_types[t], many, 6, 3, 64, 64, 64);
		grouped(compute_types[t], some, 4, 4, 64, 0, 192);
	}
}

/* Biases of w and w2's columns, and the sums that are their gradients. */
static void biased(enum dt_dtype type, const int32_t *first, int64_t groups, int64_t experts, int64_t n,
		   int64_t n2)
{
	const int64_t m = first[groups] + 2, wide = n + n2; /* two rows of no group */
	const struct dt_grouped g = {first, groups, experts};
	struct dt_tensor y = random_tensor(type, m, wide, 1, 1),
			 b = random_tensor(type, 1, experts * n, 2, 1),
			 b2 = n2 ? random_tensor(type, 1, experts * n2, 3, 1) : DT_NONE,
			 db = random_tensor(DT_F32, 1, experts * n, 4, 1),
			 db2 = n2 ? random_tensor(DT_F32, 1, experts * n2, 5, 1) : DT_NONE;
	double *want = values(y), *sum = values(db), *sum2 = n2 ? values(db2) : NULL;

	for (int64_t k = 0; k < groups; k++)
		for (int64_t r = first[k]; r < first[k + 1]; r++)
			for (int64_t c = 0; c < wide; c++) {
				const int64_t at = k % experts * (c < n ? n : n2) + (c < n ? c : c - n);

				*(c < n ? &sum[at] : &sum2[at]) += get(y, r * wide + c);
				want[r * wide + c] += get(c < n ? b : b2, at);
			}
	assert_int_equal(dev->ops->grouped_bias_backward(dev, db, db2, y, &g), 0);
	assert_int_equal(dev->ops->grouped_bias(dev, y, b, b2, &g), 0);
	check_close("biased", y, want, 1e-6, 0);
	check_close("gradient of biases", db, sum, 4e-6, 0);
	if (n2)
		check_close("gradient of the other biases", db2, sum2, 4e-6, 0);
	free_all(y.data, b.data, b2.data, db.data, db2.data, want, sum, sum2);
}

static void test_biased(void **state)
{
	static const int32_t some[] = {0, 3, 3, 10, 27}, many[] = {0, 40, 41, 90, 90, 130, 131};

	for (int t = 0; t < TYPES; t++) {
		biased(compute_types[t], some, 4, 4, 5, 0);
		biased(compute_types[t], some, 4, 2, 33, 17);
		biased(compute_types[t], many, 6, 3, 300, 300);
	}
}

static void test_refused(void **state)
{
	static const int32_t back[] = {0, 4, 2}, past[] = {0, 2, 9}, late[] = {1, 2, 3};
	struct dt_tensor x = random_tensor(DT_F32, 4, 3, 1, 1), w = random_tensor(DT_F32, 10, 3, 2, 1),
			 y = tensor(DT_F32, 4, 5);
	const int32_t *firsts[] = {back, past, late};
	struct dt_grouped g = {back, 2, 2};

	for (int i = 0; i < 3; i++) {
		g.first = firsts[i];
		assert_int_equal(dev->ops->grouped_matmul(dev, y, x, w, DT_NONE, &g), -EINVAL);
		assert_int_equal(dev->ops->grouped_matmul_dx(dev, x, y, w, DT_NONE, &g), -EINVAL);
		assert_int_equal(dev->ops->grouped_bias(dev, y, dt_t1(w.data, DT_F32, 10), DT_NONE, &g),
				 -EINVAL);
		assert_int_equal(dev->ops->grouped_matmul_dw(dev, w, DT_NONE, y, x, &g, false), -EINVAL);
	}
	g = (struct dt_grouped){past, 2, 3};
	assert_int_equal(dev->ops->grouped_matmul(dev, y, x, w, DT_NONE, &g), -EINVAL);
	free_all(x.data, w.data, y.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_route),	       cmocka_unit_test(test_route_backward),
		cmocka_unit_test(test_place),	       cmocka_unit_test(test_count),
		cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_grouped),
		cmocka_unit_test(test_biased),	       cmocka_unit_test(test_refused),
	};
	int rc;

	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
