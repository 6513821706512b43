/* Numbers of tensors: differences between two checkpoints, and statistics of one. */
#include "ckpt/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RUN 4096 /* elements turned into doubles at a time */

static double half_to_f64(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return h >> 15 ? -v : v;
}

#define CONVERT(type, expr)                                                                                  \
	{                                                                                                    \
		const type *x = src;                                                                         \
                                                                                                             \
		for (int64_t i = 0; i < n; i++)                                                              \
			dst[i] = (expr);                                                                     \
		break;                                                                                       \
	}

void dt_ckpt_to_f64(enum dt_dtype t, const void *src, int64_t n, double *dst)
{
	switch (t) {
	case DT_F32:
		CONVERT(float, (double)x[i])
	case DT_BF16:
		CONVERT(uint16_t, (double)dt_bf16_to_f32(x[i]))
	case DT_F16:
		CONVERT(uint16_t, half_to_f64(x[i]))
	case DT_F64:
		CONVERT(double, x[i])
	case DT_I32:
		CONVERT(int32_t, (double)x[i])
	case DT_I64:
		CONVERT(int64_t, (double)x[i])
	case DT_U8:
		CONVERT(uint8_t, (double)x[i])
	case DT_U16:
		CONVERT(uint16_t, (double)x[i])
	case DT_I8:
		CONVERT(int8_t, (double)x[i])
	default:
		break;
	}
}

struct pair {
	struct dt_ckpt *a, *b;
	int ia, ib;
	void *xa, *xb; /* one piece of a, and the same box of b */
	double tolerance;
	double max_a;
	struct dt_ckpt_delta d;
};

static void compare_run(struct pair *q, enum dt_dtype ta, enum dt_dtype tb, int64_t from, int64_t n)
{
	double a[RUN], b[RUN];
	int sa = dt_dtype_size(ta), sb = dt_dtype_size(tb);
	const char *pa = (const char *)q->xa + from * sa, *pb = (const char *)q->xb + from * sb;

	dt_ckpt_to_f64(ta, pa, n, a);
	dt_ckpt_to_f64(tb, pb, n, b);
	for (int64_t i = 0; i < n; i++) {
		bool same = ta == tb ? !memcmp(pa + i * sa, pb + i * sa, (size_t)sa)
				     : a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
		double e = fabs(a[i] - b[i]);

		if (isfinite(a[i]) && fabs(a[i]) > q->max_a)
			q->max_a = fabs(a[i]);
		if (same)
			continue;
		q->d.n_differ++;
		if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i])))
			e = 0; /* -0 and 0, other bits of NaN */
		else if (isnan(e))
			e = INFINITY;
		if (e > q->d.max_abs)
			q->d.max_abs = e;
	}
}

/* bits_only: stop at the first piece that is not the same, 1: they differ. */
static int compare_pieces(struct pair *q, bool bits_only, struct dt_err *err)
{
	const struct ck_tensor *ta = &q->a->m.tensor[q->ia], *tb = &q->b->m.tensor[q->ib];

	for (int k = 0; k < ta->npieces; k++) {
		const struct ck_piece *p = &q->a->m.piece[ta->first + k];
		int64_t n = ck_numel(ta->ndim, p->shape);
		int rc = dt_ckpt_read(q->a, q->ia, p->off, p->shape, ta->dtype, q->xa, err);

		if (rc == 0)
			rc = dt_ckpt_read(q->b, q->ib, p->off, p->shape, tb->dtype, q->xb, err);
		if (rc < 0)
			return rc;
		if (bits_only && memcmp(q->xa, q->xb, p->bytes))
			return 1;
		for (int64_t i = 0; i < n && !bits_only; i += RUN)
			compare_run(q, ta->dtype, tb->dtype, i, n - i < RUN ? n - i : RUN);
	}
	return 0;
}

static int compare_tensor(struct pair *q, struct dt_err *err)
{
	const struct ck_tensor *ta = &q->a->m.tensor[q->ia], *tb = &q->b->m.tensor[q->ib];
	uint64_t most = 1;
	int rc = 1;

	for (int k = 0; k < ta->npieces; k++)
		if (q->a->m.piece[ta->first + k].bytes > most)
			most = q->a->m.piece[ta->first + k].bytes;
	q->xa = malloc(most);
	q->xb = malloc(most / (uint64_t)dt_dtype_size(ta->dtype) * (uint64_t)dt_dtype_size(tb->dtype) + 8);
	q->max_a = 0;
	if (!q->xa || !q->xb) {
		rc = dt_err_sys(err, -ENOMEM, "cannot compare '%s'", ta->name);
	} else {
		if (ta->dtype == tb->dtype)
			rc = compare_pieces(q, true, err);
		if (rc > 0)
			rc = compare_pieces(q, false, err);
	}
	free(q->xa);
	free(q->xb);
	if (rc == 0) {
		struct dt_ckpt_delta *d = &q->d;

		d->max_rel = d->max_abs == 0 ? 0 : q->max_a > 0 ? d->max_abs / q->max_a : INFINITY;
		d->differs = q->tolerance < 0 ? d->n_differ > 0 : d->max_abs > q->tolerance * q->max_a;
	}
	return rc;
}

