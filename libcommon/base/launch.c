#include "base/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct dt_launcher known[] = {
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"},
	{"PMI_SIZE", "PMI_RANK", "a PMI launcher (MPICH, Intel MPI or Slurm)"},
	{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MVAPICH's mpirun"},
	{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "Slurm"},
};

const struct dt_launcher *dt_launcher(int i)
{
	return i >= 0 && (size_t)i < sizeof(known) / sizeof(known[0]) ? &known[i] : NULL;
}

static bool launched(void)
{
	const struct dt_launcher *l;

	for (int i = 0; (l = dt_launcher(i)); i++)
		if (getenv(l->size))
			return true;
	return false;
}

bool dt_launch_terminal(int fd)
{
	const char *term = getenv("TERM");
	char link[64], path[64];
	ssize_t n;

	if (!term || !strcmp(term, "dumb"))
		return false;
	if (!launched())
		return isatty(fd);
	snprintf(link, sizeof(link), "/proc/%ld/fd/%d", (long)getppid(), fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	return !strncmp(path, "/dev/pts/", 9) || !strncmp(path, "/dev/tty", 8);
}

int dt_launch_rank(void)
{
	const struct dt_launcher *l;
	const char *s = NULL;

	for (int i = 0; (l = dt_launcher(i)) && !s; i++)
		s = getenv(l->size) ? getenv(l->rank) : NULL;
	if (!s)
		s = getenv("PMIX_RANK");
	return s ? atoi(s) : 0;
}

bool dt_launch_speaks(void)
{
	const char *contexts = getenv("OMPI_APP_CTX_NUM_PROCS"); /* "1 2": processes of each command line */
	int rank = dt_launch_rank();
	long first = 0;

	while (contexts && getenv("OMPI_COMM_WORLD_RANK") && first < rank) {
		char *end;
		long n = strtol(contexts, &end, 10);

		if (end == contexts || n < 1)
			break;
		first += n;
		contexts = end;
	}
	return rank == 0 || first == rank;
}

bool dt_launch_ends_all(void)
{
	const char *ranks = getenv("OMPI_COMM_WORLD_SIZE"), *on = getenv("OMPI_MCA_orte_enable_recovery");

	return ranks && atoi(ranks) > 1 && !(on && !strcmp(on, "1"));
}
/* SPDX-License-Identifier: Apache-2.0 */
