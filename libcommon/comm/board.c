/* The board of one machine: one slot per rank, where it publishes its current operation for the watchdogs. */
#include "comm/elastic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int dt_comm_board_init(struct dt_world *w)
{
	struct dt_comm_slot *own = aligned_alloc(128, sizeof(*own));

	if (!own)
		return -ENOMEM;
	memset(own, 0, sizeof(*own));
	atomic_store(&own->pid, (int)getpid());
	atomic_store(&own->phase, DT_COMM_PHASE_RUNNING);
	atomic_store(&w->me, own);
	w->board = own;
	w->board_n = 1;
	w->board_bytes = 0;
	return 0;
}

int dt_comm_board_open(struct dt_world *w, struct dt_err *err)
{
	struct dt_comm_slot *own = atomic_load(&w->me), *board;
	size_t bytes = (size_t)w->info.local_size * sizeof(struct dt_comm_slot);
	int shares = 0, any, rc;
	void *base;

	dt_comm_start_up(w, DT_COMM_START_UP, "sharing memory");
	rc = dt_comm_shared_map(w, w->node, w->node_ranks, w->info.local_size, bytes, &base, err);
	if (!rc) {
		board = base;
		w->board = board;
		w->board_n = w->info.local_size;
		w->board_bytes = bytes;
		atomic_store(&board[w->info.local_rank].pid, (int)getpid());
		atomic_store(&board[w->info.local_rank].phase, DT_COMM_PHASE_RUNNING);
		atomic_store(&w->me, &board[w->info.local_rank]);
		free(own);
		dt_comm_start_up(w, DT_COMM_START_UP, "meeting the others");
		shares = w->info.local_size > 1;
	} else if (rc != -ENOTSUP) {
		return rc;
	}
	any = shares && w->opts.transport == DT_TRANSPORT_AUTO;
	if (any && (rc = dt_comm_chans_open(w, err)) && (rc != -ENOTSUP || w->elastic))
		return rc;
	w->stepwise = true;
	if (w->elastic)
		return 0;
	rc = MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_MAX, w->world);
	w->stepwise = any || w->opts.linger_s > 0; /* a blocking MPI call cannot be interrupted */
	return rc ? dt_comm_mpi_error(err, rc, "cannot share memory") : 0;
}

void dt_comm_board_close(struct dt_world *w)
{
	void *mapped = w->board;
	size_t bytes = w->board_bytes;

	if (!bytes)
		return;
	if (dt_comm_board_init(w) < 0)
		abort();
	munmap(mapped, bytes);
}

void dt_comm_board_release(struct dt_world *w)
{
	if (w->board_bytes)
		munmap(w->board, w->board_bytes);
	else
		free(atomic_load(&w->me));
}
/* SPDX-License-Identifier: Apache-2.0 */
