/* NCCL: the library, communicators and their streams, events, and the watchdog's view of them. */
#include "comm/nccl_priv.h"

#include "base/progress.h"
#include "kernels/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST 21000 /* 2.10: averages */

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
	if (k->nevent == k->room) {
		int room = k->room ? 2 * k->room : 16;
		void **more = realloc(k->event, (size_t)room * sizeof(*more));

		if (!more) {
			dt_comm_nccl_card(k)->event_close(dt_comm_nccl_arg(k), event);
			return;
		}
		k->event = more;
		k->room = room;
	}
	k->event[k->nevent++] = event;
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
		return dt_err_sys(err, rc, "cannot open a queue of the card");
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

static void end_link(struct dt_comm_nccl_link *l)
{
	struct dt_comm_nccl *k = l->k;
	void *comm;

	if (l->state == LINK_STARTING)
		pthread_join(l->thread, NULL);
	pthread_mutex_lock(&k->lock);
	for (struct dt_comm_nccl_link **at = &k->links; *at; at = &(*at)->other)
		if (*at == l) {
			*at = l->other;
			break;
		}
	comm = atomic_exchange(&l->comm, NULL);
	pthread_mutex_unlock(&k->lock);
	if (comm)
		k->lib.CommDestroy(comm);
	if (l->queue)
		dt_comm_nccl_card(k)->queue_close(dt_comm_nccl_arg(k), l->queue);
	*l = (struct dt_comm_nccl_link){
		.k = k, .rank = l->rank, .size = l->size, .meeting = MPI_REQUEST_NULL};
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
	for (int i = 0; i < c->size; i++) { /* the sender is rank 0 of its direction */
		g->to[i] =
			(struct dt_comm_nccl_link){.k = k, .rank = 0, .size = 2, .meeting = MPI_REQUEST_NULL};
		g->from[i] =
			(struct dt_comm_nccl_link){.k = k, .rank = 1, .size = 2, .meeting = MPI_REQUEST_NULL};
	}
	rc = MPI_Comm_dup(c->mpi, &g->mpi);
	c->nccl = g;
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
	if (g->spare)
		dt_comm_nccl_card(k)->free(dt_comm_nccl_arg(k), g->spare);
	MPI_Comm_free(&g->mpi);
	free(g->to);
	free(g->from);
	free(g);
	c->nccl = NULL;
}

/* ---- the library and the world ---- */

static const char *load(struct dt_comm_nccl_lib *l)
{
	static const struct dt_symbol all[] = {
#define F(n) {"nccl" #n, offsetof(struct dt_comm_nccl_lib, n)}
		F(GetVersion),	F(GetErrorString), F(GetUniqueId),	 F(CommInitRank),
		F(CommDestroy), F(CommAbort),	   F(CommGetAsyncError), F(AllReduce),
		F(Reduce),	F(Broadcast),	   F(AllGather),	 F(ReduceScatter),
		F(Send),	F(Recv),	   F(GroupStart),	 F(GroupEnd),
#undef F
	};
	int version = 0;

	l->handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!l->handle)
		return "there is no libnccl.so.2";
	if (!dt_symbols_find(l->handle, all, sizeof(all) / sizeof(*all), l))
		return "libnccl.so.2 lacks functions";
	if (l->GetVersion(&version) != DT_NCCL_SUCCESS || version < OLDEST)
		return "NCCL is older than 2.10";
	return NULL;
}

/* Why NCCL cannot be used, the same text on all ranks; NULL: every rank can use it. */
static int agree(struct dt_world *w, const char *mine, const char **ret, struct dt_err *err)
{
	struct {
		unsigned char id[16];
		char why[48];
	} own = {{0}, ""}, *all = calloc((size_t)w->info.size, sizeof(*all));
	static char why[64];
	int rc;

	if (!all)
		return dt_err_sys(err, -ENOMEM, "table of %d cards", w->info.size);
	memcpy(own.id, w->device.card->id, sizeof(own.id));
	strncpy(own.why, mine ? mine : "", sizeof(own.why) - 1);
	rc = MPI_Allgather(&own, sizeof(own), MPI_BYTE, all, sizeof(own), MPI_BYTE, w->world);
	*ret = NULL;
	for (int i = 0; i < w->info.size && !rc && !*ret; i++) {
		if (all[i].why[0]) {
			memcpy(why, all[i].why, sizeof(own.why));
			*ret = why;
		}
		for (int j = 0; j < i && !*ret; j++)
			if (!memcmp(all[i].id, all[j].id, sizeof(own.id)))
				*ret = "several ranks share a card";
	}
	free(all);
	return rc ? dt_comm_mpi_error(err, rc, "comparing cards") : 0;
}

