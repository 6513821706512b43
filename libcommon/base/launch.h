/*
 * Which process of a job this is, as mpirun, srun or another launcher says in the environment. Needs no MPI:
 * it answers before MPI is initialised, and in programs that never are.
 */
#ifndef DT_BASE_LAUNCH_H
#define DT_BASE_LAUNCH_H

#include <stdbool.h>

/* A launcher's variables: processes of the job, this one's rank; and its name, for messages. */
struct dt_launcher {
	const char *size, *rank, *by;
};

/* In the order they are looked at: mpirun inside a Slurm allocation leaves both sets. NULL past the end. */
const struct dt_launcher *dt_launcher(int i);

/* The rank of this process; 0 without a launcher. */
int dt_launch_rank(void);

/*
 * Whether this process prints what all ranks of its command line would print alike: usage errors, --help. The
 * first rank does; of `mpirun -np 1 A : -np 2 B` that is rank 0 for A and rank 1 for B.
 */
bool dt_launch_speaks(void);

/*
 * Whether what this process writes to descriptor fd appears on a terminal. Under a launcher on this machine
 * fd is a pipe or a terminal of the launcher's own: then its descriptor of that number is looked at.
 */
bool dt_launch_terminal(int fd);

/* Whether the launcher ends all ranks with one of them; of others than Open MPI nothing is known. */
bool dt_launch_ends_all(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
