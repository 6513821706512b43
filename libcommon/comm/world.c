/* The job: its launcher, its start and end, the ranks of each machine. */
#include "comm/elastic.h"
#include "comm/nccl.h"

#include "base/progress.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void dt_comm_start_up(struct dt_world *w, enum dt_comm_op_kind kind, const char *what)
{
	struct dt_comm_where at = {.kind = kind, .group = -1, .peer = -1, .since = dt_now()};

	snprintf(at.what, sizeof(at.what), "%s", what);
	dt_comm_slot_enter(w, &at);
}

/*
 * Open MPI loads UCX and libfabric and queries their devices before it uses shared memory (ob1): a third of
 * the start of two ranks (0.54 to 0.37 s, two cores). hwloc reads the registers of every PCI device, which is
 * slow under virtualization: another quarter. Ranks that are all on one machine need neither. User settings
 * stay.
 */
static void start_without_fabrics(void)
{
	const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE");

	if (here && all && !strcmp(here, all)) {
		setenv("OMPI_MCA_pml", "ob1", 0);
		setenv("HWLOC_COMPONENTS", "-pci,-linuxio", 0);
	}
}

static int init_mpi(struct dt_world *w, struct dt_err *err)
{
	int rc, have, already = 0;

	MPI_Initialized(&already);
	if (!already) {
		if (!w->elastic)
			start_without_fabrics();
		dt_comm_start_up(w, DT_COMM_START_UP, "MPI_Init");
		rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &have);
		if (rc)
			return dt_comm_mpi_error(err, rc, "cannot start MPI");
	}
	w->mpi = true;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	MPI_Comm_size(MPI_COMM_WORLD, &w->info.size);
	MPI_Comm_rank(MPI_COMM_WORLD, &w->info.rank);
	if (w->launch.size && w->launch.size != w->info.size) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int n;

		MPI_Get_library_version(version, &n);
		version[strcspn(version, ",\n")] = '\0';
		dt_err_set(err, -EINVAL, "%s started %d processes (%s), but MPI sees %d", w->launch.by,
			   w->launch.size, w->launch.size_in, w->info.size);
		dt_err_hint(err,
			    "dt was built with %s: start it with the mpirun of that MPI, or srun --mpi=pmix",
			    version);
		return -EINVAL;
	}
	return dt_comm_mpi_types_init(err);
}

/* The number of processors that this process may use. */
static int processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
}

int dt_world_threads(const struct dt_world_info *i, int *ret_mine)
{
	int online = (int)sysconf(_SC_NPROCESSORS_ONLN), each = online / i->local_size;

	*ret_mine = processors();
	return *ret_mine < online ? *ret_mine : each > 0 ? each : 1;
}

/* Finds the ranks of this machine and the machine of every rank. */
static int find_nodes(struct dt_world *w, struct dt_err *err)
{
	int leader, rc, *leaders;

	dt_comm_start_up(w, DT_COMM_START_UP, "finding the machines");
	rc = MPI_Comm_dup(MPI_COMM_WORLD, &w->world);
	if (!rc && w->opts.node_ranks > 0)
		rc = MPI_Comm_split(w->world, w->info.rank / w->opts.node_ranks, w->info.rank, &w->node);
	else if (!rc)
		rc = MPI_Comm_split_type(w->world, MPI_COMM_TYPE_SHARED, w->info.rank, MPI_INFO_NULL,
					 &w->node);
	if (rc)
		return dt_comm_mpi_error(err, rc, "cannot find the machines");
	MPI_Comm_size(w->node, &w->info.local_size);
	MPI_Comm_rank(w->node, &w->info.local_rank);
	w->node_of = calloc((size_t)w->info.size, sizeof(int));
	w->node_ranks = calloc((size_t)w->info.local_size, sizeof(int));
	leaders = w->node_of;
	if (!leaders || !w->node_ranks)
		return dt_err_sys(err, -ENOMEM, "table of %d ranks", w->info.size);
	leader = w->info.rank;
	rc = MPI_Bcast(&leader, 1, MPI_INT, 0, w->node);
	if (!rc)
		rc = MPI_Allgather(&w->info.rank, 1, MPI_INT, w->node_ranks, 1, MPI_INT, w->node);
	if (!rc)
		rc = MPI_Allgather(&leader, 1, MPI_INT, leaders, 1, MPI_INT, w->world);
	if (rc)
		return dt_comm_mpi_error(err, rc, "cannot find the machines");
	w->info.nodes = 0;
	for (int r = 0; r < w->info.size; r++) /* a leader has the lowest rank of its machine */
		w->node_of[r] = leaders[r] == r ? w->info.nodes++ : w->node_of[leaders[r]];
	w->info.node = w->node_of[w->info.rank];
	dt_comm_count_processors(w);
	return 0;
}

void dt_comm_count_processors(struct dt_world *w)
{
	w->crowded = w->info.local_size > processors();
}

