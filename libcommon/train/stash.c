#include "train/trainer.h"

#include "base/units.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct stash_slot {
	int entry; /* the entry whose values are here or being transferred; -1: none */
	bool busy, writes;
};

static const struct dt_away *entry(const struct trainer *t, int i)
{
	return &t->plan.away[i];
}

/* Sorts entries by the segment after which they are offloaded (out) or before which they are restored. */
static void order(const struct trainer *t, int *list, bool out)
{
	for (int i = 0; i < t->plan.naway; i++) {
		int at = out ? entry(t, i)->out : entry(t, i)->in, k = i;

		for (; k > 0; k--) {
			const struct dt_away *before = entry(t, list[k - 1]);

			if ((out ? before->out : before->in) <= at)
				break;
			list[k] = list[k - 1];
		}
		list[k] = i;
	}
}

int stash_bind(struct trainer *t, struct dt_err *err)
{
	struct stash *s = &t->stash;
	size_t n = (size_t)t->plan.naway;
	char *at = dt_plan_address(&t->plan, t->arena.base, DT_B_AWAY_RING, -1);

	if (!n)
		return 0;
	s->ring = (char *)(((uintptr_t)at + DT_SCRATCH_ALIGN - 1) / DT_SCRATCH_ALIGN * DT_SCRATCH_ALIGN);
	s->slot = calloc(DT_AWAY_RING, sizeof(*s->slot));
	s->by_out = calloc(n, sizeof(*s->by_out));
	s->by_in = calloc(n, sizeof(*s->by_in));
	s->when_in = calloc(n, sizeof(*s->when_in));
	if (!s->slot || !s->by_out || !s->by_in || !s->when_in)
		return dt_err_sys(err, -ENOMEM, "cannot set up offloaded activations");
	for (int k = 0; k < DT_AWAY_RING; k++)
		s->slot[k].entry = -1;
	order(t, s->by_out, true);
	order(t, s->by_in, false);
	for (int i = 0; i < (int)n; i++)
		s->when_in[s->by_in[i]] = i;
	return 0;
}

int stash_start(struct trainer *t, struct dt_err *err)
{
	char size[32];
	int rc;

	if (!t->plan.naway)
		return 0;
	rc = dt_backing_open(t->dev, t->run.offload.dir, t->plan.away_bytes, DT_SCRATCH_ALIGN, "activations",
			     &t->offload.use, &t->stash.file, err);
	if (rc == 0)
		dt_log_msg(&t->root_log, "offloaded: %s of activations per rank to %s",
			   dt_format_size(t->plan.away_bytes, size, sizeof(size)),
			   dt_backing_where(t->stash.file));
	return rc;
}

void stash_close(struct trainer *t)
{
	struct stash *s = &t->stash;

	dt_backing_close(s->file);
	free(s->slot);
	free(s->by_out);
	free(s->by_in);
	free(s->when_in);
	memset(s, 0, sizeof(*s));
}

static char *slot_at(const struct trainer *t, int k)
{
	return t->stash.ring + (size_t)k * t->plan.away_most;
}

static size_t bytes_of(const struct trainer *t, int i)
{
	const struct dt_prog *p = &t->plan.stage.chunk[0];
	int v = entry(t, i)->value;

	return (size_t)dt_value_numel(p, v) * (size_t)dt_dtype_size(p->value[v].dtype);
}

/* Waits for the slot's transfer, if there is one. */
static int finish(struct trainer *t, int k, struct dt_err *err)
{
	struct stash_slot *slot = &t->stash.slot[k];
	int rc;

	if (!slot->busy)
		return 0;
	slot->busy = false;
	rc = dt_backing_wait(t->stash.file, k, err);
	if (rc < 0)
		dt_err_hint(err, "--resume auto continues from the newest checkpoint");
	return rc;
}

static int leave(struct trainer *t, const struct dt_flight *f, int i, struct dt_err *err)
{
	struct stash *s = &t->stash;
	const struct dt_away *e = entry(t, i);
	int k = s->out % DT_AWAY_RING, rc = finish(t, k, err);

	if (rc < 0)
		return rc;
	rc = dt_backing_leave(s->file, k, slot_at(t, k), dt_exec_value(&t->exec, f, e->value), bytes_of(t, i),
			      e->bytes, e->at, err);
	if (rc < 0)
		return rc;
	s->slot[k] = (struct stash_slot){i, true, true};
	s->out++;
	return 0;
}

/* The slot that holds entry i; -1: none. */
static int find(const struct trainer *t, int i)
{
	for (int k = 0; k < DT_AWAY_RING; k++)
		if (t->stash.slot[k].entry == i)
			return k;
	return -1;
}

/* The slot with the entry restored last, if that is after position `than` of by_in; else -1. */
static int latest(const struct trainer *t, int than)
{
	int best = -1;

	for (int k = 0; k < DT_AWAY_RING; k++) {
		int i = t->stash.slot[k].entry, when = i < 0 ? INT_MAX : t->stash.when_in[i];

		if (when > than) {
			than = when;
			best = k;
		}
	}
	return best;
}

/* Starts reading the entries that backward needs next, as far as the ring has room. */
static int read_ahead(struct trainer *t, struct dt_err *err)
{
	struct stash *s = &t->stash;
	int rc = 0;

	for (int w = s->in; w < s->in + DT_AWAY_RING && w < t->plan.naway && rc == 0; w++) {
		int i = s->by_in[w], k = find(t, i) < 0 ? latest(t, w) : -1;

		if (k < 0)
			continue;
		rc = finish(t, k, err);
		if (rc < 0)
			break;
		dt_backing_read(s->file, k, slot_at(t, k), entry(t, i)->bytes, entry(t, i)->at);
		s->slot[k] = (struct stash_slot){i, true, false};
	}
	return rc;
}

static int come_back(struct trainer *t, const struct dt_flight *f, int i, struct dt_err *err)
{
	struct stash *s = &t->stash;
	int rc = read_ahead(t, err), k = find(t, i);

	if (rc == 0 && !s->slot[k].writes)
		s->slot[k].busy = false;
	if (rc == 0)
		rc = dt_backing_come(s->file, k, slot_at(t, k),
				     dt_exec_value(&t->exec, f, entry(t, i)->value), bytes_of(t, i), err);
	if (rc < 0) {
		dt_err_hint(err, "--resume auto continues from the newest checkpoint");
		return rc;
	}
	s->slot[k].entry = -1;
	s->in++;
	return 0;
}

int stash_segment(void *arg, const struct dt_flight *f, int i, bool done, struct dt_err *err)
{
	struct trainer *t = arg;
	struct stash *s = &t->stash;
	const struct dt_prog *p = &t->plan.stage.chunk[0];
	bool forward = i < p->segment_start[DT_LIST_LOSS];
	int rc = 0;

	if (!s->file || !t->exec.training)
		return 0;
	if (i == 0 && !done)
		s->out = s->in = 0;
	while (forward && done && rc == 0 && s->out < t->plan.naway && entry(t, s->by_out[s->out])->out == i)
		rc = leave(t, f, s->by_out[s->out], err);
	if (!forward && !done)
		rc = read_ahead(t, err);
	while (!forward && !done && rc == 0 && s->in < t->plan.naway && entry(t, s->by_in[s->in])->in == i)
		rc = come_back(t, f, s->by_in[s->in], err);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
