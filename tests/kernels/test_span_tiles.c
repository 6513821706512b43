/*
 * Attention over spans of more keys and queries than a tile has, against f64 loops over what the contract
 * says: documents that end at edges of tiles and between them, keys in runs anywhere in memory, positions
 * with gaps, rows that see nothing. Backward's o and lse are not forward's: as if there were more keys.
 */
#include "check.h"

static struct dt_dev *dev;

/* Operands and the results by the contract. kv: values, columns of nobody, keys, columns of nobody. */
struct span_case {
	struct dt_attn p;
	struct dt_attn_span s;
	struct dt_attn_run run[DT_ATTN_RUNS];
	int64_t keys; /* rows of kv */
	int64_t pad;  /* columns behind those of q, and behind keys and values */
	int32_t *pos, *first;
	struct dt_tensor q, kv, g, o, lse;
	double *ro, *rlse, *rdq, *rdkv;
	bool *seen; /* [keys] by any query */
};

static int64_t pos_of(const struct span_case *c, int64_t row)
{
	return c->s.pos ? c->s.pos[row] : row % c->s.rows;
}

static bool sees(const struct span_case *c, int64_t row, int64_t key_pos)
{
	const int64_t pos = pos_of(c, row);

	return key_pos <= pos && key_pos >= (c->s.first ? c->s.first[row] : 0) &&
	       (c->p.window <= 0 || pos - key_pos < c->p.window);
}

static double dot(struct dt_tensor x, int64_t at, struct dt_tensor y, int64_t to, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += get(x, at + i) * get(y, to + i);
	return sum;
}

/* The score of a query and a key, and by what the softcap shrinks its gradient. */
static double score(const struct span_case *c, int64_t q, int64_t k, double *slope)
{
	const double s = c->p.scale * dot(c->q, q, c->kv, k, c->p.head_dim), cap = c->p.softcap;

	*slope = cap > 0 ? 1 - pow(tanh(s / cap), 2) : 1;
	return cap > 0 ? cap * tanh(s / cap) : s;
}

/* One row of one head: its o and lse, and its part of all gradients. */
static void row_by_hand(struct span_case *c, int64_t b, int64_t h, int64_t i)
{
	const int64_t d = c->p.head_dim, v = dt_attn_value_dim(&c->p), row = b * c->s.rows + i,
		      kv = h / (c->p.heads / c->p.kv_heads), q = row * c->q.dim[1] + h * d,
		      out = (row * c->p.heads + h) * v, stat = (b * c->p.heads + h) * c->s.rows + i;
	const double delta = dot(c->g, out, c->o, out, v);
	double sum = 0, slope;

	for (int64_t k = 0; k < c->s.nrun * c->s.run_keys; k++) {
		const struct dt_attn_run *r = &c->run[k / c->s.run_keys];
		const int64_t t = k % c->s.run_keys, key = r->row + b * c->s.stride + t,
			      kat = key * c->kv.dim[1] + c->s.k_col + kv * d,
			      vat = key * c->kv.dim[1] + c->s.v_col + kv * v;
		double s, p, ds;

		if (!sees(c, row, r->pos + t))
			continue;
		c->seen[key] = true;
		s = score(c, q, kat, &slope);
		sum += exp(s);
		p = exp(s - get(c->lse, stat));
		ds = c->p.scale * p * slope * (dot(c->g, out, c->kv, vat, v) - delta);
		for (int64_t e = 0; e < v; e++) {
			c->ro[out + e] += exp(s) * get(c->kv, vat + e);
			c->rdkv[vat + e] += p * get(c->g, out + e);
		}
		for (int64_t e = 0; e < d; e++) {
			c->rdq[q + e] += ds * get(c->kv, kat + e);
			c->rdkv[kat + e] += ds * get(c->q, q + e);
		}
	}
	c->rlse[stat] = log(sum);
	for (int64_t e = 0; e < v && sum > 0; e++)
		c->ro[out + e] /= sum;
}

/*
 * What tiles leave out on a card: keys of which from 63 before them to 63 behind them nobody sees any, and,
 * where keys look for queries, those that see none.
 */
static void poison(struct span_case *c)
{
	for (int64_t k = 0; k < c->keys; k++) {
		bool near = false;

		for (int64_t i = k - 63; i <= k + 63; i++)
			near |= i >= 0 && i < c->keys && c->seen[i];
		for (int64_t e = 0; e < c->kv.dim[1] && !near; e++)
			put(c->kv, k * c->kv.dim[1] + e, NAN);
	}
	for (int64_t row = 0; row < c->q.dim[0] && c->q.dtype != DT_F32 && c->p.head_dim <= 256; row++) {
		const int64_t stat = row / c->s.rows * c->p.heads * c->s.rows + row % c->s.rows;

		for (int64_t e = 0; e < c->q.dim[1] && isinf(c->rlse[stat]); e++)
			put(c->q, row * c->q.dim[1] + e, NAN);
	}
}

