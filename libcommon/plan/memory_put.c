/* Adds buffers to a memory plan: names, sizes and lifetimes; memory.c assigns addresses. */
#include "plan/memory_priv.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* Grows several parallel arrays of n elements to hold one more. */
static bool grow(struct dt_plan_builder *b, int n, int *cap, void **p, const size_t *size, int arrays)
{
	int more = *cap ? 2 * *cap : 256;

	if (b->failed || n < *cap)
		return !b->failed;
	for (int i = 0; i < arrays; i++) {
		void *bigger = realloc(*(void **)p[i], (size_t)more * size[i]);

		if (!bigger) {
			b->failed = true;
			return false;
		}
		*(void **)p[i] = bigger;
	}
	*cap = more;
	return true;
}

int dt_plan_item(struct dt_plan_builder *b, enum dt_mem_cat cat, int first, int last)
{
	void *p[] = {&b->item, &b->cat, &b->place};
	const size_t size[] = {sizeof(*b->item), sizeof(*b->cat), sizeof(*b->place)};

	if (!grow(b, b->nitem, &b->item_cap, p, size, 3))
		return 0;
	b->item[b->nitem] = (struct dt_item){.span = {{first, last}}, .nspan = 1};
	b->cat[b->nitem] = cat;
	b->place[b->nitem] = DT_PLACE_DEVICE;
	return b->nitem++;
}

struct dt_buf *dt_plan_put(struct dt_plan_builder *b, struct dt_buf d, const char *name, int item,
			   uint64_t inner)
{
	struct dt_memory_plan *p = b->plan;
	void *arrays[] = {&p->buf, &b->item_of, &b->inner};
	const size_t size[] = {sizeof(*p->buf), sizeof(*b->item_of), sizeof(*b->inner)};
	int64_t layers = b->r->config->layers;

	if (!grow(b, p->n, &b->cap, arrays, size, 3))
		return NULL;
	d.bytes = dt_align_up((uint64_t)d.numel * (uint64_t)dt_dtype_size(d.dtype));
	if (d.layer == layers)
		snprintf(d.name, sizeof(d.name), "final.%s", name);
	else
		dt_layer_name(d.name, sizeof(d.name), d.layer < layers ? d.layer : -1, name);
	if (d.slot > 0) {
		size_t at = strlen(d.name);

		snprintf(d.name + at, sizeof(d.name) - at, " #%d", d.slot);
	}
	b->item_of[p->n] = item;
	b->inner[p->n] = inner;
	p->buf[p->n] = d;
	return &p->buf[p->n++];
}

const enum dt_buf_id dt_memory_carried[DT_MEMORY_CARRIED] = {
	DT_B_WEIGHTS,	  DT_B_MASTER,	    DT_B_OPTIM1,     DT_B_OPTIM2,
	DT_B_PEER_MASTER, DT_B_PEER_OPTIM1, DT_B_PEER_OPTIM2};

struct dt_buf *dt_plan_flat(struct dt_plan_builder *b, enum dt_buf_id id, enum dt_mem_cat cat,
			    enum dt_dtype dtype, int64_t numel, enum dt_phase first, enum dt_phase last,
			    int which, const char *name, const char *formula)
{
	struct dt_buf d = {.id = id,
			   .cat = cat,
			   .which = which,
			   .layer = -2,
			   .dtype = dtype,
			   .numel = numel,
			   .first = first,
			   .last = last,
			   .formula = formula};
	struct dt_buf *r;
	int item;

	if (numel == 0)
		return NULL;
	item = dt_plan_item(b, cat, first == DT_PH_STEP ? b->end : 0,
			    last == DT_PH_STEP ? b->end : b->end - 1);
	r = dt_plan_put(b, d, name, item, 0);
	if (r)
		b->item[item].bytes = r->bytes;
	return r;
}

void dt_plan_elsewhere(struct dt_plan_builder *b, enum dt_place place, enum dt_buf_id id, enum dt_mem_cat cat,
		       int64_t bytes, const char *name, const char *formula)
{
	struct dt_buf *d =
		dt_plan_flat(b, id, cat, DT_U8, bytes, DT_PH_FORWARD, DT_PH_STEP, -1, name, formula);

	if (d) {
		d->place = place;
		b->place[b->item_of[d - b->plan->buf]] = place;
	}
}

void dt_plan_on_host(struct dt_plan_builder *b, enum dt_buf_id id, enum dt_mem_cat cat, enum dt_dtype dtype,
		     int64_t numel, enum dt_phase first, const char *name, const char *formula)
{
	if (b->r->on_card)
		dt_plan_elsewhere(b, DT_PLACE_HOST, id, cat, numel * dt_dtype_size(dtype), name, formula);
	else
		dt_plan_flat(b, id, cat, dtype, numel, first, DT_PH_STEP, -1, name, formula);
}

void dt_plan_pinned(struct dt_plan_builder *b, int64_t bytes)
{
	if (b->r->on_card && b->r->offload.to == DT_PLACE_DISK)
		dt_plan_elsewhere(b, DT_PLACE_HOST, DT_B_PINNED, DT_MEM_WORKSPACE, bytes,
				  "between GPU and file", "bytes in transit");
}
/* SPDX-License-Identifier: Apache-2.0 */
