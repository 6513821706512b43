/* Groups: their members, the members' places on this machine, and transports. */
#include "comm/elastic.h"
#include "comm/nccl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int fill_ranks(struct dt_comm *c, struct dt_err *err)
{
	MPI_Group mine, all;
	int *local = calloc((size_t)c->size, sizeof(int));

	if (!c->ranks)
		c->ranks = calloc((size_t)c->size, sizeof(int));
	if (!c->ranks || !local) {
		free(local);
		return dt_err_sys(err, -ENOMEM, "group %s", c->name);
	}
	if (c->mpi != MPI_COMM_NULL) {
		for (int i = 0; i < c->size; i++)
			local[i] = i;
		MPI_Comm_group(c->mpi, &mine);
		MPI_Comm_group(c->w->world, &all);
		MPI_Group_translate_ranks(mine, c->size, local, all, c->ranks);
		MPI_Group_free(&mine);
		MPI_Group_free(&all);
	}
	free(local);
	c->local = calloc((size_t)c->size, sizeof(int));
	if (!c->local)
		return dt_err_sys(err, -ENOMEM, "group %s", c->name);
	for (int i = 0; i < c->size; i++) {
		c->local[i] = -1;
		for (int k = 0; k < c->w->board_n && c->w->board_n > 1; k++)
			if (c->w->node_ranks[k] == c->ranks[i])
				c->local[i] = k;
	}
	return 0;
}

static bool one_machine(const struct dt_comm *c)
{
	for (int i = 1; i < c->size; i++)
		if (c->w->node_of[c->ranks[i]] != c->w->node_of[c->ranks[0]])
			return false;
	return true;
}

/* Ranks per machine if each machine has an equal run of consecutive ranks, otherwise 0. */
static int equal_runs(const struct dt_comm *c)
{
	const int *node = c->w->node_of;
	int g = 1;

	while (g < c->size && node[c->ranks[g]] == node[c->ranks[0]])
		g++;
	if (c->size % g)
		return 0;
	for (int i = 0; i < c->size; i++)
		for (int j = 0; j < i; j++)
			if ((node[c->ranks[i]] == node[c->ranks[j]]) != (i / g == j / g))
				return 0;
	return g;
}

static int choose_transport(struct dt_comm *c, struct dt_err *err)
{
	int rc;

	c->collectives = c->p2p = &dt_comm_transport_self;
	if (c->size == 1 && c->w->elastic) { /* matches the other ranks' calls in dt_comm_shared_map */
		rc = dt_comm_exchange(c->w, NULL, 0, NULL, err);
		return rc ? rc : dt_comm_exchange(c->w, NULL, 0, NULL, err);
	}
	if (c->size == 1)
		return 0;
	c->collectives = c->p2p = &dt_comm_transport_mpi;
	c->node_ranks = equal_runs(c);
	if (!c->w->elastic) {
		rc = MPI_Comm_dup(c->mpi, &c->lanes);
		if (rc)
			return dt_comm_mpi_error(err, rc, c->name);
		MPI_Comm_set_errhandler(c->lanes, MPI_ERRORS_RETURN);
	}
	if (c->w->opts.transport != DT_TRANSPORT_AUTO || !one_machine(c))
		return 0;
	rc = dt_comm_shm_open(c, err);
	if (rc == 0)
		c->collectives = &dt_comm_transport_shm;
	return rc == -ENOTSUP && !c->w->elastic ? 0 : rc;
}

struct lot {
	int color, key, rank;
};

static int by_key(const void *a, const void *b)
{
	const struct lot *x = a, *y = b;

	return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : x->rank - y->rank;
}

/* Splits an elastic world: exchanges color and key of all ranks, and picks the members. */
static int split_here(struct dt_comm *c, int color, int key, struct dt_err *err)
{
	struct dt_world *w = c->w;
	struct lot mine = {color, key, w->info.rank}, *all = calloc((size_t)w->info.size, sizeof(*all));
	int rc = all ? dt_comm_exchange(w, &mine, sizeof(mine), all, err)
		     : dt_err_sys(err, -ENOMEM, "group %s", c->name);

	c->ranks = rc == 0 ? calloc((size_t)w->info.size, sizeof(int)) : NULL;
	if (rc == 0 && !c->ranks)
		rc = dt_err_sys(err, -ENOMEM, "group %s", c->name);
	if (rc == 0)
		qsort(all, (size_t)w->info.size, sizeof(*all), by_key);
	c->size = 0;
	for (int i = 0; i < w->info.size && rc == 0; i++)
		if (all[i].color == color) {
			if (all[i].rank == w->info.rank)
				c->rank = c->size;
			c->ranks[c->size++] = all[i].rank;
		}
	free(all);
	return rc;
}