static void fill(struct span_case *c, enum dt_dtype t)
{
	const int64_t d = c->p.head_dim, v = dt_attn_value_dim(&c->p), rows = c->p.batch * c->s.rows,
		      width = c->p.kv_heads * (d + v) + 2 * c->pad;

	c->s.run = c->run;
	c->s.v_col = 0;
	c->s.k_col = c->p.kv_heads * v + c->pad;
	c->q = random_tensor(t, rows, c->p.heads * d + c->pad, 1, 1);
	c->kv = random_tensor(t, c->keys, width, 2, 1);
	c->g = random_tensor(t, rows, c->p.heads * v, 3, 1);
	c->o = random_tensor(t, rows, c->p.heads * v, 4, 0.5);
	c->lse = random_tensor(DT_F32, c->p.batch * c->p.heads, c->s.rows, 5, 2);
	for (int64_t i = 0; i < dt_numel(c->lse); i++)
		put(c->lse, i, get(c->lse, i) + 3);
	c->ro = reals(dt_numel(c->o));
	c->rlse = reals(dt_numel(c->lse));
	c->rdq = reals(dt_numel(c->q));
	c->rdkv = reals(dt_numel(c->kv));
	c->seen = calloc((size_t)c->keys, sizeof *c->seen);
	for (int64_t u = 0; u < rows * c->p.heads; u++)
		row_by_hand(c, u / c->p.heads / c->s.rows, u % c->p.heads, u / c->p.heads % c->s.rows);
	if (on_device())
		poison(c);
}

static void release(struct span_case *c)
{
	free_all(c->pos, c->first, c->q.data, c->kv.data, c->g.data, c->o.data, c->lse.data, c->ro, c->rlse,
		 c->rdq, c->rdkv, c->seen);
}

static double bound(enum dt_dtype t)
{
	return t == DT_F32 ? 1e-5 : t == DT_F16 ? 2e-3 : 2e-2;
}

static void forward(const struct span_case *c, enum dt_dtype out)
{
	struct dt_tensor o = tensor(out, c->o.dim[0], c->o.dim[1]),
			 lse = tensor(DT_F32, c->lse.dim[0], c->lse.dim[1]);

	assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, c->q, c->kv, &c->p, &c->s), 0);
	check_close("o", o, c->ro, bound(c->q.dtype), 0);
	for (int64_t i = 0; i < dt_numel(lse); i++)
		if (isinf(c->rlse[i]) ? get(lse, i) != -INFINITY
				      : !(fabs(get(lse, i) - c->rlse[i]) < 2e-5 * (1 + fabs(c->rlse[i]))))
			fail_msg("lse[%lld]: got %.9g, want %.9g", (long long)i, get(lse, i), c->rlse[i]);
	free_all(o.data, lse.data);
}

/* Gradients, added to what is there; what is nobody's is as it was: columns behind, rows of no run. */
static void gradients_close(const char *what, struct dt_tensor got, struct dt_tensor was, const double *want,
			    const bool *own, double tol)
{
	for (int64_t i = 0; i < dt_numel(got); i++) {
		const double base = isnan(get(was, i)) ? 0 : get(was, i), g = get(got, i);

		if (!own[i] ? memcmp(&g, &(double){get(was, i)}, sizeof g) != 0 &&
				      !(isnan(g) && isnan(get(was, i)))
			    : !(fabs(g - base - want[i]) <= tol * (1 + fabs(want[i]))))
			fail_msg("%s[%lld, %lld]: got %.9g, want %.9g", what, (long long)(i / got.dim[1]),
				 (long long)(i % got.dim[1]), g, own[i] ? base + want[i] : get(was, i));
	}
}

/* Which elements of dq and dkv are the call's. */
static bool *columns_of(struct dt_tensor x, int64_t at, int64_t n, bool *own)
{
	if (!own)
		own = calloc((size_t)dt_numel(x), sizeof *own);
	for (int64_t i = 0; i < dt_numel(x); i++)
		own[i] |= i % x.dim[1] >= at && i % x.dim[1] < at + n;
	return own;
}

