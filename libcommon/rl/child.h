/* A command of /bin/sh whose standard input and output are a socket of this process. Private to rl/. */
#ifndef DT_RL_CHILD_H
#define DT_RL_CHILD_H

#include "base/err.h"

#include <sys/types.h>

struct dt_child {
	pid_t pid; /* its process group too; 0: not running */
	int fd;	   /* does not block */
};

int dt_child_start(struct dt_child *c, const char *command, struct dt_err *err);
/* Kills it with what it has started. */
void dt_child_stop(struct dt_child *c);
/* Kills all of them with what they have started, and lets no other start: for a process about to end. */
void dt_child_end_all(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
