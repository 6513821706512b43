/* Reads elements of any source: dequantizes blocks, joins transposed and split tensors, takes means. */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RUN 4096 /* elements dequantized at a time; a multiple of every block size */

static void put(enum dt_dtype as, const float *x, int64_t n, void *dst)
{
	dt_quantize((enum dt_format)dt_format_of_dtype(as), x, n, dst);
}

/* Reads n elements of a stored tensor from element `from`, which may lie within a block. */
static void read_run(const struct src_view *v, int64_t from, int64_t n, enum dt_dtype as, char *dst)
{
	const struct dt_format_info *f = dt_format_info(v->format);
	int64_t size = dt_dtype_size(as);
	float x[RUN];

	if (f->dtype == (int)as) {
		memcpy(dst, v->data + from * size, (size_t)(n * size));
		return;
	}
	while (n > 0) {
		int64_t lead = from % f->block, take = RUN - lead < n ? RUN - lead : n;
		int64_t whole = (lead + take + f->block - 1) / f->block * f->block;

		dt_dequantize(v->format, v->data + dt_format_bytes(v->format, from - lead), whole, x);
		put(as, x + lead, take, dst);
		from += take;
		n -= take;
		dst += take * size;
	}
}

/* Of element (r, c) of a transposed tensor. */
static int64_t number_of(const struct src_view *v, int64_t r, int64_t c)
{
	if (!v->each)
		return v->first + c * v->stride + r;
	return v->first + r / v->each * v->cols * v->stride + c * v->stride + r % v->each * v->step;
}

/* Reads a transposed tensor, of plain type, in tiles, so that cache lines are used fully. */
static void read_transposed(const struct src_view *v, const int64_t *off, const int64_t *shape,
			    enum dt_dtype as, char *dst)
{
	enum { TILE = 64 };
	int64_t es = dt_format_info(v->format)->bytes, size = dt_dtype_size(as);

	for (int64_t r0 = 0; r0 < shape[0]; r0 += TILE)
		for (int64_t c0 = 0; c0 < shape[1]; c0 += TILE)
			for (int64_t c = c0; c < c0 + TILE && c < shape[1]; c++)
				for (int64_t r = r0; r < r0 + TILE && r < shape[0]; r++) {
					const uint8_t *from =
						v->data + es * number_of(v, off[0] + r, off[1] + c);
					char *to = dst + (r * shape[1] + c) * size;
					float x;

					if (dt_format_info(v->format)->dtype == (int)as) {
						memcpy(to, from, (size_t)size);
					} else {
						dt_dequantize(v->format, from, 1, &x);
						put(as, &x, 1, to);
					}
				}
}

static int read_mean(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		     char *dst, struct dt_err *err)
{
	int64_t n = 1;
	double *sum;
	float *x;
	int rc = 0;

	for (int d = 0; d < s->params.p[i].ndim; d++)
		n *= shape[d];
	sum = calloc((size_t)n + 1, sizeof(*sum));
	x = malloc(((size_t)n + 1) * sizeof(*x));
	if (!sum || !x)
		rc = dt_err_sys(err, -ENOMEM, "cannot average '%s'", s->params.p[i].name);
	if (s->from && rc == 0)
		rc = s->box(s, i, off, shape, x, err);
	for (int k = 0; k < s->nmean && !s->from && rc == 0; k++) {
		rc = dt_source_read(s->mean[k], i, off, shape, DT_F32, x, err);
		for (int64_t j = 0; j < n && rc == 0; j++)
			sum[j] += (double)x[j];
	}
	for (int64_t j = 0; j < n && !s->from && rc == 0; j++)
		x[j] = (float)(sum[j] / s->nmean);
	if (rc == 0 && s->adapter)
		src_add_update(s, i, off, shape, x);
	if (rc == 0)
		put(as, x, n, dst);
	free(sum);
	free(x);
	return rc;
}

static void read_box(const struct src_view *v, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
		     enum dt_dtype as, char *dst)
{
	const bool whole = cols == v->stride; /* whole rows are one run */

	for (int64_t n, at; rows > 0; row0 += n, rows -= n) {
		n = src_run(v, row0, whole ? rows : 1, &at);
		read_run(v, v->first + at * v->stride + col0, n * cols, as, dst);
		dst += n * cols * dt_dtype_size(as);
	}
}

int dt_source_read(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, enum dt_dtype as,
		   void *dst, struct dt_err *err)
{
	const struct dt_param *p = &s->params.p[i];
	const struct src_view *v;
	int64_t row0, rows, col0, cols, bytes = dt_dtype_size(as);

	if (dt_format_of_dtype(as) < 0)
		return dt_err_set(err, -EINVAL, "'%s' cannot be read as %s", p->name, dt_dtype_name(as));
	for (int d = 0; d < p->ndim; d++)
		if (off[d] < 0 || shape[d] < 0 || off[d] > p->shape[d] || shape[d] > p->shape[d] - off[d])
			return dt_err_set(err, -EINVAL, "the requested box extends beyond '%s'", p->name);
	if (s->over && !s->over[i].data)
		return dt_source_read(s->mean[0], i, off, shape, as, dst, err);
	if (s->mean && !s->over)
		return read_mean(s, i, off, shape, as, dst, err);
	if (s->ck)
		return dt_ckpt_read(s->ck, s->ck_tensor[i], off, shape, as, dst, err);
	v = s->over ? &s->over[i] : &s->view[i];
	for (int d = 0; d < p->ndim; d++)
		bytes *= shape[d];
	src_reads(s, bytes);
	if (!v->part)
		src_coded_need(s, v->data);
	if (v->transposed) {
		const int64_t at[2] = {off[0], p->ndim == 2 ? off[1] : 0},
			      box[2] = {shape[0], p->ndim == 2 ? shape[1] : 1};

		read_transposed(v, at, box, as, dst);
		return 0;
	}
	row0 = off[0];
	rows = shape[0];
	col0 = p->ndim == 2 ? off[1] : 0;
	cols = p->ndim == 2 ? shape[1] : 1;
	if (!v->part)
		read_box(v, row0, rows, col0, cols, as, dst);
	for (int64_t n; v->part && rows > 0; row0 += n, rows -= n) {
		struct src_view one = *v;

		one.data = v->part[row0 / v->part_rows];
		src_coded_need(s, one.data);
		n = v->part_rows - row0 % v->part_rows;
		n = n < rows ? n : rows;
		read_box(&one, row0 % v->part_rows, n, col0, cols, as, dst);
		dst = (char *)dst + n * cols * dt_dtype_size(as);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
