/*
 * Drawing a token against the definition: everything sorted, in long double. Where the reference cannot tell,
 * because a sum lies within 1e-9 of a border, either answer is right; that is counted and rare. A card's
 * answers are the processor's, all of them.
 */
#include "group.h"

static int64_t unsure, drawn;

struct ranked {
	long double w;
	float l;
	int32_t id;
};

static int by_rank(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	return x->l != y->l ? (x->l < y->l ? 1 : -1) : x->id - y->id;
}

static int by_id(const void *a, const void *b)
{
	return ((const struct ranked *)a)->id - ((const struct ranked *)b)->id;
}

static double uniform(const struct dt_draw *d)
{
	const struct dt_philox ctr = {{(uint32_t)(d->index / 2), (uint32_t)(d->index / 2 >> 32),
				       d->stream.name[0], d->stream.name[1]}};
	const struct dt_philox b = dt_philox4x32(ctr, d->stream.key[0], d->stream.key[1]);
	const int at = d->index % 2 ? 2 : 0;

	return (double)(((uint64_t)b.v[at] << 32 | b.v[at + 1]) >> 11) * 0x1p-53;
}

/* The row after its edits. */
static void edit_row(float *l, const struct dt_draw *d, const struct dt_edit *edit)
{
	for (int i = d->first; i < d->first + d->edits; i++) {
		const struct dt_edit e = edit[i];
		double x = (double)(l[e.id] + e.bias);

		if (e.count)
			x = x > 0 ? x / d->repetition : x * d->repetition;
		if (e.count > 0)
			x -= e.count * d->frequency + d->presence;
		l[e.id] = isinf(e.bias) ? -INFINITY : (float)x;
	}
}

/* Of r [n], by rank, how many stay; *ret_close: the sum at the border is too close to tell. */
static int64_t stay(const struct ranked *r, int64_t n, int64_t vocab, const struct dt_draw *d,
		    bool *ret_close)
{
	const bool cut = d->top_k > 0 && d->top_k < vocab;
	int64_t kept = cut && d->top_k < n ? d->top_k : n;
	long double total = 0, sum = 0;

	for (int64_t i = 0; i < kept; i++)
		total += r[i].w;
	if (d->top_p >= 1)
		return kept;
	for (int64_t i = 0; i < kept; i++) {
		*ret_close |= fabsl(sum + r[i].w - d->top_p * total) < 1e-9L * total;
		sum += r[i].w;
		if (sum >= d->top_p * total)
			return i + 1;
	}
	return kept;
}

/* Fails unless id may be drawn from the row. */
static void check_row(const float *logits, int64_t vocab, const struct dt_draw *d, const struct dt_edit *edit,
		      int32_t id)
{
	float *l = malloc((size_t)vocab * 4), max = -INFINITY;
	struct ranked *r = malloc((size_t)vocab * sizeof *r);
	long double total = 0, sum = 0, u;
	int64_t n = 0, kept;
	bool nan = false, found = false;
	bool close = false;

	memcpy(l, logits, (size_t)vocab * 4);
	edit_row(l, d, edit);
	for (int64_t i = 0; i < vocab; i++) {
		nan |= isnan(l[i]);
		max = l[i] > max ? l[i] : max;
	}
	if (nan || !isfinite(max)) {
		assert_int_equal(id, -1);
		free_all(l, r);
		return;
	}
	if (id < 0 || id >= vocab)
		fail_msg("token %d of a vocabulary of %lld", id, (long long)vocab);
	if (d->cold == 0) {
		assert_true(l[id] == max);
		for (int32_t i = 0; i < id; i++)
			assert_true(l[i] < max);
		free_all(l, r);
		return;
	}
	for (int64_t i = 0; i < vocab; i++) {
		const long double w = expl(((long double)l[i] - max) * d->cold);

		if (w >= d->min_p && w >= 0x1p-43L)
			r[n++] = (struct ranked){w, l[i], (int32_t)i};
	}
	qsort(r, (size_t)n, sizeof *r, by_rank);
	kept = stay(r, n, vocab, d, &close);
	if (!dt_sample_by_rank(d, vocab))
		qsort(r, (size_t)n, sizeof *r, by_id);
	for (int64_t i = 0; i < kept; i++)
		total += r[i].w;
	u = uniform(d) * total;
	for (int64_t i = 0; i < kept && !found; i++) {
		const struct ranked t = r[dt_sample_by_rank(d, vocab) ? kept - 1 - i : i];

		if (t.id == id) {
			found = true;
			close |= u < sum + 1e-9L * total || u >= sum + t.w - 1e-9L * total;
			if (!(u >= sum - 1e-9L * total && u < sum + t.w + 1e-9L * total) && !close)
				fail_msg("token %d has [%.12Lg, %.12Lg) of %.12Lg, the draw was %.12Lg", id,
					 sum, sum + t.w, total, u);
		}
		sum += t.w;
	}
	if (!found && !close)
		fail_msg("token %d was drawn; %lld of %lld stay, and it does not", id, (long long)kept,
			 (long long)vocab);
	drawn++;
	unsure += close;
	free_all(l, r);
}

