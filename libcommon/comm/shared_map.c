/* Memory shared by ranks of one machine: the first creates it, the others map it, and all must succeed. */
#include "comm/elastic.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct place {
	int pid, fd;
};

/* Broadcasts the first member's pid and descriptor to all members. */
static int tell_place(struct dt_world *w, MPI_Comm comm, int first, struct place *at, struct dt_err *err)
{
	struct place *all;
	int rc;

	if (!w->elastic)
		return MPI_Bcast(at, sizeof(*at), MPI_BYTE, 0, comm);
	all = calloc((size_t)w->info.size, sizeof(*all));
	rc = all ? dt_comm_exchange(w, at, sizeof(*at), all, err) : -ENOMEM;
	if (rc == 0)
		*at = all[first];
	free(all);
	return rc;
}

/* *ok becomes whether all members passed ok. */
static int all_ok(struct dt_world *w, MPI_Comm comm, const int *ranks, int n, int *ok, struct dt_err *err)
{
	int *all, rc;

	if (!w->elastic)
		return MPI_Allreduce(MPI_IN_PLACE, ok, 1, MPI_INT, MPI_MIN, comm);
	all = calloc((size_t)w->info.size, sizeof(*all));
	rc = all ? dt_comm_exchange(w, ok, sizeof(*ok), all, err) : -ENOMEM;
	for (int i = 0; i < n && rc == 0; i++)
		*ok &= all[ranks[i]];
	free(all);
	return rc;
}

int dt_comm_shared_map(struct dt_world *w, MPI_Comm comm, const int *ranks, int n, size_t bytes, void **ret,
		       struct dt_err *err)
{
	struct place at = {(int)getpid(), -1};
	char path[64];
	void *base = MAP_FAILED;
	int rank, ok, fd = -1, rc;

	if (w->elastic)
		rank = w->info.rank != ranks[0];
	else
		MPI_Comm_rank(comm, &rank);
	if (rank == 0) {
		fd = memfd_create("dt", MFD_CLOEXEC);
		if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
			close(fd);
			fd = -1;
		}
		at.fd = fd;
	}
	rc = tell_place(w, comm, ranks[0], &at, err);
	if (!rc && rank && at.fd >= 0) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", at.pid, at.fd);
		fd = open(path, O_RDWR | O_CLOEXEC);
	}
	if (fd >= 0)
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ok = base != MAP_FAILED;
	if (!rc)
		rc = all_ok(w, comm, ranks, n, &ok, err);
	if (fd >= 0)
		close(fd);
	if (!rc && ok) {
		*ret = base;
		return 0;
	}
	if (base != MAP_FAILED)
		munmap(base, bytes);
	if (rc)
		return w->elastic ? rc : dt_comm_mpi_error(err, rc, "cannot share memory");
	return dt_err_set(err, -ENOTSUP, "the ranks of this machine cannot share memory");
}
/* SPDX-License-Identifier: Apache-2.0 */
