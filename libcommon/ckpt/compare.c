/* Differences between the values of two sets of tensors. */
#include "ckpt/internal.h"
#include "ckpt/tensors.h"
#include "ckpt/workers.h"
#include "model/names.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RUN 4096 /* elements converted to double at a time */

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
	struct dt_tensors *a, *b;
	int ia, ib;
	char *xa, *xb, *rows; /* a box of a, the same of b, and rows of b in b's order */
	int64_t head;	      /* rows per head whose order differs in b; 0: none differ */
	double shift;	      /* added to b */
	double max_a;
	struct dt_tensor_delta d;
};

static void compare_run(struct pair *q, enum dt_dtype ta, enum dt_dtype tb, int64_t from, int64_t n)
{
	double a[RUN], b[RUN];
	int sa = dt_dtype_size(ta), sb = dt_dtype_size(tb);
	const char *pa = q->xa + from * sa, *pb = q->xb + from * sb;

	dt_ckpt_to_f64(ta, pa, n, a);
	dt_ckpt_to_f64(tb, pb, n, b);
	for (int64_t i = 0; i < n; i++) {
		bool same, nan;
		double e;

		b[i] += q->shift;
		nan = isnan(a[i]) && isnan(b[i]);
		same = ta == tb && q->shift == 0 ? !memcmp(pa + i * sa, pb + i * sa, (size_t)sa)
						 : a[i] == b[i] || nan;
		if (isfinite(a[i]) && fabs(a[i]) > q->max_a)
			q->max_a = fabs(a[i]);
		if (same)
			continue;
		q->d.n_differ++;
		e = fabs(a[i] - b[i]);
		if (a[i] == b[i] || nan)
			e = 0; /* -0 and 0 are equal, as are all NaNs */
		else if (isnan(e))
			e = INFINITY;
		if (e > q->d.max_abs)
			q->d.max_abs = e;
	}
}

/* Reads the box of b in a's row order: whole heads are read, and the rows taken from them. */
static int read_b(struct pair *q, const int64_t *off, const int64_t *shape, struct dt_err *err)
{
	const struct dt_tensor_desc *t = dt_tensors_desc(q->b, q->ib);
	int64_t first[DT_CKPT_MAX_DIM], count[DT_CKPT_MAX_DIM], row;
	int rc;

	if (!q->head)
		return dt_tensors_read(q->b, q->ib, off, shape, q->xb, err);
	memcpy(first, off, sizeof(first));
	memcpy(count, shape, sizeof(count));
	first[0] = off[0] / q->head * q->head;
	count[0] = (off[0] + shape[0] + q->head - 1) / q->head * q->head - first[0];
	row = ck_numel(t->ndim - 1, shape + 1) * dt_dtype_size(t->dtype);
	rc = dt_tensors_read(q->b, q->ib, first, count, q->rows, err);
	for (int64_t r = 0; r < shape[0] && rc == 0; r++)
		memcpy(q->xb + r * row,
		       q->rows + (dt_rope_row(off[0] + r, q->head, dt_tensors_config(q->b)->rope_pairing,
					      dt_tensors_config(q->a)->rope_pairing) -
				  first[0]) *
					 row,
		       (size_t)row);
	return rc;
}

/* bits_only: stops at the first box that differs and returns 1. */
static int compare_boxes(struct pair *q, bool bits_only, struct dt_err *err)
{
	enum dt_dtype ta = dt_tensors_desc(q->a, q->ia)->dtype, tb = dt_tensors_desc(q->b, q->ib)->dtype;
	int ndim = dt_tensors_desc(q->a, q->ia)->ndim;

	for (int k = 0; k < dt_tensors_nboxes(q->a, q->ia); k++) {
		int64_t off[DT_CKPT_MAX_DIM] = {0}, shape[DT_CKPT_MAX_DIM] = {0}, n;
		int rc;

		dt_tensors_box(q->a, q->ia, k, off, shape);
		n = ck_numel(ndim, shape);
		rc = dt_tensors_read(q->a, q->ia, off, shape, q->xa, err);
		if (rc == 0)
			rc = read_b(q, off, shape, err);
		if (rc < 0)
			return rc;
		if (bits_only && memcmp(q->xa, q->xb, (size_t)n * (size_t)dt_dtype_size(ta)))
			return 1;
		for (int64_t i = 0; i < n && !bits_only; i += RUN)
			compare_run(q, ta, tb, i, n - i < RUN ? n - i : RUN);
	}
	return 0;
}

