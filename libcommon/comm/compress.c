#include "comm/compress.h"

#include "base/progress.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 4096 /* one-bit: entries that share a magnitude */

struct dt_compress {
	struct dt_comm *c;
	struct dt_compress_opts o;
	size_t n, rows, cols, k;
	float *kept;	  /* [n] */
	float *p, *q;	  /* powersgd: [rows, rank], [cols, rank] */
	char *mine, *all; /* what is sent, what all sent */
	size_t mine_bytes;
	float *sort; /* top-k: magnitudes */
};

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int set_shape(struct dt_compress *z, struct dt_err *err)
{
	size_t n = z->n, r;

	switch (z->o.kind) {
	case DT_COMPRESS_BF16:
		z->mine_bytes = 2 * n;
		break;
	case DT_COMPRESS_POWERSGD:
		z->rows = z->o.rows ? z->o.rows : (size_t)ceil(sqrt((double)n));
		z->rows = z->rows ? min_size(z->rows, n ? n : 1) : 1;
		z->cols = (n + z->rows - 1) / z->rows;
		z->o.rank = z->o.rank ? z->o.rank : 4;
		r = min_size((size_t)z->o.rank, min_size(z->rows, z->cols ? z->cols : 1));
		z->o.rank = (int)r;
		z->p = calloc(z->rows * r, sizeof(float));
		z->q = calloc(z->cols * r + 1, sizeof(float));
		if (!z->p || !z->q)
			return dt_err_sys(err, -ENOMEM, "compression of %zu elements", n);
		break;
	case DT_COMPRESS_TOP_K:
		z->k = (size_t)ceil((z->o.keep > 0 ? z->o.keep : 0.01) * (double)n);
		z->k = min_size(z->k, n);
		z->mine_bytes = z->k * 8;
		z->sort = calloc(n + 1, sizeof(float));
		if (!z->sort)
			return dt_err_sys(err, -ENOMEM, "compression of %zu elements", n);
		break;
	case DT_COMPRESS_ONE_BIT:
		z->mine_bytes = (n + BLOCK - 1) / BLOCK * (4 + BLOCK / 8);
		break;
	}
	return 0;
}

int dt_compress_open(struct dt_compress **ret, struct dt_comm *c, const struct dt_compress_opts *o, size_t n,
		     struct dt_err *err)
{
	struct dt_compress *z = calloc(1, sizeof(*z));
	bool gathers = o->kind == DT_COMPRESS_TOP_K || o->kind == DT_COMPRESS_ONE_BIT;
	int rc = 0;

	if (!z)
		return dt_err_sys(err, -ENOMEM, "compression of %zu elements", n);
	*z = (struct dt_compress){.c = c, .o = *o, .n = n};
	if (n >> 31 || o->rank < 0 || !(o->keep >= 0 && o->keep <= 1))
		rc = dt_err_set(err, -EINVAL, "cannot compress %zu elements with rank %d, keeping %g", n,
				o->rank, o->keep);
	if (!rc)
		rc = set_shape(z, err);
	if (!rc) {
		z->kept = calloc(n + 1, sizeof(float));
		z->mine = calloc(1, z->mine_bytes + 1);
		z->all = calloc(1, z->mine_bytes * (gathers ? (size_t)dt_comm_size(c) : 0) + 1);
		if (!z->kept || !z->mine || !z->all)
			rc = dt_err_sys(err, -ENOMEM, "compression of %zu elements", n);
	}
	if (rc) {
		dt_compress_close(z);
		return rc;
	}
	if (z->q) { /* where the power iteration begins: the same everywhere */
		struct dt_rng g = dt_rng_make(1, DT_RNG_INIT, (uint32_t)n);

		for (size_t i = 0; i < z->cols * (size_t)z->o.rank; i++)
			z->q[i] = dt_rng_normal(&g, i);
	}
	*ret = z;
	return 0;
}

void dt_compress_close(struct dt_compress *z)
{
	if (!z)
		return;
	free(z->kept);
	free(z->p);
	free(z->q);
	free(z->mine);
	free(z->all);
	free(z->sort);
	free(z);
}

const float *dt_compress_kept(const struct dt_compress *z)
{
	return z->o.kind == DT_COMPRESS_BF16 ? NULL : z->kept;
}

double dt_compress_wire_bytes(const struct dt_compress *z)
{
	double p = dt_comm_size(z->c), ring = 2 * (p - 1) / p;

	if (z->o.kind == DT_COMPRESS_BF16)
		return ring * 2 * (double)z->n;
	if (z->o.kind == DT_COMPRESS_POWERSGD)
		return ring * 4 * (double)(z->rows + z->cols) * z->o.rank;
	return (p - 1) * (double)z->mine_bytes;
}

