/* The sums of row_sums.h, 16 elements at a time. */
#include "kernels/row_sums.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

#include <math.h>

enum { LANES = 16 };

static DT_SIMD float largest(const float *l, int64_t n)
{
	return dt_most(l, n, -INFINITY);
}

DT_INLINE double sum_of(const double lane[LANES])
{
	double sum = 0;

	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

static DT_SIMD double exponentials(const float *l, int64_t n, float base)
{
	const int64_t even = n / LANES * LANES;
	double lane[LANES] = {0};

	for (int64_t j = 0; j < even; j += LANES)
#pragma omp simd
		for (int k = 0; k < LANES; k++)
			lane[k] += (double)dt_expf_bounded(l[j + k] - base);
	for (int64_t j = even; j < n; j++)
		lane[j - even] += (double)dt_expf_bounded(l[j] - base);
	return sum_of(lane);
}

DT_INLINE double divergence_of(float a, float b)
{
	return (double)(dt_expf_bounded(a) * (a - b));
}

static DT_SIMD double divergences(const float *a, const float *b, int64_t n, float base_a, float base_b)
{
	const int64_t even = n / LANES * LANES;
	double lane[LANES] = {0};

	for (int64_t j = 0; j < even; j += LANES)
#pragma omp simd
		for (int k = 0; k < LANES; k++)
			lane[k] += divergence_of(a[j + k] - base_a, b[j + k] - base_b);
	for (int64_t j = even; j < n; j++)
		lane[j - even] += divergence_of(a[j] - base_a, b[j] - base_b);
	return sum_of(lane);
}

int64_t dt_row_argmax(const float *l, int64_t n)
{
	const float most = largest(l, n);

	for (int64_t j = 0; j < n; j++)
		if (l[j] == most)
			return j;
	return 0;
}

/* By chunks, each read from memory once; sums are relative to the largest element so far. */
double dt_row_log_sum(const float *l, int64_t n)
{
	float most = -INFINITY;
	double sum = 0;

	for (int64_t c = 0; c < n; c += DT_CHUNK) {
		const int64_t w = dt_min64(DT_CHUNK, n - c);
		const float here = largest(l + c, w);

		if (here > most) {
			sum = sum ? sum * exp((double)most - (double)here) : 0;
			most = here;
		}
		/* All are -Inf so far: avoids -Inf - -Inf, which would be NaN. */
		sum += exponentials(l + c, w, most == -INFINITY ? 0 : most);
	}
	return log(sum) + (double)most;
}

double dt_row_divergence(const float *a, const float *b, int64_t n, double log_sum_a, double log_sum_b)
{
	return divergences(a, b, n, (float)log_sum_a, (float)log_sum_b);
}
/* SPDX-License-Identifier: Apache-2.0 */
