/* Tensors of several experts: dimensions, and elements of transposed ones. */
#include "ckpt/export_internal.h"

#include <errno.h>
#include <string.h>

int exp_dims(const struct exporter *e, const struct exp_tensor *t, int64_t ret[4])
{
	const struct dt_param *p = t->buffer ? NULL : &dt_source_params(e->s)->p[t->part[0]];
	int n = 0;

	if (p && dt_param_reshaped(p)) {
		n = dt_param_dims(p, ret);
		if (p->channels) /* those of all parts */
			ret[0] = t->shape[0];
		return n;
	}
	if (t->stack)
		ret[n++] = t->stack;
	if (!t->stack || t->shape[0] > t->stack)
		ret[n++] = t->stack ? t->shape[0] / t->stack : t->shape[0];
	if (t->ndim == 2)
		ret[n++] = t->shape[1];
	return n;
}

/* Rows of the file that one expert's are: columns [col, col + n) of expert's rows. */
static int read_expert(struct exporter *e, const struct exp_tensor *t, int64_t expert, int64_t col, int64_t n,
		       char *dst, struct dt_err *err)
{
	const int64_t size = dt_format_info(t->format)->bytes, rows = t->shape[1] / t->nparts;
	const int64_t off[2] = {expert * rows, col}, shape[2] = {rows, n};

	if (exp_grow(&e->tmp, &e->tmp_bytes, (size_t)(rows * n * size)) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot convert '%s'", t->name);
	for (int k = 0; k < t->nparts; k++) {
		int rc = dt_source_read(e->s, t->part[k], off, shape,
					(enum dt_dtype)dt_format_info(t->format)->dtype, e->tmp, err);

		if (rc < 0)
			return rc;
		for (int64_t r = 0; r < rows; r++)
			for (int64_t c = 0; c < n; c++)
				memcpy(dst + (c * t->shape[1] + r * t->nparts + k) * size,
				       e->tmp + (r * n + c) * size, (size_t)size);
	}
	return 0;
}

int exp_read_experts(struct exporter *e, const struct exp_tensor *t, int64_t row, int64_t n, char *dst,
		     struct dt_err *err)
{
	const int64_t each = t->shape[0] / t->stack, bytes = t->shape[1] * dt_format_info(t->format)->bytes;
	int rc = 0;

	for (int64_t some; n > 0 && rc == 0; row += some, n -= some, dst += some * bytes) {
		some = each - row % each < n ? each - row % each : n;
		rc = read_expert(e, t, row / each, row % each, some, dst, err);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
