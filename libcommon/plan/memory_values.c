/*
 * Places the programs' values as buffers. Equal units (memory_fold.h) have equal buffers, so the first two
 * and last two of a run represent the rest: values between nodes of the others take the second unit's
 * addresses, and kept values are one item a unit. With --recompute every:N the repeating group is N units.
 */
#include "plan/memory_fold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether the unit is placed individually. */
static bool stands(const struct dt_folding *f, int u)
{
	const struct dt_fold_unit *x = &f->unit[u];

	return !f->single || f->exact || u < x->first + 2 * f->period || u > x->last - 2 * f->period;
}

/* The key of the value whose address v shares, in the representative unit. */
static struct dt_fold_key common(const struct dt_folding *f, int v)
{
	struct dt_fold_key k = f->key[v];
	const struct dt_fold_unit *x = &f->unit[k.unit];

	k.unit = x->first + (k.unit - x->first) % f->period;
	return k;
}

static int find_known(const struct dt_folding *f, struct dt_fold_key k)
{
	for (int i = 0; i < f->nknown; i++)
		if (!memcmp(&f->known[i].key, &k, sizeof(k)))
			return f->known[i].item;
	return -1;
}

static enum dt_mem_cat category(const struct dt_folding *f, int v)
{
	const struct dt_value *x = &f->p->value[v];
	int s = x->def;

	if (x->life == DT_LIFE_KEPT)
		return DT_MEM_ACTIVATIONS;
	if (v == f->p->output)
		return DT_MEM_COMM;
	if (v == f->p->grad_in || x->life == DT_LIFE_PINNED)
		return DT_MEM_WORKSPACE;
	if (f->p->step[s].n.op == DT_OP_LOSS && x->room)
		return DT_MEM_LOGITS;
	return f->p->step[s].n.op == DT_OP_ENTER ? DT_MEM_COMM : DT_MEM_WORKSPACE;
}

/* Places a value that lives between nodes: a new item, or another span of its representative's. */
static int place_between(struct dt_folding *f, int v)
{
	const struct dt_value *x = &f->p->value[v];
	struct dt_fold_key k = common(f, v);
	int item = find_known(f, k), first = f->start + x->def, last = f->start + x->last;
	struct dt_item *i;

	if (item < 0) {
		item = dt_plan_item(f->b, category(f, v), first, last);
		f->b->item[item].bytes = dt_fold_bytes(f->p, v);
		f->known[f->nknown++] = (struct dt_fold_known){k, item};
		f->makes[v] = true;
		return item;
	}
	if (!stands(f, f->key[v].unit))
		return item;
	i = &f->b->item[item];
	if (i->nspan == DT_PLACE_SPANS || i->span[i->nspan - 1].last >= first) {
		item = dt_plan_item(f->b, category(f, v), first,
				    last); /* it is not equal to the others after all */
		f->b->item[item].bytes = dt_fold_bytes(f->p, v);
		f->makes[v] = true;
		return item;
	}
	i->span[i->nspan++] = (struct dt_span){first, last};
	return item;
}

/* Extends the only span of an item. */
static void extend(struct dt_item *i, int first, int last)
{
	if (first < i->span[0].first)
		i->span[0].first = first;
	if (last > i->span[0].last)
		i->span[0].last = last;
}

/* Places a kept value, when only one microbatch is in flight. */
static int place_kept(struct dt_folding *f, int v)
{
	const struct dt_value *x = &f->p->value[v];
	int first = f->start + x->def, last = f->start + x->last, item;
	struct dt_fold_unit *u = &f->unit[f->key[v].unit];
	const struct dt_away *away = dt_plan_away(f->b->plan, v);

	if (stands(f, f->key[v].unit)) {
		item = dt_plan_item(f->b, category(f, v), first, last);
		f->b->item[item].bytes = dt_fold_bytes(f->p, v);
		if (away && !f->b->failed) {
			const struct dt_segment *out = &f->p->segment[away->out];

			f->b->item[item].span[0].last = out->first + out->n - 1;
			f->b->item[item].span[1] = (struct dt_span){f->p->segment[away->in].first, last};
			f->b->item[item].nspan = 2;
		}
		return item;
	}
	if (u->kept < 0)
		u->kept = dt_plan_item(f->b, DT_MEM_ACTIVATIONS, first, last);
	extend(&f->b->item[u->kept], first, last);
	f->inner[v] = f->b->item[u->kept].bytes;
	f->b->item[u->kept].bytes += dt_fold_bytes(f->p, v);
	return u->kept;
}