int dt_ckpt_diff(struct dt_ckpt *a, struct dt_ckpt *b, double tolerance,
		 void (*report)(void *arg, const struct dt_ckpt_delta *d), void *arg,
		 void (*progress)(void *arg, uint64_t done, uint64_t total), struct dt_err *err)
{
	uint64_t done = 0, total = 0;
	int differ = 0;

	for (int i = 0; i < a->m.ntensor; i++)
		total += a->m.tensor[i].bytes;
	for (int i = 0; i < a->m.ntensor + b->m.ntensor; i++) {
		bool in_a = i < a->m.ntensor;
		const struct ck_tensor *t = in_a ? &a->m.tensor[i] : &b->m.tensor[i - a->m.ntensor];
		int other = dt_ckpt_find(in_a ? b : a, t->name), rc;
		struct pair q = {
			.a = a, .b = b, .ia = i, .ib = other, .tolerance = tolerance, .d.name = t->name};

		if (!in_a && other >= 0)
			continue;
		if (other < 0) {
			q.d.why = in_a ? "only in A" : "only in B";
		} else if (t->ndim != b->m.tensor[other].ndim ||
			   memcmp(t->shape, b->m.tensor[other].shape, sizeof(t->shape))) {
			q.d.why = "shape";
		} else {
			rc = compare_tensor(&q, err);
			if (rc < 0)
				return rc;
		}
		if (q.d.why)
			q.d.differs = true;
		differ += q.d.differs;
		if (report)
			report(arg, &q.d);
		done += in_a ? t->bytes : 0;
		if (progress)
			progress(arg, done, total);
	}
	return differ;
}

/* Chan, Golub, LeVeque (1983): mean and squared deviations of a run joined to those so far. */
static void join_run(struct dt_ckpt_stats *s, const double *x, int64_t n, double *m2, double *sq)
{
	uint64_t have = s->n - s->nans - s->infs, k = 0;
	double mean = 0, dev = 0, delta;

	for (int64_t i = 0; i < n; i++) {
		s->zeros += x[i] == 0;
		s->nans += isnan(x[i]) != 0;
		s->infs += isinf(x[i]) != 0;
		if (!isfinite(x[i]))
			continue;
		if (have + k == 0 || x[i] < s->min)
			s->min = x[i];
		if (have + k == 0 || x[i] > s->max)
			s->max = x[i];
		k++;
		delta = x[i] - mean;
		mean += delta / (double)k;
		dev += delta * (x[i] - mean);
		*sq += x[i] * x[i];
	}
	s->n += (uint64_t)n;
	if (k == 0)
		return;
	delta = mean - s->mean;
	*m2 += dev + delta * delta * (double)have * (double)k / (double)(have + k);
	s->mean += delta * (double)k / (double)(have + k);
}

int dt_ckpt_tensor_stats(struct dt_ckpt *c, int i, struct dt_ckpt_stats *ret, struct dt_err *err)
{
	const struct ck_tensor *t = &c->m.tensor[i];
	struct dt_ckpt_stats s = {0};
	double x[RUN], m2 = 0, sq = 0;
	uint64_t finite;

	for (int k = 0; k < t->npieces; k++) {
		const struct ck_piece *p = &c->m.piece[t->first + k];
		int64_t n = ck_numel(t->ndim, p->shape);
		char *data = malloc(p->bytes);
		int rc = data ? dt_ckpt_read(c, i, p->off, p->shape, t->dtype, data, err)
			      : dt_err_sys(err, -ENOMEM, "cannot read '%s'", t->name);

		for (int64_t at = 0; at < n && rc == 0; at += RUN) {
			int64_t run = n - at < RUN ? n - at : RUN;

			dt_ckpt_to_f64(t->dtype, data + at * dt_dtype_size(t->dtype), run, x);
			join_run(&s, x, run, &m2, &sq);
		}
		free(data);
		if (rc < 0)
			return rc;
	}
	finite = s.n - s.nans - s.infs;
	if (finite) {
		s.std = sqrt(m2 / (double)finite);
		s.rms = sqrt(sq / (double)finite);
	}
	*ret = s;
	return 0;
}

bool dt_ckpt_grid(const struct dt_ckpt *c, int i, int64_t grid[DT_CKPT_MAX_DIM])
{
	const struct ck_tensor *t = &c->m.tensor[i];
	int64_t product = 1;

	for (int d = 0; d < t->ndim; d++) {
		int64_t seen[1024];
		int n = 0;

		for (int k = 0; k < t->npieces; k++) {
			int64_t at = c->m.piece[t->first + k].off[d];
			int j = 0;

			while (j < n && seen[j] != at)
				j++;
			if (j == n && n == 1024)
				return false;
			if (j == n)
				seen[n++] = at;
		}
		grid[d] = n;
		product *= n;
	}
	return product == t->npieces;
}