/* Finds how b's storage convention for the tensor differs from a's. */
static void find_convention(struct pair *q)
{
	const struct dt_config *a = dt_tensors_config(q->a), *b = dt_tensors_config(q->b);
	const struct dt_param *p = dt_tensors_param(q->b, q->ib);
	bool weight = !strncmp(dt_tensors_desc(q->b, q->ib)->name, "model/", 6);

	if (!a || !b || !p)
		return;
	if (a->rope_pairing != b->rope_pairing && dt_param_is_rotary(b, p))
		q->head = b->head_dim;
	if (a->norm_plus_one != b->norm_plus_one && weight && dt_param_is_scale(p))
		q->shift = b->norm_plus_one ? 1 : -1;
	q->d.reordered = q->head > 0;
	q->d.shifted = q->shift != 0;
}

/* Allocates room for the largest box of a, and for the whole heads around it. */
static int make_room(struct pair *q, struct dt_err *err)
{
	const struct dt_tensor_desc *ta = dt_tensors_desc(q->a, q->ia), *tb = dt_tensors_desc(q->b, q->ib);
	int64_t most = 1, wide = 1;

	for (int k = 0; k < dt_tensors_nboxes(q->a, q->ia); k++) {
		int64_t off[DT_CKPT_MAX_DIM], shape[DT_CKPT_MAX_DIM], n;

		dt_tensors_box(q->a, q->ia, k, off, shape);
		n = ck_numel(ta->ndim, shape);
		most = n > most ? n : most;
		n += 2 * q->head * ck_numel(ta->ndim - 1, shape + 1);
		wide = n > wide ? n : wide;
	}
	q->xa = malloc((size_t)most * (size_t)dt_dtype_size(ta->dtype));
	q->xb = malloc((size_t)most * (size_t)dt_dtype_size(tb->dtype));
	q->rows = q->head ? malloc((size_t)wide * (size_t)dt_dtype_size(tb->dtype)) : NULL;
	return q->xa && q->xb && (q->rows || !q->head)
		       ? 0
		       : dt_err_sys(err, -ENOMEM, "cannot compare '%s'", ta->name);
}

static int compare_tensor(struct pair *q, double tolerance, struct dt_err *err)
{
	struct dt_tensor_delta *d = &q->d;
	int rc;

	find_convention(q);
	rc = make_room(q, err);
	if (rc == 0) {
		rc = 1;
		if (dt_tensors_desc(q->a, q->ia)->dtype == dt_tensors_desc(q->b, q->ib)->dtype &&
		    q->shift == 0)
			rc = compare_boxes(q, true, err);
		if (rc > 0)
			rc = compare_boxes(q, false, err);
	}
	free(q->xa);
	free(q->xb);
	free(q->rows);
	if (rc < 0)
		return rc;
	d->max_rel = d->max_abs == 0 ? 0 : q->max_a > 0 ? d->max_abs / q->max_a : INFINITY;
	d->differs = tolerance < 0 ? d->n_differ > 0 : d->max_abs > tolerance * q->max_a;
	return 0;
}

static bool left_out(const struct dt_diff *o, const char *name)
{
	return o->weights_only && strncmp(name, "model/", 6) != 0;
}

/* Compares tensor i of a or, for i >= n, tensor i - n of b if a lacks it. 1: not compared. */
static int compare_one(struct pair *q, int i, const struct dt_diff *o, struct dt_err *err)
{
	bool in_a = i < dt_tensors_n(q->a);
	const struct dt_tensor_desc *t =
		in_a ? dt_tensors_desc(q->a, i) : dt_tensors_desc(q->b, i - dt_tensors_n(q->a));
	int other = dt_tensors_find(in_a ? q->b : q->a, t->name);

	if (left_out(o, t->name) || (!in_a && other >= 0))
		return 1;
	q->ia = i;
	q->ib = other;
	q->d.name = t->name;
	if (other < 0)
		q->d.why = in_a ? "only in A" : "only in B";
	else if (t->ndim != dt_tensors_desc(q->b, other)->ndim ||
		 memcmp(t->shape, dt_tensors_desc(q->b, other)->shape, (size_t)t->ndim * sizeof(*t->shape)) !=
			 0)
		q->d.why = "shape";
	q->d.differs = q->d.why;
	return q->d.why ? 0 : compare_tensor(q, o->tolerance, err);
}

