/* An adapter in memory, and what it adds to its base. */
#include "ckpt/adapter.h"
#include "ckpt/source_internal.h"

#include <stdlib.h>

void dt_adapter_close(struct dt_adapter *a)
{
	for (int i = 0; a && i < a->n; i++) {
		free(a->part[i].a);
		free(a->part[i].b);
	}
	if (a) {
		free(a->part);
		free(a->path);
	}
	free(a);
}

const struct dt_adapter_part *dt_adapter_find(const struct dt_adapter *a, int param)
{
	for (int i = 0; i < a->n; i++)
		if (a->part[i].param == param)
			return &a->part[i];
	return NULL;
}

void src_add_update(const struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x)
{
	const struct dt_adapter_part *p = dt_adapter_find(s->adapter, i);

	for (int64_t r = 0; p && r < shape[0]; r++) {
		const float *b = p->b + (off[0] + r) * p->rank;
		float *y = x + r * shape[1];

		for (int64_t k = 0; k < p->rank; k++) {
			const float w = (float)p->scale * b[k], *a = p->a + k * p->in + off[1];

			for (int64_t c = 0; c < shape[1]; c++)
				y[c] += w * a[c];
		}
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
