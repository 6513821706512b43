#include "plan/memory_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *dt_mem_cat_name(enum dt_mem_cat c)
{
	static const char *const name[DT_MEM_CAT_N] = {"weights",	"master", "gradients", "optimizer",
						       "activations",	"logits", "workspace", "data",
						       "communication", "scratch"};

	return name[c];
}

const char *dt_phase_name(enum dt_phase p)
{
	static const char *const name[DT_PH_N] = {"forward", "loss", "backward", "step"};

	return name[p];
}

static bool alive(const struct dt_item *item, int time)
{
	for (int k = 0; k < item->nspan; k++)
		if (item->span[k].first <= time && item->span[k].last >= time)
			return true;
	return false;
}

/* Number of microbatches in flight of every chunk, from the schedule. */
static int count_flights(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *p,
			 struct dt_err *err)
{
	struct dt_schedule sched = {0};
	int rc = dt_run_stage_schedule(r, at.pp, &sched, err);

	for (int k = 0; k < p->stage.nchunk && rc == 0; k++) {
		p->slots[k] = dt_schedule_in_flight(&sched, at.pp, k);
		p->flight0[k + 1] = p->flight0[k] + p->slots[k];
	}
	dt_schedule_release(&sched);
	return rc;
}

/* Adds offloaded activations and their staging buffers. */
static void put_activations(struct dt_plan_builder *b)
{
	const struct dt_memory_plan *p = b->plan;
	const int64_t ring = (p->naway < DT_AWAY_RING ? p->naway : DT_AWAY_RING) * (int64_t)p->away_most;

	if (!p->naway)
		return;
	dt_plan_elsewhere(b, b->r->offload.to, DT_B_AWAY, DT_MEM_ACTIVATIONS, (int64_t)p->away_bytes,
			  "offloaded activations", "activations of all layers but the last two");
	dt_plan_flat(b, DT_B_AWAY_RING, DT_MEM_WORKSPACE, DT_U8, ring + 4096, DT_PH_FORWARD, DT_PH_BACKWARD,
		     -1, "activations on their way", "8 x the largest");
	dt_plan_pinned(b, ring);
}

/* Assigns addresses to the items of one place. */
static int place_one(struct dt_plan_builder *b, enum dt_place place, uint64_t *ret_bytes, uint64_t *ret_bound)
{
	struct dt_item *some = malloc(((size_t)b->nitem + 1) * sizeof(*some));
	int n = 0, rc = some ? 0 : -ENOMEM;

	for (int i = 0; i < b->nitem && rc == 0; i++)
		if (b->place[i] == place)
			some[n++] = b->item[i];
	if (rc == 0)
		rc = dt_place_items(some, n, ret_bytes, ret_bound);
	for (int i = b->nitem; i-- > 0 && rc == 0;)
		if (b->place[i] == place)
			b->item[i].offset = some[--n].offset;
	free(some);
	return rc;
}

/* Adds the programs' values and assigns all addresses. */
static int place_all(struct dt_plan_builder *b, struct dt_err *err)
{
	struct dt_memory_plan *p = b->plan;
	int rc = dt_plan_values(b, err);

	put_activations(b);
	for (int place = 0; place < DT_PLACE_N && rc == 0 && !b->failed; place++) {
		uint64_t bound = 0;

		rc = place_one(b, (enum dt_place)place, &p->place_bytes[place], &bound);
		if (place == DT_PLACE_DEVICE)
			p->bound_bytes = bound;
	}
	p->arena_bytes = p->place_bytes[DT_PLACE_DEVICE];
	if (rc < 0 || b->failed || (rc = plan_account(b)) < 0)
		return dt_err_sys(err, rc < 0 ? rc : -ENOMEM, "cannot build the memory plan");
	for (int i = 0; i < p->n; i++) {
		p->buf[i].offset = b->item[b->item_of[i]].offset + b->inner[i];
		p->buf[i].at_peak = !p->buf[i].place && alive(&b->item[b->item_of[i]], b->peak_time);
	}
	dt_plan_value_offsets(b);
	return 0;
}

static int build(struct dt_plan_builder *b, struct dt_coords at, struct dt_err *err)
{
	struct dt_memory_plan *p = b->plan;

	for (int k = 0; k < p->stage.nchunk; k++)
		b->end += p->stage.chunk[k].nstep;
	dt_plan_run_buffers(b, at);
	dt_plan_scratch(b, at);
	return place_all(b, err);
}

static void release(struct dt_plan_builder *b)
{
	free(b->item);
	free(b->cat);
	free(b->place);
	free(b->item_of);
	free(b->inner);
	for (int k = 0; k < DT_MAX_CHUNKS; k++)
		free(b->value_item[k]);
}

int dt_plan_exactly(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		    struct dt_err *err)
{
	struct dt_plan_builder b = {.plan = ret, .r = r};
	int rc;

	memset(ret, 0, sizeof(*ret));
	if ((rc = dt_run_check(r, err)) < 0 || (rc = dt_stage_build(r, at, &ret->stage, err)) < 0)
		return rc;
	rc = count_flights(r, at, ret, err);
	if (rc == 0)
		rc = build(&b, at, err);
	release(&b);
	if (rc < 0)
		dt_memory_plan_release(ret);
	return rc;
}

int dt_memory_plan(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		   struct dt_err *err)
{
	struct dt_run chosen = *r;
	int rc = r->recompute.fit ? dt_plan_choose(&chosen, at, err) : 0;

	if (rc == 0)
		rc = dt_plan_exactly(&chosen, at, ret, err);
	if (rc == 0) {
		ret->recompute = chosen.recompute;
		ret->stay = chosen.offload.stay;
	}
	return rc;
}

int dt_memory_plan_serving(const struct dt_serving *s, int64_t positions, struct dt_memory_plan *ret,
			   struct dt_err *err)
{
	const struct dt_config *c = s->config;
	const struct dt_run r = {.config = c};
	struct dt_plan_builder b = {.plan = ret, .r = &r};
	int64_t angles = c->pos == DT_POS_ROPE ? positions * dt_rope_dim(c) : 0;
	int rc;

	memset(ret, 0, sizeof(*ret));
	rc = dt_stage_build_serving(s, &ret->stage, err);
	if (rc < 0)
		return rc;
	ret->slots[0] = ret->flight0[1] = 1;
	b.end = ret->stage.chunk[0].nstep;
	dt_plan_flat(&b, DT_B_ROPE, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP, -1,
		     "rope table", "positions x rotated part of head_dim");
	if (c->rope_local_theta > 0)
		dt_plan_flat(&b, DT_B_ROPE_LOCAL, DT_MEM_WORKSPACE, DT_F32, angles, DT_PH_FORWARD, DT_PH_STEP,
			     -1, "local rope table", "positions x head_dim");
	rc = place_all(&b, err);
	release(&b);
	if (rc < 0)
		dt_memory_plan_release(ret);
	return rc;
}

void dt_memory_plan_release(struct dt_memory_plan *p)
{
	for (int k = 0; k < DT_MAX_CHUNKS; k++)
		free(p->value[k]);
	free(p->buf);
	free(p->away);
	dt_stage_release(&p->stage);
	memset(p, 0, sizeof(*p));
}

const struct dt_buf *dt_memory_find(const struct dt_memory_plan *p, enum dt_buf_id id, int which)
{
	for (int i = 0; i < p->n; i++)
		if (p->buf[i].id == id && p->buf[i].which == which)
			return &p->buf[i];
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
