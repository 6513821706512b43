#include "serve/engine/kvparts.h"

#include "model/config.h"

#include <string.h>

struct place {		   /* position of a rank's part in the whole block */
	int first, pieces; /* of the pieces of all layers */
	int head, heads;
};

static struct place place_of(const struct dt_kvparts *p, int rank)
{
	const struct dt_coords at = dt_layout_coords(&p->layout, rank);
	const int tp = p->layout.tp, heads = p->form.heads;
	struct place r = {.head = at.tp * heads / tp, .heads = heads >= tp ? heads / tp : 1};
	int first, last;

	dt_layout_stage(&p->layout, p->config, at.pp, &first, &last);
	r.first = first * p->form.pieces;
	r.pieces = (last - first) * p->form.pieces;
	return r;
}

size_t dt_kvparts_whole(const struct dt_kvparts *p)
{
	return (size_t)(p->config->layers * p->form.pieces * p->form.outer * p->form.heads) * p->form.inner;
}

size_t dt_kvparts_bytes(const struct dt_kvparts *p, int rank)
{
	const struct place r = place_of(p, rank);

	return (size_t)(r.pieces * p->form.outer * r.heads) * p->form.inner;
}

/* Offset of run i of a rank's part in the whole block. */
static size_t run_at(const struct dt_kvparts *p, const struct place *r, int i)
{
	return (size_t)((r->first * p->form.outer + i) * p->form.heads + r->head) * p->form.inner;
}

void dt_kvparts_cut(const struct dt_kvparts *p, int rank, void *part, const void *whole)
{
	const struct place r = place_of(p, rank);
	const size_t n = (size_t)r.heads * p->form.inner;

	for (int i = 0; i < r.pieces * p->form.outer; i++)
		memcpy((char *)part + (size_t)i * n, (const char *)whole + run_at(p, &r, i), n);
}

void dt_kvparts_join(const struct dt_kvparts *p, int rank, const void *part, void *whole)
{
	const struct place r = place_of(p, rank);
	const size_t n = (size_t)r.heads * p->form.inner;

	for (int i = 0; i < r.pieces * p->form.outer; i++)
		memcpy((char *)whole + run_at(p, &r, i), (const char *)part + (size_t)i * n, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
