/* Sets of packed weights with the same shape: the experts of a layer. */
#include "kernels/cpu/quant.h"

#include <stdlib.h>

static bool alike(const struct dt_packed *a, const struct dt_packed *b)
{
	if (a->k != b->k || a->rows != b->rows || a->nparts != b->nparts || a->dev != b->dev)
		return false;
	for (int i = 0; i < a->nparts; i++)
		if (a->part[i].format != b->part[i].format || a->part[i].rows != b->part[i].rows)
			return false;
	return true;
}

int dt_packed_set_moved(struct dt_packed_set *s)
{
	if (!s->dev)
		return 0;
	for (int i = 0; i < s->w[0]->nparts; i++)
		for (int e = 0; e < s->n; e++)
			s->here[i * s->n + e] = s->w[e]->part[i].data;
	return dt_dev_copy(s->dev, s->there, s->here, dt_packed_set_bytes(s));
}

/* Uploads the addresses of each part's data, for the kernels of a card. */
static int tell(struct dt_packed_set *s)
{
	void *there;
	int rc = dt_dev_alloc(s->dev, &there, dt_packed_set_bytes(s));

	if (rc < 0)
		return rc;
	s->there = there;
	s->here = malloc(dt_packed_set_bytes(s));
	rc = s->here ? dt_packed_set_moved(s) : -ENOMEM;
	return rc < 0 ? rc : dt_dev_sync(s->dev);
}

int dt_packed_set_open(struct dt_packed_set **ret, struct dt_dev *dev, struct dt_packed *const *w, int n)
{
	struct dt_packed_set *s;
	int rc = 0;

	for (int i = 0; i < n; i++)
		if (!w[i] || !w[i]->nparts || !alike(w[0], w[i]))
			return -EINVAL;
	if (n < 1 || (w[0]->dev && w[0]->dev != dev))
		return -EINVAL;
	s = calloc(1, sizeof *s + (size_t)n * sizeof *s->w);
	if (!s)
		return -ENOMEM;
	s->dev = w[0]->dev;
	s->n = n;
	for (int i = 0; i < n; i++)
		s->w[i] = w[i];
	if (s->dev)
		rc = tell(s);
	if (rc < 0) {
		dt_packed_set_close(s);
		return rc;
	}
	*ret = s;
	return 0;
}

void dt_packed_set_close(struct dt_packed_set *s)
{
	if (s && s->there)
		dt_dev_free(s->dev, s->there);
	if (s)
		free(s->here);
	free(s);
}

size_t dt_packed_set_bytes(const struct dt_packed_set *s)
{
	return s->dev ? (size_t)(s->w[0]->nparts * s->n) * sizeof *s->there : 0;
}

int dt_packed_set_n(const struct dt_packed_set *s)
{
	return s->n;
}
/* SPDX-License-Identifier: Apache-2.0 */
