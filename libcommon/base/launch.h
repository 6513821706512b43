/*
 * The rank of this process and the size of its job, as mpirun, srun or another launcher sets them in the
 * environment. Does not use MPI, so it works before MPI_Init and in programs that never call it.
 */
#ifndef DT_BASE_LAUNCH_H
#define DT_BASE_LAUNCH_H

#include <stdbool.h>

/*
 * Names of a launcher's environment variables for the number of processes and the rank; `by` is its name for
 * messages.
 */
struct dt_launcher {
	const char *size, *rank, *by;
};

/*
 * Launchers in the order they are tried, NULL past the end. mpirun inside a Slurm allocation sets both sets
 * of variables.
 */
const struct dt_launcher *dt_launcher(int i);

/* The rank of this process; 0 without a launcher. */
int dt_launch_rank(void);

/*
 * Whether this process prints what all ranks of its command line would print: usage errors, --help. Only the
 * first rank of each command line does; in `mpirun -np 1 A : -np 2 B` that is rank 0 for A and rank 1 for B.
 */
bool dt_launch_speaks(void);

/*
 * Whether output to descriptor fd ends up on a terminal. Under a launcher on this machine fd is a pipe to the
 * launcher or a terminal it made, so the launcher's own descriptor of that number is checked.
 */
bool dt_launch_terminal(int fd);

/* Whether the launcher kills all ranks when one exits. Known for Open MPI only. */
bool dt_launch_ends_all(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
