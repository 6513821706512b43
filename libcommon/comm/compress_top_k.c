#include "comm/compress_priv.h"

#include <math.h>

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

/* Writes the largest entries of a part to at (indices) and value; returns how many. */
static size_t take(struct dt_compress *z, const struct dt_compress_part *p, int32_t *at, float *value)
{
	const size_t most = dt_compress_entries(&z->o, p);
	float *v = z->kept + p->at, *sort = dt_compress_floats(z, z->w.sort), least;
	size_t above = 0, m = 0, ties;

	for (size_t i = 0; i < p->n; i++)
		sort[i] = fabsf(v[i]);
	least = kth_largest(sort, p->n, most);
	for (size_t i = 0; i < p->n; i++)
		above += fabsf(v[i]) > least;
	ties = most - above;
	for (size_t i = 0; i < p->n && m < most; i++) {
		float a = fabsf(v[i]);

		if (!(a > least) && (a < least || !ties))
			continue;
		ties -= !(a > least);
		at[m] = (int32_t)(p->at + i);
		value[m++] = v[i];
		v[i] = 0;
	}
	return m;
}

int dt_compress_top_k(struct dt_compress *z, float *x, const char *what, double *net_s, struct dt_err *err)
{
	int32_t *at = (int32_t *)(z->work + z->w.mine);
	float *value = (float *)at + z->w.entries;
	size_t m = 0;
	int rc;

	for (int i = 0; i < z->nparts; i++)
		if (!z->part[i].plain)
			m += take(z, &z->part[i], at + m, value + m);
	rc = dt_compress_gather(z, what, net_s, err);
	if (rc)
		return rc;
	for (int p = 0; p < z->nparts; p++)
		for (size_t i = 0; i < z->part[p].n && !z->part[p].plain; i++)
			x[z->part[p].at + i] = 0;
	for (int r = 0; r < z->ranks; r++) {
		const int32_t *from = (const int32_t *)(z->work + z->w.all + (size_t)r * z->w.mine_bytes);
		const float *v = (const float *)from + z->w.entries;

		for (size_t i = 0; i < z->w.entries; i++)
			x[from[i]] += v[i];
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
