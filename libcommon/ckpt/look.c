#include "ckpt/look.h"

#include "ckpt/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define RUN_BYTES (64 << 20)

json_t *dt_tensors_json(const struct dt_tensors *t)
{
	json_t *list = json_array();

	for (int i = 0; list && i < dt_tensors_n(t); i++) {
		const struct dt_tensor_desc *d = dt_tensors_desc(t, i);
		json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:i, s:I}", "name", d->name, "dtype", d->type,
				      "shape", ck_dims_json(d->ndim, d->shape), "cut",
				      d->regular ? ck_dims_json(d->ndim, d->grid) : json_null(), "pieces",
				      d->npieces, "bytes", (json_int_t)d->bytes);

		if (json_array_append_new(list, o) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static void print_numbers(enum dt_dtype t, const void *data, int64_t n, int64_t width, int64_t first, FILE *f)
{
	for (int64_t i = 0; i < n; i++) {
		char end = (first + i + 1) % width == 0 ? '\n' : ' ';
		double x;

		if (t == DT_I64) {
			fprintf(f, "%" PRId64 "%c", ((const int64_t *)data)[i], end);
			continue;
		}
		dt_ckpt_to_f64(t, (const char *)data + i * dt_dtype_size(t), 1, &x);
		fprintf(f, t == DT_F64 ? "%.17g%c" : "%.9g%c", x, end);
	}
}

/* Reads elements [first, first + n) of tensor i: any run of a checkpoint, whole rows of a source. */
static int read_run(struct dt_tensors *t, int i, int64_t first, int64_t n, void *buf, struct dt_err *err)
{
	const struct dt_tensor_desc *d = dt_tensors_desc(t, i);
	int64_t off[DT_CKPT_MAX_DIM] = {0}, shape[DT_CKPT_MAX_DIM], row;

	if (dt_tensors_ckpt(t))
		return dt_ckpt_read_run(dt_tensors_ckpt(t), i, first, n, buf, err);
	memcpy(shape, d->shape, sizeof(shape));
	row = ck_numel(d->ndim - 1, d->shape + 1);
	off[0] = row ? first / row : 0;
	shape[0] = row ? n / row : 0;
	return dt_tensors_read(t, i, off, shape, buf, err);
}

int dt_tensors_print(struct dt_tensors *t, int i, bool raw, FILE *f, struct dt_err *err)
{
	const struct dt_tensor_desc *d = dt_tensors_desc(t, i);
	int64_t numel = ck_numel(d->ndim, d->shape), size = dt_dtype_size(d->dtype), run = RUN_BYTES / size;
	int64_t width = d->ndim > 1 ? d->shape[d->ndim - 1] : 1;
	int64_t row = ck_numel(d->ndim - 1, d->shape + 1);
	void *buf;
	int rc = 0;

	if (row)
		run = run < row ? row : run / row * row;
	buf = malloc((size_t)(numel < run ? numel + 1 : run) * (size_t)size);
	if (!buf)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", d->name);
	for (int64_t first = 0; first < numel && rc == 0; first += run) {
		int64_t n = numel - first < run ? numel - first : run;

		rc = read_run(t, i, first, n, buf, err);
		if (rc == 0 && raw)
			fwrite(buf, (size_t)size, (size_t)n, f);
		else if (rc == 0)
			print_numbers(d->dtype, buf, n, width, first, f);
	}
	free(buf);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
