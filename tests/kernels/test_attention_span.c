/*
 * Attention over spans of keys against f64 loops over all pairs of positions: documents, keys in runs of
 * zigzag order, windows, rows that see nothing; parts that are merged or added up against the whole.
 */
#include "check.h"

static struct dt_dev *dev;

/* The whole problem: sequences of s positions, q and kv by position in f64, and where documents begin. */
struct whole {
	struct dt_attn p;
	int64_t s;
	double *q, *k, *v, *g; /* [batch, s, heads or kv_heads, d]; g is dout */
	double *o, *lse, *dq, *dk, *dv;
	int32_t *first; /* [batch, s] */
	bool all;	/* keys behind a query count too */
};

enum { DOCS = 1, ALL = 2 };

static bool sees(const struct whole *w, int64_t b, int64_t i, int64_t j)
{
	return (w->all || j <= i) && j >= w->first[b * w->s + i] && (w->p.window <= 0 || i - j < w->p.window);
}

static void row(struct whole *w, int64_t b, int64_t h, int64_t i, double *prob, double *dp)
{
	const int64_t d = w->p.head_dim, a = w->p.heads, g = w->p.kv_heads, kv = h / (a / g), s = w->s;
	const double *q = w->q + ((b * s + i) * a + h) * d, *dout = w->g + ((b * s + i) * a + h) * d;
	double max = -INFINITY, sum = 0, dot = 0, *o = w->o + ((b * s + i) * a + h) * d;

	for (int64_t j = 0; j < s; j++) {
		prob[j] = 0;
		for (int64_t c = 0; c < d; c++)
			prob[j] += q[c] * w->k[((b * s + j) * g + kv) * d + c];
		prob[j] *= w->p.scale;
		if (w->p.softcap > 0)
			prob[j] = w->p.softcap * tanh(prob[j] / w->p.softcap);
		dp[j] = w->p.softcap > 0 ? 1 - pow(prob[j] / w->p.softcap, 2) : 1;
		if (!sees(w, b, i, j))
			prob[j] = -INFINITY;
		max = fmax(max, prob[j]);
	}
	for (int64_t j = 0; j < s; j++)
		sum += prob[j] = exp(prob[j] - max);
	w->lse[(b * a + h) * s + i] = max + log(sum);
	for (int64_t j = 0; j < s; j++)
		for (int64_t c = 0; c < d; c++)
			o[c] += prob[j] / sum * w->v[((b * s + j) * g + kv) * d + c];
	for (int64_t c = 0; c < d; c++)
		dot += o[c] * dout[c];
	for (int64_t j = 0; j < s; j++) {
		const int64_t key = ((b * s + j) * g + kv) * d;
		double back = 0, ds;

		for (int64_t c = 0; c < d; c++) {
			back += dout[c] * w->v[key + c];
			w->dv[key + c] += prob[j] / sum * dout[c];
		}
		ds = w->p.scale * prob[j] / sum * (back - dot) * dp[j];
		for (int64_t c = 0; c < d; c++) {
			w->dq[((b * s + i) * a + h) * d + c] += ds * w->k[key + c];
			w->dk[key + c] += ds * q[c];
		}
	}
}

/* x[batch, s, heads, d] random, as the type rounds it. */
static double *drawn(int64_t n, enum dt_dtype t, uint32_t stream)
{
	struct dt_tensor x = random_tensor(t, 1, n, stream, 1);
	double *r = values(x);

	free(x.data);
	return r;
}

/* DOCS: documents of 1, 5, 13 ... tokens, other ones in each sequence; else one. */
static struct whole whole_make(struct dt_attn p, int64_t s, enum dt_dtype t, int how)
{
	const int64_t nq = p.batch * s * p.heads * p.head_dim, nk = p.batch * s * p.kv_heads * p.head_dim;
	struct whole w = {.p = p,
			  .s = s,
			  .q = drawn(nq, t, 1),
			  .k = drawn(nk, t, 2),
			  .v = drawn(nk, t, 3),
			  .g = drawn(nq, t, 4),
			  .o = reals(nq),
			  .dq = reals(nq),
			  .dk = reals(nk),
			  .dv = reals(nk),
			  .lse = reals(p.batch * p.heads * s),
			  .first = calloc((size_t)(p.batch * s), 4),
			  .all = how & ALL};
	double *prob = reals(s), *dp = reals(s);

