/* Boxes of tensors: splitting, checking, copying. No file access. */
#include "ckpt/internal.h"

#include "base/room.h"
#include "kernels/quant_formats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int64_t ck_numel(int ndim, const int64_t *shape)
{
	int64_t n = 1;

	for (int d = 0; d < ndim; d++)
		n *= shape[d];
	return n;
}

static int range_rec(const struct dt_piece *box, int d, int64_t at, int64_t first, int64_t n,
		     struct dt_piece *cur, struct dt_piece *ret)
{
	int64_t inner = ck_numel(box->ndim - d - 1, box->shape + d + 1), row = first / inner,
		skip = first % inner;
	int k = 0;

	if (skip || n < inner) { /* the end of a row, or part of one */
		int64_t take = n < inner - skip ? n : inner - skip;

		cur->off[d] = box->off[d] + row;
		cur->shape[d] = 1;
		k += range_rec(box, d + 1, at + row * inner, skip, take, cur, ret + k);
		n -= take;
		row++;
	}
	if (n >= inner) { /* whole rows */
		struct dt_piece *p = &ret[k++];

		*p = *cur;
		p->off[d] = box->off[d] + row;
		p->shape[d] = n / inner;
		for (int e = d + 1; e < box->ndim; e++) {
			p->off[e] = box->off[e];
			p->shape[e] = box->shape[e];
		}
		if (box->data)
			p->data = (const char *)box->data + (at + row * inner) * dt_dtype_size(box->dtype);
		row += n / inner;
		n %= inner;
	}
	if (n) { /* the start of a row */
		cur->off[d] = box->off[d] + row;
		cur->shape[d] = 1;
		k += range_rec(box, d + 1, at + row * inner, 0, n, cur, ret + k);
	}
	return k;
}

int dt_pieces_of_range(const struct dt_piece *box, int64_t first, int64_t n, struct dt_piece *ret)
{
	struct dt_piece cur = *box;

	if (n <= 0)
		return 0;
	return range_rec(box, 0, 0, first, n, &cur, ret);
}

static int split_push(const struct dt_piece *p, struct dt_piece **v, int *n, int *cap)
{
	if (!DT_ROOM(*v, *n, *cap, 64))
		return -ENOMEM;
	(*v)[(*n)++] = *p;
	return 0;
}

static int split_rec(const struct dt_piece *p, int64_t max, int d, struct dt_piece **v, int *n, int *cap)
{
	int64_t bytes = ck_numel(p->ndim, p->shape) * dt_dtype_size(p->dtype), inner, rows;
	int rc = 0;

	if (bytes == 0)
		return 0;
	if (bytes <= max || d == p->ndim || d == DT_CKPT_MAX_DIM)
		return split_push(p, v, n, cap);
	inner = bytes / p->shape[d];
	rows = inner > max ? 1 : max / inner;
	for (int64_t i = 0; i < p->shape[d] && rc == 0; i += rows) {
		struct dt_piece sub = *p;

		sub.off[d] += i;
		sub.shape[d] = p->shape[d] - i < rows ? p->shape[d] - i : rows;
		if (p->data)
			sub.data = (const char *)p->data + i * inner;
		rc = split_rec(&sub, max, d + 1, v, n, cap);
	}
	return rc;
}

int ck_split(const struct dt_piece *p, int64_t max, struct dt_piece **v, int *n, int *cap)
{
	return split_rec(p, max, 0, v, n, cap);
}

static int by_offset(const void *a, const void *b)
{
	const struct ck_piece *x = a, *y = b;

	for (int d = 0; d < DT_CKPT_MAX_DIM; d++)
		if (x->off[d] != y->off[d])
			return x->off[d] < y->off[d] ? -1 : 1;
	return 0;
}

static bool meet(int ndim, const struct ck_piece *a, const struct ck_piece *b)
{
	for (int d = 0; d < ndim; d++)
		if (a->off[d] >= b->off[d] + b->shape[d] || b->off[d] >= a->off[d] + a->shape[d])
			return false;
	return true;
}

/*
 * Disjoint boxes in a tensor whose volumes sum to its own cover it. Disjointness is checked by a sweep along
 * the first dimension; real layouts meet few neighbours there, so only a malicious manifest exceeds the
 * budget.
 */
int ck_check_cover(const struct ck_tensor *t, struct ck_piece *p, struct dt_err *err)
{
	int64_t numel = ck_numel(t->ndim, t->shape), sum = 0, budget = (int64_t)1 << 26;
	char a[96], b[96];

	qsort(p, (size_t)t->npieces, sizeof(*p), by_offset);
	for (int i = 0; i < t->npieces; i++) {
		int64_t end = p[i].off[0] + p[i].shape[0];

		for (int j = i + 1; j < t->npieces && p[j].off[0] < end; j++) {
			if (meet(t->ndim, &p[i], &p[j]))
				return dt_err_set(err, -EBADMSG,
						  "tensor '%s': the pieces at %s and %s overlap", t->name,
						  ck_shape_text(a, sizeof(a), t->ndim, p[i].off),
						  ck_shape_text(b, sizeof(b), t->ndim, p[j].off));
			if (--budget < 0)
				return dt_err_set(err, -EBADMSG,
						  "tensor '%s' is cut into too many pieces to check",
						  t->name);
		}
		sum += ck_numel(t->ndim, p[i].shape); /* disjoint so far, so at most numel */
	}
	if (sum != numel)
		return dt_err_set(err, -EBADMSG, "tensor '%s': its pieces hold %lld of %lld elements",
				  t->name, (long long)sum, (long long)numel);
	return 0;
}