static void backward(const struct span_case *c, enum dt_dtype out, bool add)
{
	const int64_t d = c->p.head_dim, v = dt_attn_value_dim(&c->p);
	struct dt_attn_span s = c->s;
	struct dt_tensor dq = tensor(out, c->q.dim[0], c->q.dim[1]),
			 dkv = tensor(out, c->kv.dim[0], c->kv.dim[1]), wasq, waskv;
	bool *ownq = columns_of(dq, 0, c->p.heads * d, NULL),
	     *ownkv = columns_of(dkv, s.k_col, c->p.kv_heads * d,
				 columns_of(dkv, s.v_col, c->p.kv_heads * v, NULL)),
	     *of_run = calloc((size_t)c->keys, sizeof *of_run);

	for (int64_t i = 0; i < c->p.batch * s.nrun * s.run_keys; i++)
		of_run[c->run[i / s.run_keys % s.nrun].row + i / s.run_keys / s.nrun * s.stride +
		       i % s.run_keys] = true;
	for (int64_t i = 0; i < dt_numel(dkv); i++)
		ownkv[i] &= of_run[i / dkv.dim[1]];
	for (int64_t i = 0; i < dt_numel(dq) && add; i++)
		put(dq, i, 0.25);
	for (int64_t i = 0; i < dt_numel(dkv) && add; i++)
		put(dkv, i, -0.5);
	wasq = copy_of(dq);
	waskv = copy_of(dkv);
	s.add = add;
	assert_int_equal(
		dev->ops->attention_span_backward(dev, dq, dkv, c->g, c->o, c->lse, c->q, c->kv, &c->p, &s),
		0);
	gradients_close("dq", dq, wasq, c->rdq, ownq, 2 * bound(c->q.dtype));
	gradients_close("dkv", dkv, waskv, c->rdkv, ownkv, 2 * bound(c->q.dtype));
	free_all(dq.data, dkv.data, wasq.data, waskv.data, ownq, ownkv, of_run);
}

/* Queries and keys of one matrix's rows, in documents so long, one length after another; 0 ends the list. */
static void documents(struct span_case *c, const int *length)
{
	int64_t rows = 0, count = 0;

	for (; length[count]; count++)
		rows += length[count];
	c->first = calloc((size_t)(c->p.batch * rows), 4);
	for (int64_t b = 0; b < c->p.batch; b++) /* the second sequence has them in another order */
		for (int64_t i = 0, n = 0, at = 0; at < rows; i++, at += n) {
			n = length[b ? count - 1 - i : i];
			for (int64_t k = at; k < at + n; k++)
				c->first[b * rows + k] = (int32_t)at;
		}
	c->keys = c->p.batch * rows;
	c->run[0] = (struct dt_attn_run){0, 0};
	c->s = (struct dt_attn_span){
		.rows = rows, .first = c->first, .nrun = 1, .run_keys = rows, .stride = rows};
}

/*
 * Rank 0 of two with chunks of n tokens: positions of chunks 0 and 3. Keys: those of all chunks, of the other
 * rank's or of the own, 3 rows of nobody between them, the last chunk first. Documents of doc tokens, or one.
 */
enum whose { ALL, OTHERS, OWN };

static void cut(struct span_case *c, int64_t n, enum whose whose, int64_t doc)
{
	const int64_t B = c->p.batch, rows = 2 * n;

	c->pos = calloc((size_t)(B * rows), 4);
	c->first = doc ? calloc((size_t)(B * rows), 4) : NULL;
	for (int64_t i = 0; i < B * rows; i++) {
		c->pos[i] = (int32_t)(i % rows < n ? i % rows : i % rows + 2 * n);
		if (doc)
			c->first[i] = (int32_t)(c->pos[i] / doc * doc);
	}
	c->s = (struct dt_attn_span){
		.rows = rows, .pos = c->pos, .first = c->first, .run_keys = n, .stride = 4 * (n + 3)};
	c->keys = B * c->s.stride;
	for (int64_t chunk = 0; chunk < 4; chunk++)
		if (whose == ALL || (whose == OWN) == (chunk == 0 || chunk == 3))
			c->run[c->s.nrun++] = (struct dt_attn_run){chunk * n, (3 - chunk) * (n + 3)};
}

/* 64 runs of 3 keys, 4 positions apart, in an order of their own; queries at every third position. */
static void sparse(struct span_case *c)
{
	const int64_t rows = 90;

	c->pos = calloc((size_t)(c->p.batch * rows), 4);
	for (int64_t i = 0; i < c->p.batch * rows; i++)
		c->pos[i] = (int32_t)(i % rows * 3);
	c->s = (struct dt_attn_span){.rows = rows, .pos = c->pos, .nrun = 64, .run_keys = 3, .stride = 200};
	c->keys = c->p.batch * 200;
	for (int64_t r = 0; r < 64; r++)
		c->run[r] = (struct dt_attn_run){r * 4 + 5, r * 37 % 64 * 3};
}