static const char *tags_suffice(struct dt_world *w)
{
	int *most = NULL, have = 0;

	MPI_Comm_get_attr(w->world, MPI_TAG_UB, &most, &have);
	return have && *most > 2 * (DT_TAG_MAX + 1) + 1 ? NULL : "this MPI has too few tags";
}

int dt_comm_nccl_open(struct dt_world *w, const char **why, struct dt_err *err)
{
	struct dt_comm_nccl *k = calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return dt_err_sys(err, -ENOMEM, "NCCL");
	*why = load(&k->lib);
	if (!*why)
		*why = tags_suffice(w);
	rc = agree(w, *why, why, err);
	if (rc < 0 || *why) {
		if (k->lib.handle)
			dlclose(k->lib.handle);
		free(k);
		return rc;
	}
	k->w = w;
	pthread_mutex_init(&k->lock, NULL);
	pthread_mutex_lock(&w->lock);
	w->nccl = k;
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < w->ncomm && rc == 0; i++)
		if (w->comm[i])
			rc = dt_comm_nccl_join(w->comm[i], err);
	return rc;
}

void dt_comm_nccl_close(struct dt_world *w)
{
	struct dt_comm_nccl *k = w->nccl;

	if (!k)
		return;
	for (int i = 0; i < w->ncomm; i++)
		if (w->comm[i])
			dt_comm_nccl_leave(w->comm[i]);
	pthread_mutex_lock(&w->lock);
	w->nccl = NULL;
	pthread_mutex_unlock(&w->lock);
	while (k->nevent)
		dt_comm_nccl_card(k)->event_close(dt_comm_nccl_arg(k), k->event[--k->nevent]);
	free(k->event);
	pthread_mutex_destroy(&k->lock);
	dlclose(k->lib.handle);
	free(k);
}

int dt_comm_nccl_look(struct dt_world *w, double timeout_s, struct dt_comm_where *at, char what[200])
{
	struct dt_comm_nccl *k;
	int found = 0;

	pthread_mutex_lock(&w->lock); /* it stays open meanwhile */
	k = w->nccl;
	if (!k) {
		pthread_mutex_unlock(&w->lock);
		return 0;
	}
	what[0] = '\0';
	pthread_mutex_lock(&k->lock);
	for (struct dt_comm_nccl_op *o = k->flying; o && !found; o = o->next) {
		int word = DT_NCCL_SUCCESS;
		void *comm = atomic_load(&o->link->comm);

		if (dt_comm_nccl_card(k)->event_done(dt_comm_nccl_arg(k), o->after) != 0)
			continue;
		*at = o->at;
		if (comm && k->lib.CommGetAsyncError(comm, &word) == DT_NCCL_SUCCESS &&
		    word != DT_NCCL_SUCCESS && word != DT_NCCL_IN_PROGRESS) {
			strncpy(what, k->lib.GetErrorString(word), 199);
			what[199] = '\0';
			found = 1;
		} else if (dt_now() - o->at.since > timeout_s) {
			found = 1;
		}
	}
	pthread_mutex_unlock(&k->lock);
	pthread_mutex_unlock(&w->lock);
	return found;
}

void dt_comm_nccl_abort(struct dt_world *w)
{
	struct dt_comm_nccl *k = w->nccl;

	if (!k || pthread_mutex_trylock(&k->lock))
		return;
	for (struct dt_comm_nccl_link *l = k->links; l; l = l->other) {
		void *comm = atomic_exchange(&l->comm, NULL);

		if (comm)
			k->lib.CommAbort(comm);
	}
	pthread_mutex_unlock(&k->lock);
}
/* SPDX-License-Identifier: Apache-2.0 */