/* The log-probability, in long double. */
static void check_score(const float *l, int64_t vocab, const struct dt_drawn *got)
{
	long double max = -INFINITY, sum = 0, want;

	for (int64_t i = 0; i < vocab; i++)
		max = l[i] > max ? l[i] : max;
	for (int64_t i = 0; i < vocab; i++)
		sum += expl(l[i] - max);
	want = l[got->id] - max - logl(sum);
	if (!(fabsl(dt_drawn_logprob(got) - want) <= 1e-6L + 1e-6L * fabsl(want)))
		fail_msg("log-probability %.9g, not %.9Lg", (double)dt_drawn_logprob(got), want);
}

enum { ROWS = 24, EDITS = 40 };

/* One call of rows at a time: out, and on a card the processor's answers beside them. */
static void call(float *logits, int rows, int64_t vocab, const struct dt_draw *d, const struct dt_edit *edit,
		 int64_t nedits)
{
	struct dt_tensor t = dt_t2(NULL, DT_F32, rows, vocab);
	struct dt_drawn out[ROWS], host;
	void *room = aligned_alloc(64, (dt_sample_room(vocab) + 63) / 64 * 64);
	float *row = malloc((size_t)vocab * 4);

	t.data = malloc(bytes_of(t));
	memcpy(t.data, logits, bytes_of(t));
	memset(out, 0xff, sizeof out);
	assert_int_equal(dev->ops->sample(dev, out, t, d, edit, nedits), 0);
	for (int i = 0; i < rows; i++) {
		check_row(logits + i * vocab, vocab, &d[i], edit, out[i].id);
		if (d[i].score && out[i].id >= 0)
			check_score(logits + i * vocab, vocab, &out[i]);
		memcpy(row, logits + i * vocab, (size_t)vocab * 4);
		dt_sample_row(room, &host, row, vocab, &d[i], edit);
		if (host.id != out[i].id || host.sum != out[i].sum ||
		    (host.id >= 0 && (host.logit != out[i].logit || host.max != out[i].max)))
			fail_msg("row %d of %d: token %d and sum %llu, the processor's are %d and %llu", i,
				 rows, out[i].id, (unsigned long long)out[i].sum, host.id,
				 (unsigned long long)host.sum);
	}
	free_all(t.data, room, row);
}

static uint32_t bits(uint32_t stream, int64_t i)
{
	return (uint32_t)((rnd(stream, i) + 1) * 0x1p31);
}

/* The logits of case number c: some with ties, some flat, some steep, some with holes. */
static void make_row(float *l, int64_t vocab, int64_t c)
{
	const double scale = (double[]){4, 12, 0.01, 40, 1}[c % 5];

	for (int64_t i = 0; i < vocab; i++) {
		double v = rnd(1, c * 100003 + i) + rnd(2, c * 100003 + i) + rnd(3, c * 100003 + i);

		l[i] = (float)(scale * v);
		if (c % 7 == 1)
			l[i] = roundf(l[i]); /* many ties */
		if (c % 7 == 2)
			l[i] = -0.f * (float)(i % 2); /* all tie */
		if (c % 7 == 3 && bits(4, c * 100003 + i) % 3)
			l[i] = -INFINITY;
	}
	if (c % 41 == 5)
		l[bits(5, c) % vocab] = NAN;
	if (c % 41 == 6)
		l[bits(5, c) % vocab] = INFINITY;
	for (int64_t i = 0; i < vocab && c % 41 == 7; i++)
		l[i] = -INFINITY;
}

