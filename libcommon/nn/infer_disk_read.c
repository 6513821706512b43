/* Reads weights that do not fit in memory from disk into slots. */
#include "nn/infer_disk_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_infer_disk_finish(struct dt_infer *m, int k, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	struct disk_slot *s = &d->slot[k];
	int rc;

	if (s->transfer < 0)
		return 0;
	d->busy &= ~(1u << s->transfer);
	rc = dt_backing_wait(d->file, s->transfer, err);
	s->transfer = -1;
	if (rc < 0) {
		d->piece[s->piece].slot = -1;
		s->piece = -1;
	}
	return rc;
}

/* Returns a free transfer; if there is none, waits for the one started first. */
static int free_transfer(struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	int first = -1, t = 0, rc;

	if (d->busy == (1u << DT_SCRATCH_SLOTS) - 1) {
		for (int k = 0; k < d->plan.slots; k++)
			if (d->slot[k].transfer >= 0 && (first < 0 || d->slot[k].when < d->slot[first].when))
				first = k;
		if ((rc = dt_infer_disk_finish(m, first, err)) < 0)
			return rc;
	}
	while (d->busy & 1u << t)
		t++;
	return t;
}

int dt_infer_disk_begin(struct dt_infer *m, int i, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	struct disk_piece *p = &d->piece[i];
	char *to;
	int k = p->slot, t, rc;

	if (p->kept)
		return 0;
	d->now++;
	if (k >= 0) {
		d->slot[k].when = d->now;
		return 0;
	}
	k = 0;
	for (int j = 1; j < d->plan.slots; j++)
		if (d->slot[j].when < d->slot[k].when)
			k = j;
	if (d->slot[k].transfer >= 0 && (rc = dt_infer_disk_finish(m, k, err)) < 0)
		return rc;
	if ((t = free_transfer(m, err)) < 0)
		return t;
	if (d->slot[k].piece >= 0)
		d->piece[d->slot[k].piece].slot = -1;
	d->slot[k] = (struct disk_slot){.piece = i, .transfer = t, .when = d->now};
	d->busy |= 1u << t;
	p->slot = k;
	to = slot_at(d, k);
	dt_backing_read(d->file, t, to, d->plan.slot_bytes, (uint64_t)p->at * d->plan.slot_bytes);
	for (int j = 0; j < p->n; j++) {
		dt_packed_at(p->w[j], to);
		to += dt_packed_close_bytes(p->w[j]);
	}
	return 0;
}

static int take(struct dt_infer *m, int i, struct dt_err *err)
{
	const struct disk_piece *p = &m->disk->piece[i];
	int rc = dt_infer_disk_begin(m, i, err);

	return rc < 0 || p->kept ? rc : dt_infer_disk_finish(m, p->slot, err);
}

bool dt_infer_disk_moves(const struct dt_infer *m)
{
	return m->disk && m->disk->file && !m->disk->plan.experts;
}

int dt_infer_disk_layer(struct dt_infer *m, int layer, struct dt_err *err)
{
	const struct dt_infer_disk *d = m->disk;
	int rc, i, ahead = 0;

	if (!dt_infer_disk_moves(m) || layer < 0 || layer >= m->config.layers ||
	    d->first[layer] == d->first[layer + 1])
		return 0;
	i = d->first[layer];
	rc = take(m, i, err);
	/* Reads ahead the next pieces not in memory; after the last piece, those of the next pass. */
	for (int64_t k = 1; k < d->plan.pieces && ahead < d->plan.slots - 1 && rc == 0; k++) {
		const int next = (int)((i + k) % d->plan.pieces);

		if (d->piece[next].kept)
			continue;
		rc = dt_infer_disk_begin(m, next, err);
		ahead++;
	}
	return rc;
}

typedef int each_fn(struct dt_infer *m, int i, struct dt_err *err);

static int each_chosen(struct dt_infer *m, int layer, const int32_t *first, each_fn *call, struct dt_err *err)
{
	const struct dt_infer_disk *d = m->disk;
	int rc = 0;

	for (int e = 0; d && d->file && e < d->first[layer + 1] - d->first[layer] && rc == 0; e++)
		if (first[e] < first[e + 1])
			rc = call(m, d->first[layer] + e, err);
	return rc;
}

/* Begins with the pieces that are in slots, so that their slots are not reused. */
static int want_there(struct dt_infer *m, int i, struct dt_err *err)
{
	return m->disk->piece[i].slot >= 0 ? dt_infer_disk_begin(m, i, err) : 0;
}

static int count(struct dt_infer *m, int i, struct dt_err *err)
{
	const struct disk_piece *p = &m->disk->piece[i];

	*(p->kept || p->slot >= 0 ? &m->disk->facts.hits : &m->disk->facts.misses) += 1;
	return 0;
}

/* *first: the experts' first rows; with a device a copy, which is waited for. */
static int look(struct dt_infer *m, int layer, const int32_t **first, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	const size_t n = (size_t)(d->first[layer + 1] - d->first[layer]) + 1;
	int rc;

	if (!d->chosen)
		return 0;
	rc = dt_dev_copy(m->dev, d->chosen, *first, n * sizeof(**first));
	if (rc == 0)
		rc = dt_dev_sync(m->dev);
	*first = d->chosen;
	return dt_kernel_check(rc, "->moe_sort(", err);
}

int dt_infer_disk_want(struct dt_infer *m, int layer, const int32_t *first, struct dt_err *err)
{
	int rc = look(m, layer, &first, err);

	if (rc == 0)
		rc = each_chosen(m, layer, first, count, err);

	if (rc == 0)
		rc = each_chosen(m, layer, first, want_there, err);
	return rc < 0 ? rc : each_chosen(m, layer, first, dt_infer_disk_begin, err);
}

int dt_infer_disk_take(struct dt_infer *m, int layer, const int32_t *first, struct dt_packed_set *set,
		       struct dt_err *err)
{
	const int rc = each_chosen(m, layer, m->disk->chosen ? m->disk->chosen : first, take, err);

	return rc < 0 ? rc : dt_kernel_check(dt_packed_set_moved(set), "dt_dev_copy(", err);
}
/* SPDX-License-Identifier: Apache-2.0 */
