/*
 * Adapters over ranks, on the rank that reads them: the pieces of the other ranks, the portions in which
 * norms are measured, and closed adapters that the other ranks still hold.
 */
#include "nn/infer_adapter_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Multiply-adds of a portion: some milliseconds of one thread. */
#define PORTION 4e6

/*
 * Of a rank's lanes with magnitudes: *last, the end of the last one; *most, the largest number of
 * multiply-adds.
 */
static void look_at(const struct dt_infer_lane *lane, int64_t n, int *last, double *most)
{
	for (int64_t i = 0; i < n; i++) {
		const double work = (double)lane[i].out * (double)lane[i].in * (double)lane[i].rank;

		if (!lane[i].rows)
			continue;
		*last = i + 1 > *last ? (int)i + 1 : *last;
		*most = work > *most ? work : *most;
	}
}

static void plan_portions(struct dt_infer_adapter *a, const struct dt_infer_lane *const *lane,
			  const int64_t *n, int ranks)
{
	double most = 0;
	int last = 0;

	for (int i = 0; i < ranks; i++)
		look_at(lane[i], n[i], &last, &most);
	a->parts = (int)(most / PORTION) + 1;
	a->portions = last * a->parts;
}

int dt_infer_adapter_portion(const struct dt_infer_adapter *a, int *ret_parts)
{
	*ret_parts = a->parts;
	return a->portion < a->portions ? a->portion : -1;
}

void dt_infer_adapter_measured(const struct dt_infer_adapter *a)
{
	((struct dt_infer_adapter *)a)->portion++;
}

static int plan(struct dt_infer_adapter *r, struct dt_err *err)
{
	const struct dt_infer_lane **lane = calloc((size_t)r->nparts, sizeof(*lane));
	int64_t *n = calloc((size_t)r->nparts, sizeof(*n));
	const int rc = lane && n ? 0 : dt_err_sys(err, -ENOMEM, "cannot read an adapter");

	for (int i = 0; i < r->nparts && rc == 0; i++) {
		const char *piece = i ? r->part[i].p : r->data.p;
		struct dt_infer_piece_head h;

		memcpy(&h, piece, sizeof(h));
		lane[i] = (const struct dt_infer_lane *)(piece + sizeof(h));
		n[i] = h.lanes;
	}
	if (rc == 0)
		plan_portions(r, lane, n, r->nparts);
	free(lane);
	free(n);
	return rc;
}

int dt_infer_adapter_deal(struct dt_infer_adapter *r, const struct dt_infer *m, const struct dt_adapter *a,
			  struct dt_err *err)
{
	const struct dt_layout *l = &m->ranks.layout;
	int rc = 0;

	r->nparts = dt_layout_world(l);
	r->part = calloc((size_t)r->nparts, sizeof(*r->part));
	if (!r->part)
		return dt_err_sys(err, -ENOMEM, "cannot read an adapter");
	for (int i = 1; i < r->nparts && rc == 0; i++) {
		struct dt_local local;

		rc = dt_local_build(&m->plan.stage.graph.params, &m->config, l, dt_layout_coords(l, i),
				    &local, err);
		if (rc < 0)
			break;
		rc = dt_infer_adapter_cut(m, a, &local, &r->part[i], err);
		dt_local_release(&local);
	}
	r->gone = m->gone;
	pthread_mutex_lock(&m->gone->mu);
	r->id = ++m->gone->ids;
	pthread_mutex_unlock(&m->gone->mu);
	return rc < 0 ? rc : plan(r, err);
}

static void drop_parts(struct dt_infer_adapter *a)
{
	for (int i = 0; a->part && i < a->nparts; i++)
		free(a->part[i].p);
	free(a->part);
	a->part = NULL;
}

int32_t dt_infer_adapter_id(const struct dt_infer_adapter *a)
{
	return a->id;
}

bool dt_infer_adapter_part(const struct dt_infer_adapter *a, int rank, const void **ret, size_t *ret_n)
{
	if (!a->part)
		return false;
	*ret = a->part[rank].p;
	*ret_n = a->part[rank].n;
	return true;
}

void dt_infer_adapter_sent(const struct dt_infer_adapter *a)
{
	drop_parts((struct dt_infer_adapter *)a);
}

static void release(struct dt_infer_adapter *a)
{
	dt_infer_whole_release(a);
	dt_infer_placed_free(a->placed);
	free(a->of);
	free(a->rows);
	free(a->squares);
	free(a->data.p);
	a->placed = NULL;
	a->of = NULL;
	a->rows = NULL;
	a->squares = NULL;
	a->data.p = NULL;
}

void dt_infer_adapter_free(struct dt_infer_adapter *a)
{
	release(a);
	drop_parts(a);
	free(a);
}

void dt_infer_adapter_close(struct dt_infer_adapter *a)
{
	if (!a)
		return;
	if (!a->id || a->part) { /* no other rank has it */
		dt_infer_adapter_free(a);
		return;
	}
	release(a);
	pthread_mutex_lock(&a->gone->mu);
	a->next = a->gone->first;
	a->gone->first = a;
	pthread_mutex_unlock(&a->gone->mu);
}

int32_t dt_infer_adapter_gone(const struct dt_infer *m)
{
	struct dt_infer_adapter *a = NULL;
	int32_t id = 0;

	if (!m->gone)
		return 0;
	pthread_mutex_lock(&m->gone->mu);
	a = m->gone->first;
	if (a)
		m->gone->first = a->next;
	pthread_mutex_unlock(&m->gone->mu);
	if (a) {
		id = a->id;
		dt_infer_adapter_free(a);
	}
	return id;
}

int dt_infer_gone_open(struct dt_infer *m, struct dt_err *err)
{
	m->gone = calloc(1, sizeof(*m->gone));
	if (!m->gone)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	pthread_mutex_init(&m->gone->mu, NULL);
	return 0;
}

void dt_infer_gone_close(struct dt_infer *m)
{
	if (!m->gone)
		return;
	while (dt_infer_adapter_gone(m))
		;
	pthread_mutex_destroy(&m->gone->mu);
	free(m->gone);
}
/* SPDX-License-Identifier: Apache-2.0 */
