/*
 * Images in a step: rows of tiles are computed just before the step that reads them, so those that the
 * prefix cache has are never computed, and those of a preempted request are kept. Beside other requests a
 * step reads one new tile of a request at most, so that these do not wait for all of an image.
 */
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TAGS = 2 }; /* tokens in front of a tile that belong to it in any case */

/*
 * The key of token i of a tile, the tags in front of it included: below 0, which no token is. The first eight
 * have a word of the digest each, and a block is found only behind the blocks of all tokens before it.
 */
static int32_t key_of(const struct dt_call_tile *t, int i)
{
	return (int32_t)((t->sum[i % 8] ^ (uint32_t)i * 0x9e3779b9u * (i >= 8)) | 0x80000000u);
}

int dt_engine_key_images(const struct dt_engine *e, struct dt_serve_req *r, struct dt_err *err)
{
	const struct dt_call_images *x = r->call->images;

	if (!e->p.model.see || x->rows != e->p.model.tile_rows)
		return dt_err_set(err, -EINVAL, "this model reads no images");
	for (int i = 0; i < x->n; i++)
		if (x->tile[i].at < TAGS || x->tile[i].at + x->rows > r->nprompt ||
		    (i > 0 && x->tile[i].at < x->tile[i - 1].at + x->rows + TAGS))
			return dt_err_set(err, -EINVAL, "tile %d of the images is not in the prompt", i);
	free(r->keys);
	r->keys = malloc((size_t)(r->nprompt + r->max_tokens) * sizeof(*r->keys));
	if (!r->keys)
		return dt_err_sys(err, -ENOMEM, "cannot take the request");
	memcpy(r->keys, r->tokens, (size_t)r->nprompt * sizeof(*r->keys));
	for (int i = 0; i < x->n; i++)
		for (int k = 0; k < x->rows + TAGS; k++)
			r->keys[x->tile[i].at - TAGS + k] = key_of(&x->tile[i], k);
	return 0;
}

static bool in_item(const struct dt_sched_item *it, const struct dt_call_images *x, int i)
{
	return x->tile[i].at < it->first + it->n && x->tile[i].at + x->rows > it->first;
}

static int compute(const struct dt_engine *e, struct dt_call_tile *t, struct dt_err *err)
{
	void *rows = malloc(e->p.model.tile_bytes);
	int rc = rows ? e->p.model.see(e->p.model.tower, t->pixels, rows, err)
		      : dt_err_sys(err, -ENOMEM, "cannot read an image");

	if (rc < 0) {
		free(rows);
		return rc;
	}
	t->rows = rows;
	free(t->pixels);
	t->pixels = NULL;
	return 0;
}

int dt_engine_see(struct dt_engine *e, struct dt_sched_item *items, int n, struct dt_err *err)
{
	int rc = 0;

	for (int k = 0; k < n && rc == 0; k++) {
		struct dt_sched_item *it = &items[k];
		struct dt_call_images *x = dt_serve_req_of(it->seq)->call->images;

		for (int i = 0; x && i < x->n && rc == 0; i++) {
			if (x->tile[i].rows || !in_item(it, x, i))
				continue;
			rc = compute(e, &x->tile[i], err);
			if (n > 1 && x->tile[i].at + x->rows < it->first + it->n)
				it->n = x->tile[i].at + x->rows - it->first;
		}
	}
	return rc;
}

void dt_engine_put_rows(struct dt_engine *e, const struct dt_sched_item *it, int row)
{
	const struct dt_call_images *x = dt_serve_req_of(it->seq)->call->images;
	const size_t bytes = e->p.model.tile_bytes / (size_t)x->rows;
	struct dt_infer_batch *b = &e->step->batch;

	for (int i = 0; i < x->n; i++) {
		const int at = x->tile[i].at, first = at > it->first ? at : it->first,
			  end = at + x->rows < it->first + it->n ? at + x->rows : it->first + it->n;

		if (first < end)
			e->step->seen[b->nseen++] = (struct dt_infer_seen){
				.first = row + first - it->first,
				.n = end - first,
				.rows = (const char *)x->tile[i].rows + (size_t)(first - at) * bytes};
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
