/* Weights of a model that is served from a file, on their way into slots of memory. */
#include "nn/infer_disk_priv.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether a piece in slot k is as it was written. */
static int look(const struct dt_infer *m, int k, struct dt_err *err)
{
	const struct dt_infer_disk *d = m->disk;
	const struct disk_piece *p = &d->piece[d->slot[k].piece];
	const int64_t parts = (int64_t)(p->used + DT_WEIGHTS_CHECKED - 1) / DT_WEIGHTS_CHECKED;
	uint32_t *sum;
	int rc = 0;

	sum = calloc((size_t)parts + 1, sizeof(*sum));
	if (!sum)
		return dt_err_sys(err, -ENOMEM, "cannot read weights");
	dt_infer_disk_sum(m, slot_at(d, k), p->used, sum);
	if (memcmp(sum, d->sum + p->at * d->sums, (size_t)parts * sizeof(*sum)))
		rc = dt_err_set(err, -EBADMSG,
				"weights are not as they were written: the file in '%s' was changed, or its "
				"disk fails",
				m->p.disk_dir);
	free(sum);
	return rc;
}

int dt_infer_disk_finish(struct dt_infer *m, int k, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	struct disk_slot *s = &d->slot[k];
	const double t0 = dt_now();
	int rc;

	if (s->transfer < 0)
		return 0;
	d->busy &= ~(1u << s->transfer);
	rc = dt_scratch_wait(d->file, s->transfer, err);
	s->transfer = -1;
	d->facts.wait_s += d->going ? dt_now() - t0 : 0;
	if (rc == 0)
		rc = look(m, k, err);
	if (rc < 0) {
		d->piece[s->piece].slot = -1;
		s->piece = -1;
	}
	return rc;
}

/* A transfer that is free; where none is, the one that was begun first is waited for. */
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
	dt_scratch_read(d->file, t, to, d->plan.slot_bytes, (uint64_t)p->at * d->plan.slot_bytes);
	d->facts.read_bytes += d->going ? d->plan.slot_bytes : 0;
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

int dt_infer_disk_layer(struct dt_infer *m, int layer, struct dt_err *err)
{
	const struct dt_infer_disk *d = m->disk;
	int rc, i, ahead = 0;

	if (!d || !d->file || d->plan.experts || layer < 0 || layer >= m->config.layers ||
	    d->first[layer] == d->first[layer + 1])
		return 0;
	i = d->first[layer];
	rc = take(m, i, err);
	/* The next ones that are in the file, of the next pass behind the last; of few all are there. */
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

/* What a slot has is wanted first, so that nothing else takes the slot. */
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

int dt_infer_disk_want(struct dt_infer *m, int layer, const int32_t *first, struct dt_err *err)
{
	int rc = each_chosen(m, layer, first, count, err);

	if (rc == 0)
		rc = each_chosen(m, layer, first, want_there, err);
	return rc < 0 ? rc : each_chosen(m, layer, first, dt_infer_disk_begin, err);
}

int dt_infer_disk_take(struct dt_infer *m, int layer, const int32_t *first, struct dt_err *err)
{
	return each_chosen(m, layer, first, take, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