/* Ranks of different builds would disagree about messages, which looks like a hang. */
static int check_builds(struct dt_world *w, struct dt_err *err)
{
	char mine[32] = "", first[32];
	int rc, differs, worst;

	snprintf(mine, sizeof(mine), "%s/%zu/%zu", DT_VERSION, sizeof(struct dt_comm_slot), sizeof(void *));
	memcpy(first, mine, sizeof(first));
	dt_comm_start_up(w, DT_COMM_START_UP, "comparing versions");
	rc = MPI_Bcast(first, sizeof(first), MPI_BYTE, 0, w->world);
	differs = memcmp(first, mine, sizeof(mine)) ? w->info.rank : -1;
	if (!rc)
		rc = MPI_Allreduce(&differs, &worst, 1, MPI_INT, MPI_MAX, w->world);
	if (rc)
		return dt_comm_mpi_error(err, rc, "cannot compare versions");
	if (worst < 0)
		return 0;
	dt_err_set(err, -EINVAL, "rank %d runs another build of dt than rank 0", worst);
	dt_err_hint(err, "install version %s on every machine", first);
	return -EINVAL;
}

static void world_free(struct dt_world *w)
{
	if (!w)
		return;
	dt_comm_watch_stop(w);
	dt_recorder_close(w->recording);
	dt_comm_regions_release(w);
	dt_comm_chans_close(w);
	dt_comm_board_release(w);
	free(w->node_of);
	free(w->node_ranks);
	dt_comm_elastic_close(w);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* A world of one rank, which a launcher or an elastic job may extend; NULL: out of memory. */
static struct dt_world *world_of_one(const struct dt_world_opts *o, const struct dt_log *log)
{
	struct dt_world *w = calloc(1, sizeof(*w));

	if (!w || dt_comm_board_init(w) < 0) {
		free(w);
		return NULL;
	}
	pthread_mutex_init(&w->lock, NULL);
	w->opts = *o;
	w->log = log;
	w->launch = dt_comm_launch_detect(getenv);
	w->info = (struct dt_world_info){.size = 1, .local_size = 1, .nodes = 1};
	return w;
}

/* Connects the ranks that a launcher started together. */
static int meet_first(struct dt_world *w, struct dt_err *err)
{
	int rc = dt_comm_watch_start(w, err);

	if (!w->launch.by) {
		w->node_of = calloc(1, sizeof(int));
		w->node_ranks = calloc(1, sizeof(int));
		if (!rc && (!w->node_of || !w->node_ranks))
			rc = dt_err_sys(err, -ENOMEM, "table of ranks");
	} else {
		if (!rc)
			rc = init_mpi(w, err);
		if (!rc)
			rc = find_nodes(w, err);
		if (!rc)
			rc = check_builds(w, err);
	}
	if (!rc && w->opts.elastic)
		rc = dt_comm_elastic_open(w, err);
	if (!rc)
		rc = dt_comm_board_open(w, err);
	if (!rc)
		rc = dt_comm_watch_connect(w, err);
	dt_comm_slot_leave(w);
	return rc;
}

int dt_world_open(struct dt_world **ret, const struct dt_world_opts *o, const struct dt_log *log,
		  struct dt_err *err)
{
	struct dt_world *w = world_of_one(o, log);
	int rc;

	if (!w)
		return dt_err_sys(err, -ENOMEM, "world");
	if (!w->launch.by && !o->elastic) {
		*ret = w;
		return 0;
	}
	rc = o->join ? dt_comm_elastic_join(w, o->join, err) : meet_first(w, err);
	if (rc) {
		if (rc == -EINVAL && w->mpi) /* all ranks have this error: end in order */
			MPI_Finalize();
		world_free(w);
		return rc;
	}
	if (o->recorder) {
		rc = dt_recorder_open(o->recorder, dt_world_epoch(w).place, w->info.size, &w->recording, err);
		if (rc) { /* the other ranks notice when this one ends */
			dt_log_err(log, err);
			dt_world_abort(w, DT_EXIT_FAILED);
		}
	}
	*ret = w;
	return 0;
}

int dt_world_init(struct dt_world **ret, double timeout_s, const struct dt_log *log, struct dt_err *err)
{
	struct dt_world_opts o = {.timeout_s = timeout_s};

	return dt_world_open(ret, &o, log, err);
}

const char *dt_world_broken(const struct dt_world *w)
{
	return atomic_load(&w->broken) ? w->why : NULL;
}

void dt_world_info(const struct dt_world *w, struct dt_world_info *ret)
{
	*ret = w->info;
}

void dt_world_finalize(struct dt_world *w)
{
	if (!w)
		return;
	for (int i = 0; i < DT_COMM_GROUPS_MAX; i++)
		dt_comm_free(w->comm[i]);
	if (w->elastic) { /* MPI_Finalize would wait for ranks that are gone */
		dt_comm_exchange(w, NULL, 0, NULL, NULL);
		atomic_store(&atomic_load(&w->me)->phase, DT_COMM_PHASE_FINISHED);
		dt_comm_elastic_leave(w, true);
	} else if (w->mpi) {
		dt_comm_start_up(w, DT_COMM_FINISH, "MPI_Finalize");
		MPI_Barrier(w->world);
		atomic_store(&atomic_load(&w->me)->phase, DT_COMM_PHASE_FINISHED);
		MPI_Comm_free(&w->node);
		MPI_Comm_free(&w->world);
		dt_comm_mpi_types_release();
		MPI_Finalize();
		dt_comm_slot_leave(w);
	}
	world_free(w);
}

void dt_world_abort(struct dt_world *w, int status)
{
	fflush(NULL);
	dt_comm_end_job(w, status);
}
/* SPDX-License-Identifier: Apache-2.0 */