static void check(struct span_case *c, enum dt_dtype t, bool add)
{
	fill(c, t);
	forward(c, add ? DT_F32 : t);
	backward(c, add ? DT_F32 : t, add);
	if (!add)
		backward(c, DT_F32, false);
	release(c);
}

/* Two sequences of heads d wide (values v), with 8 or 3 columns of nobody: rows of 16 bytes, or of less. */
static struct span_case heads(int64_t d, int64_t v, int64_t pad)
{
	const struct dt_attn p = {2, 0, 2, 1, d, 0, 2.f / sqrtf((float)d), 0, v};

	return (struct span_case){.p = p, .pad = pad};
}

static void test_documents(void **state)
{
	static const int even[] = {64, 64, 64, 0}, odd[] = {1, 2, 3, 58, 64, 5, 7, 0}, two[] = {90, 40, 0},
			 many[] = {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 0},
			 few[] = {9, 12, 0};
	static const struct {
		const int *length;
		int64_t d, v, window;
		enum dt_dtype t;
		bool add;
	} cases[] = {
		{even, 64, 0, 0, DT_F16, false},  {odd, 64, 0, 0, DT_BF16, true},
		{odd, 40, 0, 0, DT_F16, false},	  {many, 80, 0, 0, DT_F16, true},
		{two, 128, 0, 0, DT_BF16, false}, {odd, 128, 0, 20, DT_F16, true},
		{even, 48, 24, 5, DT_F16, true},  {two, 192, 128, 0, DT_F16, true},
		{two, 33, 0, 70, DT_F16, false},  {odd, 16, 0, 0, DT_F32, true},
		{few, 264, 0, 0, DT_BF16, true}, /* wider than tiles */
	};

	for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
		struct span_case c = heads(cases[i].d, cases[i].v, i % 3 == 2 ? 3 : 8);

		c.p.window = cases[i].window;
		c.p.softcap = i % 4 == 1 ? 3 : 0;
		documents(&c, cases[i].length);
		check(&c, cases[i].t, cases[i].add);
	}
}

static void test_cut(void **state)
{
	static const struct {
		int64_t n;
		enum whose whose;
		int64_t doc, d, window;
		enum dt_dtype t;
		bool add;
	} cases[] = {
		{50, ALL, 0, 64, 0, DT_F16, false},	{70, ALL, 33, 40, 0, DT_F16, true},
		{64, OTHERS, 0, 64, 0, DT_F16, true},	{70, OTHERS, 100, 64, 0, DT_BF16, false},
		{64, OWN, 0, 128, 0, DT_F16, true},	{100, ALL, 0, 64, 30, DT_F16, false},
		{100, OTHERS, 90, 64, 0, DT_F16, true}, /* nobody sees anything */
		{30, OTHERS, 0, 80, 0, DT_BF16, true},
	};

	for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
		struct span_case c = heads(cases[i].d, 0, i % 3 == 1 ? 3 : 8);

		c.p.window = cases[i].window;
		cut(&c, cases[i].n, cases[i].whose, cases[i].doc);
		check(&c, cases[i].t, cases[i].add);
	}
}

static void test_sparse(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct span_case c = heads(64, 0, 8);

		c.p.window = i ? 50 : 0;
		sparse(&c);
		check(&c, DT_F16, i);
	}
}

/* A NaN among the scores is seen in the row's result, not taken for a row that sees no key. */
static void test_nan(void **state)
{
	static const int one[] = {70, 0};

	for (int i = 0; i < 2; i++) {
		struct span_case c = heads(16, 0, 8);
		struct dt_tensor o, lse;

		documents(&c, one);
		fill(&c, i ? DT_F16 : DT_F32);
		o = tensor(c.q.dtype, c.o.dim[0], c.o.dim[1]);
		lse = tensor(DT_F32, c.lse.dim[0], c.lse.dim[1]);
		put(c.q, 68 * c.q.dim[1], NAN);
		assert_int_equal(dev->ops->attention_span_forward(dev, o, lse, c.q, c.kv, &c.p, &c.s), 0);
		assert_true(isnan(get(o, 68 * o.dim[1])));
		assert_true(!isnan(get(o, 67 * o.dim[1])));
		free_all(o.data, lse.data);
		release(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_nan),
	};
	int rc;

	dev = open_device(3);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
