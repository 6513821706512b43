/* NCCL: communicators, their streams and events. */
#include "base/room.h"
#include "comm/elastic.h"
#include "comm/nccl_priv.h"

#include "base/progress.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int dt_comm_nccl_failed(struct dt_comm_nccl *k, const struct dt_comm_where *at, int result,
			struct dt_err *err)
{
	const struct dt_comm *c = at->group >= 0 ? k->w->comm[at->group] : NULL;

	return dt_err_set(err, -EIO, "%s '%s' of group %s on rank %d: NCCL: %s",
			  dt_comm_op_name((enum dt_comm_op_kind)at->kind), at->what, c ? c->name : "?",
			  k->w->info.rank, k->lib.GetErrorString(result));
}

/* ---- events ---- */

int dt_comm_nccl_take_event(struct dt_comm_nccl *k, void **ret)
{
	if (k->nevent) {
		*ret = k->event[--k->nevent];
		return 0;
	}
	return dt_comm_nccl_card(k)->event_open(dt_comm_nccl_arg(k), ret);
}

void dt_comm_nccl_give_event(struct dt_comm_nccl *k, void *event)
{
	if (!event)
		return;
	if (DT_ROOM(k->event, k->nevent, k->room, 16))
		k->event[k->nevent++] = event;
	else
		dt_comm_nccl_card(k)->event_close(dt_comm_nccl_arg(k), event);
}

void dt_comm_nccl_release(struct dt_comm_nccl *k, struct dt_comm_nccl_op *o)
{
	for (int i = 0; i < 2; i++)
		if (o->mr[i] != MPI_REQUEST_NULL) {
			MPI_Cancel(&o->mr[i]);
			MPI_Request_free(&o->mr[i]);
		}
	dt_comm_nccl_give_event(k, o->before);
	dt_comm_nccl_give_event(k, o->after);
	free(o);
}

void dt_comm_nccl_prune(struct dt_comm_nccl *k)
{
	pthread_mutex_lock(&k->lock);
	for (struct dt_comm_nccl_op **at = &k->flying, *o; (o = *at);) {
		if (o->attached || dt_comm_nccl_card(k)->event_done(dt_comm_nccl_arg(k), o->after) == 0) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		dt_comm_nccl_release(k, o);
	}
	pthread_mutex_unlock(&k->lock);
}

/* ---- communicators ---- */

static void *start_link(void *p)
{
	struct dt_comm_nccl_link *l = p;
	void *comm = NULL;

	dt_comm_nccl_card(l->k)->use(dt_comm_nccl_arg(l->k));
	l->result = l->k->lib.CommInitRank(&comm, l->size, l->id, l->rank);
	atomic_store(&l->comm, comm);
	atomic_store(&l->started, 1);
	return NULL;
}

int dt_comm_nccl_begin_link(struct dt_comm_nccl_link *l, struct dt_err *err)
{
	struct dt_comm_nccl *k = l->k;
	int rc = dt_comm_nccl_card(k)->queue_open(dt_comm_nccl_arg(k), &l->queue);

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot open a queue of the GPU");
	rc = -pthread_create(&l->thread, NULL, start_link, l);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot start a thread for NCCL");
	l->state = LINK_STARTING;
	pthread_mutex_lock(&k->lock);
	l->other = k->links;
	k->links = l;
	pthread_mutex_unlock(&k->lock);
	return 0;
}

int dt_comm_nccl_link_ready(struct dt_comm_nccl_link *l, const struct dt_comm_where *at, struct dt_err *err)
{
	if (l->state == LINK_READY)
		return 1;
	if (l->state != LINK_STARTING || !atomic_load(&l->started))
		return 0;
	pthread_join(l->thread, NULL);
	l->state = LINK_READY;
	return l->result == DT_NCCL_SUCCESS ? 1 : dt_comm_nccl_failed(l->k, at, l->result, err);
}

int dt_comm_nccl_group_ready(struct dt_comm *c, const struct dt_comm_where *at, struct dt_err *err)
{
	struct dt_comm_nccl_link *l = &c->nccl->all;
	int done = 0, rc;

	if (l->state == LINK_NONE) {
		rc = c->rank == 0 ? l->k->lib.GetUniqueId(&l->id) : DT_NCCL_SUCCESS;
		if (rc != DT_NCCL_SUCCESS)
			return dt_comm_nccl_failed(l->k, at, rc, err);
		rc = MPI_Ibcast(&l->id, sizeof(l->id), MPI_BYTE, 0, c->nccl->mpi, &l->meeting);
		if (rc)
			return dt_comm_mpi_error(err, rc, "meeting for NCCL");
		l->state = LINK_MEETING;
	}
	if (l->state == LINK_MEETING) {
		rc = MPI_Test(&l->meeting, &done, MPI_STATUS_IGNORE);
		if (rc)
			return dt_comm_mpi_error(err, rc, "meeting for NCCL");
		if (!done)
			return 0;
		rc = dt_comm_nccl_begin_link(l, err);
		if (rc < 0)
			return rc;
	}
	return dt_comm_nccl_link_ready(l, at, err);
}

/*
 * Joins the thread that creates a communicator. In a broken elastic world it may wait in NCCL for lost ranks;
 * it is then detached. Returns false then.
 */
