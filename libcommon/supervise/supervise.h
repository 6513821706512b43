/*
 * Supervises a training job: starts it, receives its heartbeats (base/beat.h), and restarts it from the
 * newest complete checkpoint when ranks die, stop or hang, on other hosts and with another layout if hosts
 * have changed. It also accounts for where the time went. One thread; the job is a child process, and all its
 * descendants end with it.
 */
#ifndef DT_SUPERVISE_SUPERVISE_H
#define DT_SUPERVISE_SUPERVISE_H

#include "base/log.h"

#include <stdbool.h>
#include <stdint.h>

enum { DT_EXIT_CRASH_LOOP = 93 }; /* no start brought a new step: restarting is senseless */

struct dt_supervise {
	/*
	 * The job's command, NULL-terminated: dt-train ..., or a launcher before it. Or dt-serve, of which
	 * nothing is known but how it ends: it is started again unless it was asked to end, and has been well
	 * when it lasted a minute.
	 */
	char *const *argv;
	int min_ranks, max_ranks; /* max 0: argv starts the ranks itself; else argv is dt-train's alone */
	const char *launcher;	  /* words before dt-train where max_ranks is given */
	const char *discover;	  /* command that lists hosts, "NAME[:SLOTS]" a line; NULL: this one */
	double discover_s;	  /* seconds between two of them */
	const char *cluster;	  /* description of the machines for the choice of a layout; NULL: this one */
	const char *notice;	  /* command that exits 0 when this machine is about to go; NULL: none */
	double notice_s;
	const char *kill_file, *save_file; /* looked for twice a second; NULL: none */
	double heartbeat_s;		   /* a rank that is not heard for so long is dead */
	double step_s;			   /* longest time without a new step; 0: any */
	double grace_s; /* time for a checkpoint and the end, once the job is asked to end */
	int tries;	/* starts without a new step before it is given up */
	double cool_s;	/* for a host that cannot be reached; doubles */
	bool replace;	/* replace a rank that an elastic run has lost by a new process */
	double slow;	/* a rank with a score below this is slow; 0: not checked */
	double evict;	/* below this score its host is left out, or its process ended; 0: never */
	const char *mirror, *mirror_get; /* commands that send and fetch a folder; NULL: no mirror */
	const char *mirror_remove;	 /* command that removes one there; NULL: all stay */
	double mirror_s;		 /* longest time of one of them */
	const char *events;		 /* JSON Lines; NULL: none */
	const char *prometheus;		 /* page for its collector; NULL: none */
	const struct dt_log *log;
};

/* Returns an exit status: the job's, 75 preempted, 93 (above), 1. */
int dt_supervise_run(const struct dt_supervise *o);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
