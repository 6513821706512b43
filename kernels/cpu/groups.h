/*
 * Sums over rows that do not depend on the number of threads: the number of rows alone determines a split
 * into at most DT_GROUPS groups; one thread sums each group, and the groups are added in order.
 */
#ifndef DT_KERNELS_CPU_GROUPS_H
#define DT_KERNELS_CPU_GROUPS_H

#include "kernels/cpu/cpu.h"

struct dt_groups {
	int64_t n, rows; /* number of groups, and rows in each but the last */
};

static inline struct dt_groups dt_groups(int64_t rows)
{
	const int64_t each = dt_ceil_div(rows, DT_GROUPS) < 4 ? 4 : dt_ceil_div(rows, DT_GROUPS);

	return (struct dt_groups){dt_ceil_div(rows, each), each};
}

/* Batch norms: rows whose deviations are taken from their own mean, and groups of whole such blocks. */
enum { DT_BN_BLOCK = 64 };
static inline struct dt_groups dt_bn_parts(int64_t rows)
{
	struct dt_groups p = dt_groups(rows > 0 ? rows : 1);

	p.rows = dt_ceil_div(p.rows, DT_BN_BLOCK) * DT_BN_BLOCK;
	p.n = dt_ceil_div(rows > 0 ? rows : 1, p.rows);
	return p;
}

/* out[j] += sum over i < groups of part[i * stride + j], j < n. */
void dt_groups_add(struct dt_dev *dev, float *out, const float *part, int64_t stride, int64_t groups,
		   int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