static bool join_thread(struct dt_comm_nccl_link *l)
{
	const struct dt_world *w = l->k->w;
	const double last = dt_now() + DT_COMM_NCCL_LEFT_S;

	while (w->elastic && atomic_load(&w->broken) && !atomic_load(&l->started) && dt_now() < last)
		sched_yield();
	if (w->elastic && atomic_load(&w->broken) && !atomic_load(&l->started)) {
		pthread_detach(l->thread);
		l->k->stuck = true;
		return false;
	}
	pthread_join(l->thread, NULL);
	return true;
}

static void end_link(struct dt_comm_nccl_link *l)
{
	struct dt_comm_nccl *k = l->k;
	void *comm;

	if (l->state == LINK_STARTING && !join_thread(l))
		return;
	pthread_mutex_lock(&k->lock);
	for (struct dt_comm_nccl_link **at = &k->links; *at; at = &(*at)->other)
		if (*at == l) {
			*at = l->other;
			break;
		}
	comm = atomic_exchange(&l->comm, NULL);
	pthread_mutex_unlock(&k->lock);
	if (comm && atomic_load(&k->w->broken)) /* created while the others were given up */
		k->lib.CommAbort(comm);
	else if (comm)
		k->lib.CommDestroy(comm);
	if (l->queue)
		dt_comm_nccl_card(k)->queue_close(dt_comm_nccl_arg(k), l->queue);
	*l = (struct dt_comm_nccl_link){
		.k = k, .rank = l->rank, .size = l->size, .meeting = MPI_REQUEST_NULL};
}

/* Elastic world: all its ranks call this to meet for a group of all of them. */
static int meet_elastic(struct dt_comm *c, struct dt_err *err)
{
	struct dt_comm_nccl_link *l = &c->nccl->all;
	struct dt_comm_nccl_id none = {{0}}, *all = calloc((size_t)c->w->info.size, sizeof(*all));
	int rc = all ? 0 : dt_err_sys(err, -ENOMEM, "group %s", c->name);

	if (rc == 0 && c->rank == 0 && l->k->lib.GetUniqueId(&l->id) != DT_NCCL_SUCCESS)
		l->id = none;
	if (rc == 0)
		rc = dt_comm_exchange(c->w, &l->id, sizeof(l->id), all, err);
	if (rc == 0) {
		l->id = all[c->ranks[0]];
		rc = memcmp(&l->id, &none, sizeof(none))
			     ? dt_comm_nccl_begin_link(l, err)
			     : dt_err_set(err, -EIO, "group %s: NCCL has no id for it", c->name);
	}
	free(all);
	return rc;
}

int dt_comm_nccl_join(struct dt_comm *c, struct dt_err *err)
{
	struct dt_comm_nccl *k = c->w->nccl;
	struct dt_comm_nccl_group *g;
	int rc;

	if (!k || c->size == 1 || c->nccl)
		return 0;
	g = calloc(1, sizeof(*g));
	if (g) {
		g->to = calloc((size_t)c->size, sizeof(*g->to));
		g->from = calloc((size_t)c->size, sizeof(*g->from));
	}
	if (!g || !g->to || !g->from) {
		if (g) {
			free(g->to);
			free(g->from);
		}
		free(g);
		return dt_err_sys(err, -ENOMEM, "group %s", c->name);
	}
	g->all = (struct dt_comm_nccl_link){
		.k = k, .rank = c->rank, .size = c->size, .meeting = MPI_REQUEST_NULL};
	for (int i = 0; i < c->size; i++) { /* the sender has rank 0 in its direction */
		g->to[i] =
			(struct dt_comm_nccl_link){.k = k, .rank = 0, .size = 2, .meeting = MPI_REQUEST_NULL};
		g->from[i] =
			(struct dt_comm_nccl_link){.k = k, .rank = 1, .size = 2, .meeting = MPI_REQUEST_NULL};
	}
	c->nccl = g;
	g->mpi = MPI_COMM_NULL;
	if (c->w->elastic)
		return meet_elastic(c, err);
	rc = MPI_Comm_dup(c->mpi, &g->mpi);
	return rc ? dt_comm_mpi_error(err, rc, c->name) : 0;
}

void dt_comm_nccl_leave(struct dt_comm *c)
{
	struct dt_comm_nccl_group *g = c->nccl;
	struct dt_comm_nccl *k = c->w->nccl;

	if (!g)
		return;
	for (struct dt_comm_nccl_op *o = k->flying; o; o = o->next)
		while (dt_comm_nccl_card(k)->event_done(dt_comm_nccl_arg(k), o->after) == 0)
			sched_yield();
	dt_comm_nccl_prune(k);
	end_link(&g->all);
	for (int i = 0; i < c->size; i++) {
		end_link(&g->to[i]);
		end_link(&g->from[i]);
	}
	c->nccl = NULL;
	if (g->spare)
		dt_comm_nccl_card(k)->free(dt_comm_nccl_arg(k), g->spare);
	if (g->mpi != MPI_COMM_NULL)
		MPI_Comm_free(&g->mpi);
	free(g->to);
	free(g->from);
	if (!k->stuck) /* else the detached thread may still write there */
		free(g);
}
/* SPDX-License-Identifier: Apache-2.0 */