	for (int64_t b = 0; b < p.batch && (how & DOCS); b++)
		for (int64_t i = 0, end = 0, n = 1 + b, start = 0; i < s; i++) {
			if (i == end) {
				start = i;
				end += n;
				n = n * 3 % 41 + 2;
			}
			w.first[b * s + i] = (int32_t)start;
		}
	for (int64_t u = 0; u < p.batch * p.heads * s; u++)
		row(&w, u / s / p.heads, u / s % p.heads, u % s, prob, dp);
	free_all(prob, dp);
	return w;
}

static void whole_free(struct whole *w)
{
	free_all(w->q, w->k, w->v, w->g, w->o, w->dq, w->dk, w->dv, w->lse, w->first);
}

/* The position of local token i of rank r of n: chunks r and 2n - 1 - r of 2n. */
static int64_t zigzag(int64_t s, int n, int r, int64_t i)
{
	const int64_t c = s / (2 * n);

	return i < c ? r * c + i : (2 * n - 1 - r) * c + i - c;
}

/* One rank's operands. */
struct part {
	struct dt_tensor q, kv, g, o, lse;
	int32_t *pos, *first;
	struct dt_attn_run run[DT_ATTN_RUNS];
	struct dt_attn_span span;
};

/* Rank r's queries, against the keys of ranks k0 .. k1 of n, in blocks [batch, s / n] one behind another. */
static struct part part_make(const struct whole *w, enum dt_dtype t, int n, int r, int k0, int k1)
{
	const int64_t d = w->p.head_dim, a = w->p.heads, g = w->p.kv_heads, B = w->p.batch, s = w->s,
		      rows = s / n, c = s / (2 * n), keys = (k1 - k0) * B * rows;
	struct part x = {.q = tensor(t, B * rows, a * d + 3),
			 .kv = tensor(t, keys, 2 * g * d + 5),
			 .g = tensor(t, B * rows, a * d),
			 .pos = calloc((size_t)(B * rows), 4),
			 .first = calloc((size_t)(B * rows), 4)};

	for (int64_t i = 0; i < B * rows; i++) {
		const int64_t at = i / rows * s + zigzag(s, n, r, i % rows);

		x.pos[i] = (int32_t)(at % s);
		x.first[i] = w->first[at];
		for (int64_t e = 0; e < a * d; e++) {
			put(x.q, i * (a * d + 3) + e, w->q[at * a * d + e]);
			put(x.g, i * a * d + e, w->g[at * a * d + e]);
		}
	}
	for (int64_t i = 0; i < keys; i++) { /* values first: columns are where the span says */
		const int64_t at = i / rows % B * s + zigzag(s, n, k0 + (int)(i / rows / B), i % rows);

		for (int64_t e = 0; e < g * d; e++) {
			put(x.kv, i * (2 * g * d + 5) + e, w->v[at * g * d + e]);
			put(x.kv, i * (2 * g * d + 5) + g * d + 5 + e, w->k[at * g * d + e]);
		}
	}
	x.span = (struct dt_attn_span){.rows = rows,
				       .pos = x.pos,
				       .first = x.first,
				       .run_keys = c,
				       .stride = rows,
				       .k_col = g * d + 5,
				       .v_col = 0,
				       .all = w->all};
	for (int q = 0; q < 2 * n; q++) { /* chunks in order */
		const int owner = q < n ? q : 2 * n - 1 - q;

		if (owner >= k0 && owner < k1)
			x.run[x.span.nrun++] =
				(struct dt_attn_run){q * c, (owner - k0) * B * rows + (q < n ? 0 : c)};
	}
	return x;
}

static void part_free(struct part *x)
{
	free_all(x->q.data, x->kv.data, x->g.data, x->pos, x->first);
}