static struct dt_draw make_draw(int64_t vocab, int64_t c)
{
	static const double cold[] = {1, 0, 1 / 0.7, 0.5, 10, 1, 0.02, 1e9};
	static const double top_p[] = {1, 0.95, 0.5, 0.999, 1, 0.01, 1, 0.8};
	const int32_t top_k[] = {0, 1, 5, 50, 0, 300, (int32_t)vocab, (int32_t)vocab + 5, 0, 2000};
	const uint32_t b = bits(6, c);

	return (struct dt_draw){.cold = cold[b % 8],
				.top_p = top_p[b / 8 % 8],
				.min_p = b / 64 % 4 ? 0 : 0.05 * (b / 256 % 4),
				.top_k = top_k[b / 1024 % 10],
				.repetition = 1,
				.score = b / 10240 % 4 == 0,
				.stream = {{b, 77}, {4, (uint32_t)c}},
				.index = (uint64_t)c * 3};
}

/* Distinct ids, a third of them in neither text, some of which may not come. */
static int make_edits(struct dt_edit *e, struct dt_draw *d, int64_t vocab, int64_t c, int first)
{
	const int n = (int)(bits(7, c) % (EDITS + 1));

	d->first = first;
	d->edits = n < vocab ? n : (int)vocab;
	d->repetition = 1 + 0.1 * (c % 4);
	d->frequency = 0.25 * (c % 3);
	d->presence = 0.1 * (c % 5) - 0.2;
	for (int i = 0; i < d->edits; i++)
		e[first + i] = (struct dt_edit){.id = (int32_t)(((int64_t)i * 7919 + c) % vocab),
						.count = i % 3 - 1 + (i % 9 == 8),
						.bias = i % 11 == 3 ? -INFINITY
							: i % 4	    ? 0
								    : (float)(2 * rnd(8, c + i))};
	/* 7919 is a prime, so that ids repeat only where vocab is a multiple of it or of a part. */
	return d->edits;
}

static void test_random(void **state)
{
	static const int64_t vocab[] = {1,   2,	 3,    31, 257, 256,  1000, 5003,
					300, 40, 8192, 64, 128, 8193, 512,  20011};
	const int calls = !emulated(dev) ? 1000 : every_case(dev) ? 260 : 130;
	int64_t c = 0;

	for (int i = 0; i < calls; i++) {
		const int64_t v = vocab[i % 16];
		const int rows = v > 6000 ? 2 : 1 + (int)(bits(9, i) % ROWS);
		struct dt_draw d[ROWS];
		struct dt_edit e[ROWS * EDITS];
		float *l = malloc((size_t)(v * rows) * 4);
		int n = 0;

		for (int k = 0; k < rows; k++, c++) {
			make_row(l + k * v, v, c);
			d[k] = make_draw(v, c);
			if (i % 3 == 0)
				d[k].cold = 0; /* a call of argmaxes */
			if (i % 4 != 1)
				d[k].score = 0;
			if (i % 5 >= 2)
				n += make_edits(e, &d[k], v, c, n);
		}
		call(l, rows, v, d, e, n);
		free(l);
	}
	print_message("%lld rows, %lld drawn, %lld of them too close for the reference to tell\n",
		      (long long)c, (long long)drawn, (long long)unsure);
	assert_true(drawn > c / 3);
	assert_true(unsure < drawn / 10); /* flat rows have borders that are exact */
}