/* ---- all tensors, by several threads ---- */

struct result {
	struct dt_tensor_delta d;
	uint64_t bytes;
	bool left_out;
};

struct job {
	struct dt_tensors *a, *b;
	const struct dt_diff *o;
	struct result *v; /* [n] of the tensors of a, then of b */
	int *order;	  /* [n] indices of v, the largest tensors first */
	int n;
	pthread_mutex_t lock; /* protects what follows */
	int next, failed;     /* failed: the first tensor that could not be compared; n: none */
	uint64_t done, total;
	struct dt_err err; /* its error */
};

static void *worker(void *arg)
{
	struct job *j = arg;

	for (;;) {
		struct pair q = {.a = j->a, .b = j->b};
		struct dt_err err = {0};
		int i, rc;

		pthread_mutex_lock(&j->lock);
		while (j->next < j->n && j->order[j->next] > j->failed)
			j->next++; /* what follows a failure is not compared: always the same error */
		i = j->next < j->n ? j->order[j->next++] : -1;
		pthread_mutex_unlock(&j->lock);
		if (i < 0)
			return NULL;
		rc = compare_one(&q, i, j->o, &err);
		j->v[i].d = q.d;
		j->v[i].left_out = rc > 0;
		pthread_mutex_lock(&j->lock);
		if (rc < 0 && i < j->failed) {
			j->failed = i;
			j->err = err;
		}
		j->done += rc == 0 && i < dt_tensors_n(j->a) ? j->v[i].bytes : 0;
		if (j->o->progress && rc == 0)
			j->o->progress(j->o->arg, j->done, j->total);
		pthread_mutex_unlock(&j->lock);
	}
}

static int largest_first(const void *a, const void *b, void *arg)
{
	const struct result *v = arg;
	const int x = *(const int *)a, y = *(const int *)b;

	return v[x].bytes != v[y].bytes ? (v[x].bytes > v[y].bytes ? -1 : 1) : x - y;
}

static void compare_all(struct job *j)
{
	const int na = dt_tensors_n(j->a), workers = j->o->workers;

	for (int i = 0; i < j->n; i++) {
		const struct dt_tensor_desc *t =
			i < na ? dt_tensors_desc(j->a, i) : dt_tensors_desc(j->b, i - na);

		j->order[i] = i;
		j->v[i].bytes = t->bytes;
		j->total += i < na && !left_out(j->o, t->name) ? t->bytes : 0;
	}
	qsort_r(j->order, (size_t)j->n, sizeof(*j->order), largest_first, j->v);
	ck_workers_run(workers < j->n ? workers : j->n, worker, j);
}

int dt_tensors_diff(struct dt_tensors *a, struct dt_tensors *b, const struct dt_diff *o, struct dt_err *err)
{
	struct job j = {.a = a, .b = b, .o = o, .n = dt_tensors_n(a) + dt_tensors_n(b)};
	int differ = 0;

	j.failed = j.n;
	j.v = calloc((size_t)j.n + 1, sizeof(*j.v));
	j.order = calloc((size_t)j.n + 1, sizeof(*j.order));
	if (!j.v || !j.order) {
		differ = dt_err_sys(err, -ENOMEM, "cannot compare '%s'", dt_tensors_path(a));
	} else {
		pthread_mutex_init(&j.lock, NULL);
		compare_all(&j);
		pthread_mutex_destroy(&j.lock);
	}
	if (differ == 0 && j.failed < j.n)
		differ = (*err = j.err).code;
	for (int i = 0; i < j.n && differ >= 0; i++) {
		if (j.v[i].left_out)
			continue;
		differ += j.v[i].d.differs;
		if (o->report)
			o->report(o->arg, &j.v[i].d);
	}
	free(j.v);
	free(j.order);
	return differ;
}
/* SPDX-License-Identifier: Apache-2.0 */