/* f64 rows of o, lse, dq of rank r out of the whole. */
static double *rows_of(const struct whole *w, const double *x, int n, int r)
{
	const int64_t wide = w->p.heads * w->p.head_dim, rows = w->s / n;
	double *y = reals(w->p.batch * rows * wide);

	for (int64_t i = 0; i < w->p.batch * rows; i++)
		memcpy(y + i * wide, x + (i / rows * w->s + zigzag(w->s, n, r, i % rows)) * wide,
		       (size_t)wide * sizeof(*y));
	return y;
}

static double *lse_of(const struct whole *w, int n, int r)
{
	const int64_t rows = w->s / n, heads = w->p.batch * w->p.heads;
	double *y = reals(heads * rows);

	for (int64_t i = 0; i < heads * rows; i++)
		y[i] = w->lse[i / rows * w->s + zigzag(w->s, n, r, i % rows)];
	return y;
}

/* Adds what rank r found of the keys' gradients to sums by position. */
static void add_keys(const struct whole *w, struct dt_tensor dkv, int n, int k0, double *dk, double *dv)
{
	const int64_t wide = w->p.kv_heads * w->p.head_dim, rows = w->s / n, B = w->p.batch;

	for (int64_t i = 0; i < dkv.dim[0]; i++) {
		const int64_t at = i / rows % B * w->s + zigzag(w->s, n, k0 + (int)(i / rows / B), i % rows);

		for (int64_t e = 0; e < wide; e++) {
			dv[at * wide + e] += get(dkv, i * (2 * wide + 5) + e);
			dk[at * wide + e] += get(dkv, i * (2 * wide + 5) + wide + 5 + e);
		}
	}
}

static void close_to(const char *what, const double *got, const double *want, int64_t n, double tol)
{
	for (int64_t i = 0; i < n; i++)
		if (!(fabs(got[i] - want[i]) <= tol * (1 + fabs(want[i]))))
			fail_msg("%s[%lld]: got %.9g, want %.9g", what, (long long)i, got[i], want[i]);
}

static double tolerance(enum dt_dtype t)
{
	return t == DT_F32 ? 4e-6 : t == DT_F16 ? 2e-3 : 3e-2;
}

/* Every rank of n over all keys at once, as after a gather; n 1: documents on one rank. */
static void gathered(struct dt_attn p, int64_t s, enum dt_dtype t, int n, int how)
{
	struct whole w = whole_make(p, s, t, how);
	const int64_t keys = p.batch * s * p.kv_heads * p.head_dim, rows = p.batch * s / n,
		      wide = p.heads * p.head_dim;
	double *dk = reals(keys), *dv = reals(keys), tol = tolerance(t);

	for (int r = 0; r < n; r++) {
		struct part x = part_make(&w, t, n, r, 0, n);
		struct dt_tensor o = tensor(t, rows, wide), lse = tensor(DT_F32, p.batch * p.heads, s / n);
		struct dt_tensor dq = tensor(t, rows, wide + 3), dkv = tensor(DT_F32, n * rows, x.kv.dim[1]);
		double *ro = rows_of(&w, w.o, n, r), *rdq = rows_of(&w, w.dq, n, r), *rl = lse_of(&w, n, r);

		x.span.run = x.run;
		assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, x.q, x.kv, &w.p, &x.span), 0);
		check_close("o", o, ro, tol, 0);
		check_close("lse", lse, rl, 4e-6, 1e-6);
		assert_int_equal(dev->ops->attention_span_backward(dev, dq, dkv, x.g, o, lse, x.q, x.kv, &w.p,
								   &x.span),
				 0);
		for (int64_t i = 0; i < rows; i++) {
			for (int64_t e = 0; e < wide; e++)
				if (!(fabs(get(dq, i * (wide + 3) + e) - rdq[i * wide + e]) <=
				      4 * tol * (1 + fabs(rdq[i * wide + e]))))
					fail_msg("dq: got %.9g, want %.9g", get(dq, i * (wide + 3) + e),
						 rdq[i * wide + e]);
			for (int64_t e = wide; e < wide + 3; e++) /* is nobody's */
				assert_true(isnan(get(dq, i * (wide + 3) + e)));
		}
		add_keys(&w, dkv, n, 0, dk, dv);
		free_all(o.data, lse.data, dq.data, dkv.data, ro, rdq, rl);
		part_free(&x);
	}
	close_to("dk", dk, w.dk, keys, 4 * tol);
	close_to("dv", dv, w.dv, keys, 4 * tol);
	free_all(dk, dv);
	whole_free(&w);
}