/*
 * Places what each microbatch in flight has separately: the kept values of all units are one item with a slot
 * for each microbatch, and so is each pinned value. (With one microbatch in flight, kept values have
 * lifetimes.)
 */
static void place_flights(struct dt_folding *f)
{
	struct dt_plan_builder *b = f->b;
	int slots = b->plan->slots[f->k], kept = -1;
	uint64_t each = 0;

	for (int v = 0; v < f->p->nvalue; v++) {
		const struct dt_value *x = &f->p->value[v];
		uint64_t bytes;

		if (x->def < 0 || x->over >= 0 || x->life == DT_LIFE_NODE ||
		    (x->life == DT_LIFE_KEPT && f->single))
			continue;
		bytes = dt_fold_bytes(f->p, v);
		if (x->life == DT_LIFE_PINNED) {
			f->item[v] = dt_plan_item(b, category(f, v), 0, b->end - 1);
			b->item[f->item[v]].bytes = bytes * (uint64_t)slots;
			b->plan->value[f->k][v].stride = bytes;
			continue;
		}
		if (kept < 0)
			kept = dt_plan_item(b, DT_MEM_ACTIVATIONS, 0, b->end - 1);
		f->item[v] = kept;
		f->inner[v] = each;
		each += bytes;
	}
	if (kept < 0)
		return;
	b->item[kept].bytes = each * (uint64_t)slots;
	for (int v = 0; v < f->p->nvalue; v++)
		if (f->item[v] == kept)
			b->plan->value[f->k][v].stride = each;
}

static void place_singly(struct dt_folding *f)
{
	/* representatives first */
	for (int pass = 0; pass < 2; pass++)
		for (int v = 0; v < f->p->nvalue; v++) {
			const struct dt_value *x = &f->p->value[v];

			if (x->def < 0 || x->over >= 0 || x->life == DT_LIFE_PINNED ||
			    (x->life == DT_LIFE_KEPT && !f->single) ||
			    stands(f, f->key[v].unit) != (pass == 0))
				continue;
			f->item[v] = x->life == DT_LIFE_KEPT ? place_kept(f, v) : place_between(f, v);
		}
}

/* Results and buffers of context parallelism that are sent. */
static bool sent_result(enum dt_op op, int k)
{
	switch (op) {
	case DT_OP_KV_GATHER:
		return k == 0;
	case DT_OP_TO_HEADS:
	case DT_OP_TO_TOKENS:
	case DT_OP_RING_B:
		return k == 1 || k == 2;
	case DT_OP_RING:
		return k == 2;
	default:
		return false;
	}
}

/* Marks values that ranks exchange. */
static void mark_messages(const struct dt_folding *f, bool *message)
{
	const struct dt_prog *p = f->p;

	for (int i = 0; i < p->nstep; i++) {
		const struct dt_node *n = &p->step[i].n;

		if (n->op == DT_OP_ENTER || n->op == DT_OP_LEAVE || n->op == DT_OP_EXCHANGE)
			message[dt_value_root(p, n->in[0])] = message[dt_value_root(p, n->out[0])] = true;
		for (int k = 0; k < DT_NODE_OUT; k++)
			if (n->out[k] >= 0 && sent_result(n->op, k))
				message[dt_value_root(p, n->out[k])] = true;
		if ((n->op == DT_OP_KV_SCATTER || n->op == DT_OP_LEAVE) && n->in[1] >= 0)
			message[dt_value_root(p, n->in[1])] = true;
	}
	for (int i = 0; i < 4; i++) {
		const int end[] = {p->input, p->output, p->grad_in, p->grad_out};

		if (end[i] >= 0)
			message[dt_value_root(p, end[i])] = true;
	}
}

static enum dt_phase phase_of(const struct dt_prog *p, int step)
{
	return step < p->start[DT_LIST_LOSS]	   ? DT_PH_FORWARD
	       : step < p->start[DT_LIST_BACKWARD] ? DT_PH_LOSS
						   : DT_PH_BACKWARD;
}

