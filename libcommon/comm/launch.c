#include "comm/internal.h"

#include <stdlib.h>

static int positive(const char *s)
{
	char *end;
	long v;

	if (!s || !*s)
		return 0;
	v = strtol(s, &end, 10);
	return *end || v < 1 || v > 1 << 24 ? 0 : (int)v;
}

static const struct {
	const char *size, *rank, *by;
} known[] = {
	{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"},
	{"PMI_SIZE", "PMI_RANK", "a PMI launcher (MPICH, Intel MPI or Slurm)"},
	{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MVAPICH's mpirun"},
	{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "Slurm"},
};

int dt_launch_rank(void)
{
	const char *s = NULL;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !s; i++)
		s = getenv(known[i].size) ? getenv(known[i].rank) : NULL;
	if (!s)
		s = getenv("PMIX_RANK");
	return s ? atoi(s) : 0;
}

/*
 * Order matters: mpirun inside a Slurm allocation leaves both sets of variables. In a batch script outside
 * srun SLURM_NTASKS and SLURM_PROCID are set although one process runs; only a step has SLURM_STEP_NUM_TASKS.
 */
struct dt_launch dt_launch_detect(char *(*get)(const char *))
{
	struct dt_launch l = {0};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		int n = positive(get(known[i].size));

		if (!n || !get(known[i].rank))
			continue;
		if (n > 1)
			l = (struct dt_launch){known[i].by, n, known[i].size};
		return l;
	}
	if (get("PMIX_RANK")) /* a PMIx launcher does not say how many in the environment */
		l.by = "a PMIx launcher";
	return l;
}