static const struct dt_attn shapes[] = {
	{.batch = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25f},
	{.batch = 1, .heads = 3, .kv_heads = 1, .head_dim = 24, .scale = 0.3f, .window = 7},
	{.batch = 1, .heads = 2, .kv_heads = 2, .head_dim = 33, .scale = 0.2f, .softcap = 1.5f},
};

static void test_gathered(void **state)
{
	for (int i = 0; i < 3; i++)
		for (int docs = 0; docs < 2; docs++) {
			if (!every_case(dev) && docs != i % 2)
				continue;
			gathered(shapes[i], 90, DT_F32, 1, docs);
			gathered(shapes[i], 132, DT_F32, 2, docs);
			gathered(shapes[i], 90, DT_F32, 3, docs);
			gathered(shapes[i], 72, DT_F32, 4, docs);
			gathered(shapes[i], 90, i ? DT_F16 : DT_BF16, 3, docs);
		}
	gathered(shapes[0], 8, DT_F32, 4, true); /* chunks of one token */
	if (!emulated(dev))
		gathered(shapes[0], 520, DT_BF16, 2, true);
}

/* Block after block, as in a ring: parts of o are merged, those of gradients add up. */
static void ring(struct dt_attn p, int64_t s, enum dt_dtype t, int n, int how)
{
	struct whole w = whole_make(p, s, t, how);
	const int64_t keys = p.batch * s * p.kv_heads * p.head_dim, rows = p.batch * s / n,
		      wide = p.heads * p.head_dim;
	double *dk = reals(keys), *dv = reals(keys), tol = tolerance(t);

	for (int r = 0; r < n; r++) {
		struct dt_tensor o = tensor(DT_F32, rows, wide), part = tensor(DT_F32, rows, wide),
				 o16 = tensor(t, rows, wide), dq = tensor(DT_F32, rows, wide + 3);
		struct dt_tensor lse = dt_t3(tensor(DT_F32, p.batch * p.heads, s / n).data, DT_F32, p.batch,
					     p.heads, s / n),
				 part_lse = dt_t3(tensor(DT_F32, p.batch * p.heads, s / n).data, DT_F32,
						  p.batch, p.heads, s / n);
		double *ro = rows_of(&w, w.o, n, r), *rdq = rows_of(&w, w.dq, n, r), *rl = lse_of(&w, n, r);

		for (int i = 0; i < n; i++) {
			struct part x = part_make(&w, t, n, r, (r + n - i) % n, (r + n - i) % n + 1);

			x.span.run = x.run;
			assert_int_equal(dev->ops->attention_span_forward(dev, i ? part : o,
									  i ? part_lse : lse, x.q, x.kv, &w.p,
									  &x.span),
					 0);
			if (i)
				assert_int_equal(dev->ops->attention_merge(dev, o, lse, part, part_lse), 0);
			part_free(&x);
		}
		check_close("merged o", o, ro, tol, 0);
		for (int64_t i = 0; i < rows * wide; i++)
			put(o16, i, get(o, i));
		for (int i = 0; i < n; i++) {
			const int from = (r + n - i) % n;
			struct part x = part_make(&w, t, n, r, from, from + 1);
			struct dt_tensor dkv = tensor(DT_F32, rows, x.kv.dim[1]);

			for (int64_t e = 0; e < dt_numel(dkv); e++)
				put(dkv, e, 0.5);
			x.span.run = x.run;
			x.span.add = i > 0;
			assert_int_equal(dev->ops->attention_span_backward(
						 dev, dq, dkv, x.g, o16,
						 dt_t2(lse.data, DT_F32, p.batch * p.heads, s / n), x.q, x.kv,
						 &w.p, &x.span),
					 0);
			for (int64_t e = 0; e < dt_numel(dkv) && i; e++)
				put(dkv, e, get(dkv, e) - 0.5);
			add_keys(&w, dkv, n, from, dk, dv);
			free_all(dkv.data);
			part_free(&x);
		}
		for (int64_t i = 0; i < rows * wide; i++)
			if (!(fabs(get(dq, i / wide * (wide + 3) + i % wide) - rdq[i]) <=
			      4 * tol * (1 + fabs(rdq[i]))))
				fail_msg("dq: got %.9g, want %.9g", get(dq, i / wide * (wide + 3) + i % wide),
					 rdq[i]);
		free_all(o.data, part.data, o16.data, dq.data, lse.data, part_lse.data, ro, rdq, rl);
	}
	close_to("dk", dk, w.dk, keys, 4 * tol);
	close_to("dv", dv, w.dv, keys, 4 * tol);
	free_all(dk, dv);
	whole_free(&w);
}