/* Lists the buffers, for display and to know which ranks must share. */
static void list_values(struct dt_folding *f, const bool *message)
{
	struct dt_memory_plan *plan = f->b->plan;

	for (int v = 0; v < f->p->nvalue; v++) {
		const struct dt_value *x = &f->p->value[v];
		uint64_t stride = plan->value[f->k][v].stride;
		int slots = x->life == DT_LIFE_NODE ? 1 : plan->slots[f->k];

		if (x->def < 0 || x->over >= 0 || (x->life == DT_LIFE_NODE && !f->makes[v]))
			continue;
		for (int slot = 0; slot < slots; slot++)
			dt_plan_put(f->b,
				    (struct dt_buf){.id = DT_B_VALUE,
						    .cat = category(f, v),
						    .which = v,
						    .layer = x->unit,
						    .slot = slot,
						    .dtype = x->dtype,
						    .numel = dt_value_numel(f->p, v),
						    .first = phase_of(f->p, x->def),
						    .last = phase_of(f->p, x->last),
						    .message = message[v],
						    .formula = x->life == DT_LIFE_KEPT
								       ? "rows x columns"
								       : "rows x columns, shared"},
				    x->name, f->item[v], f->inner[v] + (uint64_t)slot * stride);
	}
}

static int chunk_values(struct dt_folding *f)
{
	size_t n = (size_t)f->p->nvalue + 1;
	struct dt_memory_plan *plan = f->b->plan;
	bool *message = calloc(n, sizeof(*message));
	int rc = -ENOMEM;

	plan->value[f->k] = calloc(n, sizeof(*plan->value[f->k]));
	f->b->value_item[f->k] = calloc(n, sizeof(*f->b->value_item[f->k]));
	f->unit = calloc((size_t)f->nunit + 1, sizeof(*f->unit));
	f->key = calloc(n, sizeof(*f->key));
	f->item = calloc(n, sizeof(*f->item));
	f->inner = calloc(n, sizeof(*f->inner));
	f->known = calloc(n, sizeof(*f->known));
	f->makes = calloc(n, sizeof(*f->makes));
	if (message && plan->value[f->k] && f->b->value_item[f->k] && f->unit && f->key && f->item &&
	    f->inner && f->known && f->makes) {
		dt_fold_units(f);
		place_flights(f);
		place_singly(f);
		mark_messages(f, message);
		list_values(f, message);
		for (int v = 0; v < f->p->nvalue; v++) {
			int r = dt_value_root(f->p, v);

			plan->value[f->k][v].stride = plan->value[f->k][r].stride;
			plan->value[f->k][v].offset = f->inner[r];
			f->b->value_item[f->k][v] = f->p->value[r].def < 0 ? -1 : f->item[r];
		}
		rc = 0;
	}
	free(message);
	free(f->unit);
	free(f->key);
	free(f->item);
	free(f->inner);
	free(f->known);
	free(f->makes);
	return rc;
}

int dt_plan_values(struct dt_plan_builder *b, struct dt_err *err)
{
	struct dt_stage *s = &b->plan->stage;
	int start = 0, rc = b->failed					  ? -ENOMEM
			    : b->r->offload.what & DT_OFFLOAD_ACTIVATIONS ? dt_plan_find_away(b)
									  : 0;

	for (int k = 0; k < s->nchunk && rc == 0; k++) {
		struct dt_prog *p = &s->chunk[k];
		struct dt_folding f = {.b = b,
				       .p = p,
				       .k = k,
				       .start = start,
				       .single = s->nchunk == 1 && b->plan->slots[0] == 1,
				       .exact = dt_config_is_image(b->r->config) || b->plan->naway,
				       .period = b->r->recompute.mode == DT_RECOMPUTE_FULL
							 ? dt_keep_sets(b->r->recompute)
							 : 1,
				       .first_unit = p->segment[0].unit};

		for (int i = 0; i < p->nsegment; i++)
			if (p->segment[i].unit - f.first_unit >= f.nunit)
				f.nunit = p->segment[i].unit - f.first_unit + 1;
		rc = chunk_values(&f);
		start += p->nstep;
	}
	return rc < 0 ? dt_err_sys(err, rc, "cannot build the memory plan") : 0;
}

void dt_plan_value_offsets(struct dt_plan_builder *b)
{
	for (int k = 0; k < b->plan->stage.nchunk; k++)
		for (int v = 0; v < b->plan->stage.chunk[k].nvalue; v++)
			if (b->value_item[k][v] >= 0)
				b->plan->value[k][v].offset += b->item[b->value_item[k][v]].offset;
}
/* SPDX-License-Identifier: Apache-2.0 */