double dt_compress_break_even(double plain_bytes, double wire_bytes, double codec_s)
{
	return plain_bytes > wire_bytes && codec_s > 0 ? (plain_bytes - wire_bytes) / codec_s : 0;
}

static int by_bf16(struct dt_compress *z, float *x, enum dt_redop op, const char *what, double *net_s,
		   struct dt_err *err)
{
	uint16_t *h = (uint16_t *)z->mine;
	double t0;
	int rc;

	for (size_t i = 0; i < z->n; i++)
		h[i] = dt_f32_to_bf16(x[i]);
	t0 = dt_now();
	rc = dt_all_reduce(z->c, h, NULL, z->n, DT_BF16, op, what, err);
	*net_s += dt_now() - t0;
	for (size_t i = 0; i < z->n && !rc; i++)
		x[i] = dt_bf16_to_f32(h[i]);
	return rc;
}

/* Columns of p [rows, r] made orthonormal; a column that depends on those before it becomes zero. */
static void orthonormalise(float *p, size_t rows, size_t r)
{
	for (size_t k = 0; k < r; k++) {
		double before = 0, norm = 0;

		for (size_t i = 0; i < rows; i++)
			before += (double)p[i * r + k] * (double)p[i * r + k];
		for (size_t j = 0; j < k; j++) {
			double dot = 0;

			for (size_t i = 0; i < rows; i++)
				dot += (double)p[i * r + k] * (double)p[i * r + j];
			for (size_t i = 0; i < rows; i++)
				p[i * r + k] -= (float)dot * p[i * r + j];
		}
		for (size_t i = 0; i < rows; i++)
			norm += (double)p[i * r + k] * (double)p[i * r + k];
		norm = norm > 1e-12 * before ? 1 / sqrt(norm) : 0;
		for (size_t i = 0; i < rows; i++)
			p[i * r + k] *= (float)norm;
	}
}

static int by_powersgd(struct dt_compress *z, float *x, enum dt_redop op, const char *what, double *net_s,
		       struct dt_err *err)
{
	size_t r = (size_t)z->o.rank, n = z->n;
	float scale = op == DT_SUM ? (float)dt_comm_size(z->c) : 1;
	double t0;
	int rc;

	memset(z->p, 0, z->rows * r * sizeof(float));
	for (size_t i = 0; i < n; i++) { /* P = M Q */
		float *p = z->p + i / z->cols * r, *q = z->q + i % z->cols * r;

		z->kept[i] += x[i]; /* M */
		for (size_t k = 0; k < r; k++)
			p[k] += z->kept[i] * q[k];
	}
	t0 = dt_now();
	rc = dt_all_reduce(z->c, z->p, NULL, z->rows * r, DT_F32, DT_AVG, what, err);
	*net_s += dt_now() - t0;
	if (rc)
		return rc;
	orthonormalise(z->p, z->rows, r);
	memset(z->q, 0, z->cols * r * sizeof(float));
	for (size_t i = 0; i < n; i++) { /* Q = M^T P */
		const float *p = z->p + i / z->cols * r;
		float *q = z->q + i % z->cols * r;

		for (size_t k = 0; k < r; k++)
			q[k] += z->kept[i] * p[k];
	}
	t0 = dt_now();
	rc = dt_all_reduce(z->c, z->q, NULL, z->cols * r, DT_F32, DT_AVG, what, err);
	*net_s += dt_now() - t0;
	for (size_t i = 0; i < n && !rc; i++) {
		const float *p = z->p + i / z->cols * r, *q = z->q + i % z->cols * r;
		float v = 0;

		for (size_t k = 0; k < r; k++)
			v += p[k] * q[k];
		z->kept[i] -= v;
		x[i] = scale * v;
	}
	return rc;
}

/* The k-th largest of a[0..n), k from 1; a is reordered. */
static float kth_largest(float *a, size_t n, size_t k)
{
	size_t lo = 0, hi = n - 1, want = k - 1;

	while (lo < hi) {
		float pivot = a[lo + (hi - lo) / 2], t;
		size_t i = lo, j = hi;

		for (;;) {
			while (a[i] > pivot)
				i++;
			while (a[j] < pivot)
				j--;
			if (i >= j)
				break;
			t = a[i];
			a[i++] = a[j];
			a[j--] = t;
		}
		if (i == j && a[i] >= pivot && a[i] <= pivot) {
			if (want == i)
				return pivot;
			if (want < i)
				hi = i ? i - 1 : 0;
			else
				lo = i + 1;
		} else if (want <= j) {
			hi = j;
		} else {
			lo = j + 1;
		}
	}
	return a[want];
}