static void test_ring(void **state)
{
	for (int i = 0; i < 3; i++)
		for (int docs = 0; docs < 2; docs++) {
			if (!every_case(dev) && docs == i % 2)
				continue;
			ring(shapes[i], 132, DT_F32, 2, docs);
			ring(shapes[i], 90, DT_F32, 3, docs);
			ring(shapes[i], 48, i ? DT_F16 : DT_BF16, 4, docs);
		}
}

/* Without a causal mask, as images attend; and ranks' keys block after block. */
static void test_all(void **state)
{
	gathered(shapes[0], 90, DT_F32, 1, ALL);
	gathered(shapes[0], 132, DT_BF16, 1, ALL);
	gathered(shapes[2], 66, DT_F16, 1, ALL | DOCS);
	gathered(shapes[0], 72, DT_F32, 2, ALL | DOCS);
	ring(shapes[2], 90, DT_F32, 3, ALL);
	if (!emulated(dev))
		gathered(shapes[0], 394, DT_BF16, 1, ALL);
}

/* Self-attention as a span has the bits of attention_forward and _backward, on a processor. */
static void same_as_whole(void)
{
	const struct dt_attn p = {2, 77, 4, 2, 24, 9, 0.3f, 0};
	const int64_t wide = 8 * 24, rows = 2 * 77, out = 4 * 24;
	struct dt_tensor x = random_tensor(DT_BF16, rows, wide, 1, 1),
			 g = random_tensor(DT_BF16, rows, out, 2, 1);
	struct dt_tensor o = tensor(DT_BF16, rows, out), o1 = copy_of(o), lse = tensor(DT_F32, 4, rows),
			 lse1 = copy_of(lse), dx = tensor(DT_BF16, rows, wide), dx1 = copy_of(dx);
	const struct dt_attn_run run = {0, 0};
	const struct dt_attn_span s = {77, NULL, NULL, 1, &run, 77, 77, 4 * 24, 6 * 24, false};

	assert_int_equal(dev->ops->attention_forward(dev, o, lse, x, &p), 0);
	assert_int_equal(dev->ops->attention_span_forward(dev, o1, lse1, x, x, &p, &s), 0);
	check_same_bits("o", o, o1);
	check_same_bits("lse", lse, lse1);
	assert_int_equal(dev->ops->attention_backward(dev, dx, g, o, lse, x, &p), 0);
	assert_int_equal(dev->ops->attention_span_backward(dev, dx1, dx1, g, o, lse, x, x, &p, &s), 0);
	check_same_bits("dqkv", dx, dx1);
	free_all(x.data, g.data, o.data, o1.data, lse.data, lse1.data, dx.data, dx1.data);
}

static void test_same_as_whole(void **state)
{
	if (on_device()) /* whose tiles and rows add in other orders */
		skip();
	same_as_whole();
}