/* Splits the world: this rank's group, its size and rank there. One process without MPI is a group of one. */
static int split_world(struct dt_comm *c, int color, int key, struct dt_err *err)
{
	struct dt_world *w = c->w;
	int rc;

	if (w->elastic || w->mpi)
		dt_comm_start_up(w, DT_COMM_START_UP, c->name);
	if (w->elastic)
		return split_here(c, color, key, err);
	if (!w->mpi)
		return 0;
	rc = MPI_Comm_split(w->world, color, key, &c->mpi);
	if (rc)
		return dt_comm_mpi_error(err, rc, c->name);
	MPI_Comm_set_errhandler(c->mpi, MPI_ERRORS_RETURN);
	MPI_Comm_size(c->mpi, &c->size);
	MPI_Comm_rank(c->mpi, &c->rank);
	return 0;
}

static void release(struct dt_comm *c)
{
	if (c->lanes != MPI_COMM_NULL)
		MPI_Comm_free(&c->lanes);
	if (c->mpi != MPI_COMM_NULL)
		MPI_Comm_free(&c->mpi);
	free(c->ranks);
	free(c->local);
	free(c);
}

int dt_comm_create(struct dt_comm **ret, struct dt_world *w, const char *name, int color, int key,
		   struct dt_err *err)
{
	struct dt_comm *c = calloc(1, sizeof(*c));
	int rc, index = 0;

	if (!c)
		return dt_err_sys(err, -ENOMEM, "group %s", name);
	while (index < DT_COMM_GROUPS_MAX && w->comm[index])
		index++;
	if (index == DT_COMM_GROUPS_MAX) {
		free(c);
		return dt_err_set(err, -ENOSPC, "group %s: %d groups are open already", name,
				  DT_COMM_GROUPS_MAX);
	}
	*c = (struct dt_comm){
		.w = w, .index = index, .size = 1, .mpi = MPI_COMM_NULL, .lanes = MPI_COMM_NULL};
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->id = ++w->groups;
	rc = split_world(c, color, key, err);
	if (!rc)
		rc = fill_ranks(c, err);
	if (!rc)
		rc = choose_transport(c, err);
	if (!rc)
		rc = dt_comm_nccl_join(c, err);
	if (rc)
		goto fail;
	atomic_store(&atomic_load(&w->me)->arrived[index], 0);
	if (w->mpi || w->elastic)
		dt_comm_slot_leave(w);
	pthread_mutex_lock(&w->lock);
	w->comm[index] = c;
	if (index >= w->ncomm)
		w->ncomm = index + 1;
	pthread_mutex_unlock(&w->lock);
	*ret = c;
	return 0;
fail:
	if (w->mpi || w->elastic)
		dt_comm_slot_leave(w);
	release(c);
	return rc;
}

void dt_comm_free(struct dt_comm *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->w->lock);
	c->w->comm[c->index] = NULL;
	while (c->w->ncomm && !c->w->comm[c->w->ncomm - 1])
		c->w->ncomm--;
	pthread_mutex_unlock(&c->w->lock);
	dt_comm_nccl_leave(c);
	dt_comm_shm_close(c);
	release(c);
}

const char *dt_comm_transport(const struct dt_comm *c)
{
	return c->collectives->name;
}

int dt_comm_rank(const struct dt_comm *c)
{
	return c->rank;
}

int dt_comm_size(const struct dt_comm *c)
{
	return c->size;
}

struct dt_world *dt_comm_world(const struct dt_comm *c)
{
	return c->w;
}

int dt_comm_node_ranks(const struct dt_comm *c)
{
	return c->node_ranks;
}
/* SPDX-License-Identifier: Apache-2.0 */