static int gather(struct dt_compress *z, const char *what, double *net_s, struct dt_err *err)
{
	double t0 = dt_now();
	int rc = dt_all_gather(z->c, z->all, z->mine, z->mine_bytes, DT_U8, what, err);

	*net_s += dt_now() - t0;
	return rc;
}

static int by_top_k(struct dt_compress *z, float *x, enum dt_redop op, const char *what, double *net_s,
		    struct dt_err *err)
{
	float *value = (float *)z->mine + z->k, least, by = op == DT_AVG ? (float)dt_comm_size(z->c) : 1;
	int32_t *at = (int32_t *)z->mine;
	size_t above = 0, m = 0, ties;
	int rc;

	if (!z->n)
		return 0;
	for (size_t i = 0; i < z->n; i++) {
		z->kept[i] += x[i];
		z->sort[i] = fabsf(z->kept[i]);
	}
	least = kth_largest(z->sort, z->n, z->k);
	for (size_t i = 0; i < z->n; i++)
		above += fabsf(z->kept[i]) > least;
	ties = z->k - above;
	for (size_t i = 0; i < z->n && m < z->k; i++) {
		float a = fabsf(z->kept[i]);

		if (!(a > least) && (a < least || !ties))
			continue;
		ties -= !(a > least);
		at[m] = (int32_t)i;
		value[m++] = z->kept[i];
		z->kept[i] = 0;
	}
	rc = gather(z, what, net_s, err);
	if (rc)
		return rc;
	memset(x, 0, z->n * sizeof(float));
	for (int r = 0; r < dt_comm_size(z->c); r++) {
		const int32_t *from = (const int32_t *)(z->all + (size_t)r * z->mine_bytes);
		const float *v = (const float *)from + z->k;

		for (size_t i = 0; i < z->k; i++)
			x[from[i]] += v[i];
	}
	for (size_t i = 0; i < z->n && op == DT_AVG; i++)
		x[i] /= by;
	return 0;
}

/* A block as it is sent. */
struct signs {
	float magnitude;
	uint8_t bit[BLOCK / 8];
};

static int by_one_bit(struct dt_compress *z, float *x, enum dt_redop op, const char *what, double *net_s,
		      struct dt_err *err)
{
	size_t blocks = (z->n + BLOCK - 1) / BLOCK;
	float by = op == DT_AVG ? (float)dt_comm_size(z->c) : 1;
	int rc;

	for (size_t b = 0; b < blocks; b++) {
		struct signs *s = (struct signs *)z->mine + b;
		size_t m = min_size(BLOCK, z->n - b * BLOCK);
		float *v = z->kept + b * BLOCK;
		double sum = 0;

		memset(s, 0, sizeof(*s));
		for (size_t i = 0; i < m; i++) {
			v[i] += x[b * BLOCK + i];
			sum += fabs((double)v[i]);
			s->bit[i / 8] |= (uint8_t)((v[i] < 0) << i % 8);
		}
		s->magnitude = (float)(sum / (double)m);
		for (size_t i = 0; i < m; i++)
			v[i] -= v[i] < 0 ? -s->magnitude : s->magnitude;
	}
	rc = gather(z, what, net_s, err);
	if (rc)
		return rc;
	memset(x, 0, z->n * sizeof(float));
	for (int r = 0; r < dt_comm_size(z->c); r++)
		for (size_t b = 0; b < blocks; b++) {
			const struct signs *s =
				(const struct signs *)(z->all + (size_t)r * z->mine_bytes) + b;
			size_t m = min_size(BLOCK, z->n - b * BLOCK);

			for (size_t i = 0; i < m; i++)
				x[b * BLOCK + i] += s->bit[i / 8] >> i % 8 & 1 ? -s->magnitude : s->magnitude;
		}
	for (size_t i = 0; i < z->n && op == DT_AVG; i++)
		x[i] /= by;
	return 0;
}

int dt_compress_all_reduce(struct dt_compress *z, float *x, enum dt_redop op, const char *what,
			   double *codec_s, struct dt_err *err)
{
	double t0 = dt_now(), net_s = 0;
	int rc;

	if (op != DT_SUM && op != DT_AVG)
		return dt_err_set(err, -EINVAL, "compressed all-reduce '%s': sum and avg only", what);
	switch (z->o.kind) {
	case DT_COMPRESS_BF16:
		rc = by_bf16(z, x, op, what, &net_s, err);
		break;
	case DT_COMPRESS_POWERSGD:
		rc = by_powersgd(z, x, op, what, &net_s, err);
		break;
	case DT_COMPRESS_TOP_K:
		rc = by_top_k(z, x, op, what, &net_s, err);
		break;
	default:
		rc = by_one_bit(z, x, op, what, &net_s, err);
	}
	if (codec_s)
		*codec_s += dt_now() - t0 - net_s;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