/* Sinks: results of keys alone become those with a sink, also for rows without keys; the sinks' gradient. */
static void sinks(int64_t batch, int64_t heads, int64_t rows, int64_t d, enum dt_dtype type)
{
	const int64_t n = batch * heads * rows;
	struct dt_tensor o = random_tensor(type, batch * rows, heads * d, 1, 1),
			 dout = random_tensor(type, batch * rows, heads * d, 2, 1),
			 sink = random_tensor(type, 1, heads, 3, 4), lse1 = random_tensor(DT_F32, 1, n, 4, 4),
			 dsink = random_tensor(DT_F32, 1, heads, 5, 1),
			 lse = dt_t3(lse1.data, DT_F32, batch, heads, rows);
	double *want = values(o), *l = values(lse1), *sum = values(dsink);

	put(lse1, 0, (double)-INFINITY);
	l[0] = (double)-INFINITY;
	for (int64_t i = 0; i < n; i++) {
		const int64_t h = i / rows % heads,
			      at = ((i / rows / heads * rows + i % rows) * heads + h) * d;
		const double s = get(sink, h), top = fmax(s, l[i]),
			     all = top + log(exp(l[i] - top) + exp(s - top));

		for (int64_t c = 0; c < d; c++)
			want[at + c] *= exp(l[i] - all);
		l[i] = all;
	}
	assert_int_equal(dev->ops->attention_sink(dev, o, lse, sink), 0);
	check_close("o with sinks", o, want, 2e-6, 1e-6);
	check_close("lse with sinks", lse1, l, 2e-6, 0);
	for (int64_t i = 0; i < n; i++) {
		const int64_t h = i / rows % heads,
			      at = ((i / rows / heads * rows + i % rows) * heads + h) * d;

		for (int64_t c = 0; c < d; c++)
			sum[h] -= exp(get(sink, h) - l[i]) * get(o, at + c) * get(dout, at + c);
	}
	assert_int_equal(dev->ops->attention_sink_backward(dev, dsink, dout, o, lse, sink), 0);
	check_close("gradient of sinks", dsink, sum, 1e-5, 1e-5);
	free_all(o.data, dout.data, sink.data, lse1.data, dsink.data, want, l, sum);
}

static void test_sinks(void **state)
{
	for (int t = 0; t < TYPES; t++) {
		sinks(1, 1, 1, 3, compute_types[t]);
		sinks(2, 3, 5, 64, compute_types[t]);
		sinks(3, 5, 37, 80, compute_types[t]);
	}
}

static void test_refused(void **state)
{
	const struct dt_attn p = {.batch = 1, .heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 1};
	struct dt_tensor q = random_tensor(DT_F32, 6, 8, 1, 1), kv = random_tensor(DT_F32, 6, 8, 2, 1),
			 o = tensor(DT_F32, 6, 8), lse = tensor(DT_F32, 2, 6);
	const struct dt_attn_run apart[] = {{0, 0}, {3, 3}}, beyond[] = {{0, 0}, {3, 4}},
				 meet[] = {{0, 0}, {2, 3}};
	struct dt_attn_span s = {6, NULL, NULL, 2, apart, 3, 6, 0, 4, false};
	struct dt_attn windowed = p;

	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, q, kv, &p, &s), 0);
	s.run = beyond;
	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, q, kv, &p, &s), -EINVAL);
	s.run = meet;
	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, q, kv, &p, &s), -EINVAL);
	s.run = apart;
	s.v_col = 5;
	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, q, kv, &p, &s), -EINVAL);
	s.v_col = 4;
	s.all = true;
	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, q, kv, &p, &s), 0);
	windowed.window = 2;
	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, q, kv, &windowed, &s), -EINVAL);
	free_all(q.data, kv.data, o.data, lse.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gathered), cmocka_unit_test(test_ring),
		cmocka_unit_test(test_all),	 cmocka_unit_test(test_same_as_whole),
		cmocka_unit_test(test_sinks),	 cmocka_unit_test(test_refused),
	};
	int rc;

	dev = open_device(3);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