void ck_dataset_name(char *buf, size_t n, const char *tensor, int ndim, const int64_t *off)
{
	size_t k = (size_t)snprintf(buf, n, "%s@", tensor);

	for (int d = 0; d < ndim && k < n; d++)
		k += (size_t)snprintf(buf + k, n - k, "%s%lld", d ? "," : "", (long long)off[d]);
}

const char *ck_shape_text(char *buf, size_t n, int ndim, const int64_t *shape)
{
	size_t k = (size_t)snprintf(buf, n, "[");

	for (int d = 0; d < ndim && k < n; d++)
		k += (size_t)snprintf(buf + k, n - k, "%s%lld", d ? ", " : "", (long long)shape[d]);
	if (k < n)
		snprintf(buf + k, n - k, "]");
	return buf;
}

bool ck_copy_plan(struct ck_copy *c, const struct ck_tensor *t, const struct ck_piece *p, const int64_t *off,
		  const int64_t *shape, enum dt_dtype as)
{
	int n = t->ndim;

	*c = (struct ck_copy){.from = t->dtype, .to = as};
	for (int d = 0; d < n; d++) {
		int64_t lo = p->off[d] > off[d] ? p->off[d] : off[d];
		int64_t pe = p->off[d] + p->shape[d], be = off[d] + shape[d], hi = pe < be ? pe : be;

		if (lo >= hi)
			return false;
		c->piece[d] = p->shape[d];
		c->first[d] = lo - p->off[d];
		c->count[d] = hi - lo;
		c->dst_shape[d] = shape[d];
		c->dst_first[d] = lo - off[d];
	}
	while (n > 1 && c->count[n - 1] == c->piece[n - 1] && c->count[n - 1] == c->dst_shape[n - 1]) {
		int64_t w = c->count[n - 1];

		n--;
		c->piece[n - 1] *= w;
		c->first[n - 1] *= w;
		c->count[n - 1] *= w;
		c->dst_shape[n - 1] *= w;
		c->dst_first[n - 1] *= w;
	}
	c->ndim = n;
	return true;
}

int64_t ck_copy_direct(const struct ck_copy *c)
{
	int64_t at = 0;

	if (c->from != c->to)
		return -1;
	for (int d = 0; d < c->ndim; d++) {
		/* One contiguous run: only one row in all dimensions before the last. */
		if (c->count[d] != c->piece[d] || (d + 1 < c->ndim && c->piece[d] != 1))
			return -1;
		at = at * c->dst_shape[d] + c->dst_first[d];
	}
	return at * dt_dtype_size(c->to);
}

/* Converts between f32, bf16 and f16, through f32. */
static void convert(const struct ck_copy *c, const void *src, void *dst, int64_t n)
{
	enum dt_format from, to;
	float x[256];

	if (c->from == c->to) {
		memcpy(dst, src, (size_t)n * (size_t)dt_dtype_size(c->to));
		return;
	}
	from = (enum dt_format)dt_format_of_dtype(c->from);
	to = (enum dt_format)dt_format_of_dtype(c->to);
	for (int64_t i = 0; i < n; i += 256) {
		int64_t k = n - i < 256 ? n - i : 256;

		dt_dequantize(from, (const char *)src + i * dt_dtype_size(c->from), k, x);
		dt_quantize(to, x, k, (char *)dst + i * dt_dtype_size(c->to));
	}
}

void ck_copy_feed(const struct ck_copy *c, int64_t first, int64_t n, const void *src, void *dst)
{
	int last = c->ndim - 1, from = dt_dtype_size(c->from), to = dt_dtype_size(c->to);
	int64_t width = c->piece[last], lo = c->first[last], hi = lo + c->count[last];

	for (int64_t end = first + n; first < end;) {
		int64_t row = first / width, col = first % width, stop = col + (end - first), at = 0;
		int64_t index[DT_CKPT_MAX_DIM], a, b;
		bool inside = true;

		if (stop > width)
			stop = width;
		for (int d = last - 1; d >= 0; d--, row /= c->piece[d + 1])
			index[d] = row % c->piece[d] - c->first[d];
		for (int d = 0; d < last && inside; d++) {
			inside = index[d] >= 0 && index[d] < c->count[d];
			at = at * c->dst_shape[d] + index[d] + c->dst_first[d];
		}
		a = col > lo ? col : lo;
		b = stop < hi ? stop : hi;
		if (inside && a < b) {
			at = at * c->dst_shape[last] + (a - lo) + c->dst_first[last];
			convert(c, (const char *)src + (a - col) * from, (char *)dst + at * to, b - a);
		}
		src = (const char *)src + (stop - col) * from;
		first += stop - col;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
