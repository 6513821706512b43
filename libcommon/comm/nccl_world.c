/* NCCL: the library, the CUDA devices of a world, and the watchdog's view of operations under way. */
#include "comm/elastic.h"
#include "comm/nccl_priv.h"

#include "base/progress.h"
#include "kernels/symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define OLDEST 21000 /* 2.10: first with averages */

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
		return "libnccl.so.2 is not installed";
	if (!dt_symbols_find(l->handle, all, sizeof(all) / sizeof(*all), l))
		return "libnccl.so.2 lacks required functions";
	if (l->GetVersion(&version) != DT_NCCL_SUCCESS || version < OLDEST)
		return "NCCL is older than 2.10";
	return NULL;
}

/* *ret: why NCCL cannot be used, the same on all ranks; NULL: all ranks can use it. */
static int agree(struct dt_world *w, const char *mine, const char **ret, struct dt_err *err)
{
	struct {
		unsigned char id[16];
		char why[48];
	} own = {{0}, ""}, *all = calloc((size_t)w->info.size, sizeof(*all));
	static char why[64];
	int rc;

	if (!all)
		return dt_err_sys(err, -ENOMEM, "table of %d GPUs", w->info.size);
	memcpy(own.id, w->device.card->id, sizeof(own.id));
	strncpy(own.why, mine ? mine : "", sizeof(own.why) - 1);
	rc = w->elastic ? dt_comm_exchange(w, &own, sizeof(own), all, err)
			: MPI_Allgather(&own, sizeof(own), MPI_BYTE, all, sizeof(own), MPI_BYTE, w->world);
	*ret = NULL;
	for (int i = 0; i < w->info.size && !rc && !*ret; i++) {
		if (all[i].why[0]) {
			memcpy(why, all[i].why, sizeof(own.why));
			*ret = why;
		}
		for (int j = 0; j < i && !*ret; j++)
			if (!memcmp(all[i].id, all[j].id, sizeof(own.id)))
				*ret = "several ranks share a GPU";
	}
	free(all);
	return rc && !w->elastic ? dt_comm_mpi_error(err, rc, "comparing GPUs") : rc;
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
	if (!*why && !w->elastic)
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
	if (k->stuck)
		return;
	pthread_mutex_destroy(&k->lock);
	dlclose(k->lib.handle);
	free(k);
}

int dt_comm_nccl_look(struct dt_world *w, double timeout_s, struct dt_comm_where *at, char what[200])
{
	struct dt_comm_nccl *k;
	int found = 0;

	pthread_mutex_lock(&w->lock); /* k stays open while this is held */
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

/* Called with k->lock held. */
static void abort_links(struct dt_comm_nccl *k)
{
	for (struct dt_comm_nccl_link *l = k->links; l; l = l->other) {
		void *comm = atomic_exchange(&l->comm, NULL);

		if (comm)
			k->lib.CommAbort(comm);
	}
}

void dt_comm_nccl_abort(struct dt_world *w)
{
	struct dt_comm_nccl *k = w->nccl;

	if (!k || pthread_mutex_trylock(&k->lock))
		return;
	abort_links(k);
	pthread_mutex_unlock(&k->lock);
}

void dt_comm_nccl_give_up(struct dt_world *w)
{
	struct dt_comm_nccl *k;

	pthread_mutex_lock(&w->lock); /* k stays open while this is held */
	k = w->nccl;
	if (k) {
		atomic_store(&k->given_up, 1);
		/* NCCL may let this rank's thread return; else its communicators are aborted under it. */
		for (double last = dt_now() + DT_COMM_NCCL_LEFT_S;
		     atomic_load(&k->calling) && dt_now() < last;)
			sched_yield();
		pthread_mutex_lock(&k->lock);
		abort_links(k);
		pthread_mutex_unlock(&k->lock);
	}
	pthread_mutex_unlock(&w->lock);
}
/* SPDX-License-Identifier: Apache-2.0 */