/* A vocabulary of a real size, of which thousands stay, in bins of thousands. */
static void test_large(void **state)
{
	const int64_t v = emulated(dev) ? 40009 : 151936;
	float *l = malloc((size_t)v * 4);

	for (int c = 0; c < 12; c++) {
		struct dt_draw d = make_draw(v, c);

		d.cold = c % 2 ? 1 : 0.3;
		d.top_k = c % 3 ? 0 : 30000;
		d.top_p = c % 4 < 2 ? 0.97 : 1;
		make_row(l, v, (int64_t[]){0, 8, 2, 9, 1, 3}[c % 6]);
		call(l, 1, v, &d, NULL, 0);
	}
	free(l);
}

/* The frequencies of two thousand draws, of what stays and of all. */
static void test_frequencies(void **state)
{
	enum { V = 12, N = 2000 };
	const int n = emulated(dev) ? 480 : N;

	for (int how = 0; how < 3; how++) {
		double p[V], total = 0, chi2 = 0;
		int count[V] = {0}, cells = how == 1 ? 5 : V;

		for (int i = 0; i < V; i++) {
			p[i] = i < cells ? exp(-0.3 * i) : 0;
			total += p[i];
		}
		for (int first = 0; first < n; first += ROWS) {
			float l[ROWS * V];
			struct dt_draw d[ROWS];
			struct dt_drawn out[ROWS];

			for (int i = 0; i < ROWS * V; i++)
				l[i] = (float)(-0.3 * (i % V));
			for (int i = 0; i < ROWS; i++)
				d[i] = (struct dt_draw){.cold = 1,
							.top_p = how == 2 ? 0.99999 : 1,
							.top_k = how == 1 ? 5 : 0,
							.repetition = 1,
							.stream = {{5, (uint32_t)how}, {0, 0}},
							.index = (uint64_t)(first + i)};
			assert_int_equal(dev->ops->sample(dev, out, dt_t2(l, DT_F32, ROWS, V), d, NULL, 0),
					 0);
			for (int i = 0; i < ROWS; i++)
				count[out[i].id]++;
		}
		for (int i = 0; i < V; i++) {
			const double want = p[i] / total * ((n + ROWS - 1) / ROWS * ROWS);

			chi2 += want > 0 ? (count[i] - want) * (count[i] - want) / want : count[i] * 1e9;
		}
		/* mean cells - 1, deviation sqrt(2 (cells - 1)): five deviations. The draws are fixed. */
		if (chi2 > cells - 1 + 5 * sqrt(2. * (cells - 1)))
			fail_msg("chi-square %g over %d tokens", chi2, cells);
	}
}

static void test_refused(void **state)
{
	float l[2][4] = {{1, 2, 3, 4}, {4, 3, 2, 1}};
	struct dt_tensor t = dt_t2(l, DT_F32, 2, 4), none = dt_t2(l, DT_F32, 0, 4),
			 half = dt_t2(l, DT_F16, 2, 4);
	struct dt_draw d[2] = {{.top_p = 1, .repetition = 1},
			       {.top_p = 1, .repetition = 1, .first = 1, .edits = 2}};
	struct dt_edit e[3] = {{0}, {.id = 1, .bias = 5}, {.id = 3, .bias = 9}};
	struct dt_drawn out[2];

	memset(out, 0x55, sizeof out);
	assert_int_equal(dev->ops->sample(dev, out, half, d, e, 3), -EINVAL);
	assert_int_equal(dev->ops->sample(dev, out, t, d, e, 2), -EINVAL);
	e[2].id = 4;
	assert_int_equal(dev->ops->sample(dev, out, t, d, e, 3), -EINVAL);
	e[2].id = -1;
	assert_int_equal(dev->ops->sample(dev, out, t, d, e, 3), -EINVAL);
	assert_int_equal(out[0].id, 0x55555555);
	e[2].id = 3;
	assert_int_equal(dev->ops->sample(dev, out, none, d, e, 3), 0);
	assert_int_equal(dev->ops->sample(dev, out, t, d, e, 3), 0);
	assert_int_equal(out[0].id, 3);
	assert_int_equal(out[1].id, 3); /* 1 + 9 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_frequencies),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
