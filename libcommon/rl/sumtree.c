#include "rl/sumtree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_sumtree_open(struct dt_sumtree *t, int64_t n, struct dt_err *err)
{
	*t = (struct dt_sumtree){.n = n, .leaves = 1};
	while (t->leaves < n)
		t->leaves *= 2;
	t->node = calloc((size_t)t->leaves * 2, sizeof(*t->node));
	return t->node ? 0 : dt_err_sys(err, -ENOMEM, "cannot keep %lld priorities", (long long)n);
}

void dt_sumtree_release(struct dt_sumtree *t)
{
	free(t->node);
	memset(t, 0, sizeof(*t));
}

void dt_sumtree_set(struct dt_sumtree *t, int64_t i, double x)
{
	int64_t k = t->leaves + i;

	t->node[k] = x;
	for (k /= 2; k > 0; k /= 2)
		t->node[k] = t->node[2 * k] + t->node[2 * k + 1];
}

double dt_sumtree_get(const struct dt_sumtree *t, int64_t i)
{
	return t->node[t->leaves + i];
}

double dt_sumtree_sum(const struct dt_sumtree *t)
{
	return t->node[1];
}

int64_t dt_sumtree_find(const struct dt_sumtree *t, double at)
{
	int64_t k = 1;

	while (k < t->leaves) {
		const double left = t->node[2 * k];

		/* rounding may put a point at the very end of the sum */
		if (at < left || !(t->node[2 * k + 1] > 0)) {
			k = 2 * k;
		} else {
			at -= left;
			k = 2 * k + 1;
		}
	}
	return k - t->leaves;
}
/* SPDX-License-Identifier: Apache-2.0 */
