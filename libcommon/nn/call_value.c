/*
 * The value head: a product of the head's input with one vector, in f32, on the host. Gradients are those of
 * a loss whose derivative by each row's value is given.
 */
#include "nn/call.h"

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

void dt_call_values(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w)
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

/* Columns of the vector's gradient that a thread adds up at a time. */
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

void dt_call_values_back(struct dt_exec *x, struct dt_tensor in, struct dt_tensor w, struct dt_tensor din,
			 struct dt_tensor dw, bool accumulate)
{
	const int64_t cols = in.dim[1];

	if (dw.data)
		vector_grad(x, &in, dw.data, accumulate);
#pragma omp parallel for num_threads(x->dev->nthreads)
	for (int64_t r = 0; r < in.dim[0]; r++) {
		const float d = x->objective.dvalue[r] * x->loss_scale;

		for (int64_t i = r * cols; i < (r + 1) * cols && d != 0; i++)
			write(&din, i, read(&din, i) + d * read(&w, i - r * cols));
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
