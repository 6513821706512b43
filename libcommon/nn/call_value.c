/*
 * The value head: the product of the head's input with one vector, in f32, on the host. Its gradients come
 * from the loss's derivatives by each row's value. With a device, rows are copied to the host and their
 * gradients back: per microbatch three times the rows, besides two products with the whole vocabulary.
 */
#include "nn/call.h"

#include <errno.h>
#include <stdlib.h>

/* Replaces *t by a copy that the host can read, if needed. */
static int see(struct dt_exec *x, struct dt_tensor *t, struct dt_err *err)
{
	const void *there = t->data;

	if (!there)
		return 0;
	t->data = dt_call_seen(x, *t);
	if (!t->data)
		return dt_err_sys(err, -ENOMEM, "cannot compute values");
	return t->data == there ? 0
				: dt_call_move(x, t->data, there,
					       (size_t)(dt_numel(*t) * dt_dtype_size(t->dtype)), err);
}

/* Frees a copy that was only read. */
static void drop(struct dt_tensor seen, struct dt_tensor t)
{
	if (seen.data != t.data)
		free(seen.data);
}

static float read(const struct dt_tensor *t, int64_t i)
{
	const uint16_t *narrow = t->data;

	return t->dtype == DT_F32    ? ((const float *)t->data)[i]
	       : t->dtype == DT_BF16 ? dt_bf16_to_f32(narrow[i])
				     : dt_f16_to_f32(narrow[i]);
}

static void write(const struct dt_tensor *t, int64_t i, float x)
{
	if (t->dtype == DT_F32)
		((float *)t->data)[i] = x;
	else
		((uint16_t *)t->data)[i] = t->dtype == DT_BF16 ? dt_f32_to_bf16(x) : dt_f32_to_f16(x);
}

static void values(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w)
{
	const int64_t cols = in.dim[1];

#pragma omp parallel for num_threads(x->dev->nthreads)
	for (int64_t r = 0; r < in.dim[0]; r++) {
		double sum = 0;

		for (int64_t i = 0; i < cols; i++)
			sum += (double)read(&in, r * cols + i) * (double)read(&w, i);
		x->objective.value[r] = (float)sum;
	}
}

int dt_call_values(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w, struct dt_err *err)
{
	struct dt_tensor rows = in, vector = w;
	int rc = see(x, &rows, err);

	if (rc == 0)
		rc = see(x, &vector, err);
	if (rc == 0)
		values(x, rows, vector);
	drop(rows, in);
	drop(vector, w);
	return rc;
}

/* Columns of the vector's gradient that a thread sums at a time. */
enum { COLUMNS = 16 };

static void vector_grad(const struct dt_exec *x, const struct dt_tensor *in, float *dw, bool accumulate)
{
	const int64_t cols = in->dim[1], rows = in->dim[0];

#pragma omp parallel for num_threads(x->dev->nthreads)
	for (int64_t from = 0; from < cols; from += COLUMNS) {
		const int64_t n = cols - from < COLUMNS ? cols - from : COLUMNS;
		double sum[COLUMNS] = {0};

		for (int64_t r = 0; r < rows; r++)
			for (int64_t i = 0; i < n && x->objective.dvalue[r] != 0; i++)
				sum[i] += (double)x->objective.dvalue[r] *
					  (double)read(in, r * cols + from + i);
		for (int64_t i = 0; i < n; i++)
			dw[from + i] =
				(float)(sum[i] * (double)x->loss_scale) + (accumulate ? dw[from + i] : 0);
	}
}

static void rows_grad(const struct dt_exec *x, struct dt_tensor in, struct dt_tensor w, struct dt_tensor din)
{
	const int64_t cols = in.dim[1];

#pragma omp parallel for num_threads(x->dev->nthreads)
	for (int64_t r = 0; r < in.dim[0]; r++) {
		const float d = x->objective.dvalue[r] * x->loss_scale;

		for (int64_t i = r * cols; i < (r + 1) * cols && d != 0; i++)
			write(&din, i, read(&din, i) + d * read(&w, i - r * cols));
	}
}

int dt_call_values_back(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w, struct dt_tensor din,
			struct dt_tensor dw, bool accumulate, struct dt_err *err)
{
	struct dt_tensor here[4] = {in, w, din, dw};
	int rc = 0;

	for (int i = 0; i < 4 && rc == 0; i++)
		rc = see(x, &here[i], err);
	if (rc == 0 && dw.data)
		vector_grad(x, &here[0], here[3].data, accumulate);
	if (rc == 0)
		rows_grad(x, here[0], here[1], here[2]);
	drop(here[0], in);
	drop(here[1], w);
	rc = dt_call_unseen(x, din, here[2].data, rc, err);
	return dt_call_unseen(x, dw, here[3].data, rc, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
