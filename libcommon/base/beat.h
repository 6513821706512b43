/*
 * Heartbeats: UDP datagrams from a rank to the program that supervises its job (dt-run). Counters in a
 * datagram count from the rank's start, so a lost datagram costs nothing. A thread sends one every
 * DT_BEAT_EVERY_S, also while the rank computes for long or waits for other ranks; a stopped or dead process
 * sends none.
 *
 * The supervisor passes their destination in the environment: DT_RUN=PORT:COOKIE:START:ADDRESS[,ADDRESS...],
 * with a port, 16 bytes in hexadecimal, the number of this start of the job, and IPv4 addresses, to each of
 * which every datagram is sent. Without DT_RUN every call does nothing.
 */
#ifndef DT_BASE_BEAT_H
#define DT_BASE_BEAT_H

#include <stdbool.h>
#include <stdint.h>

#define DT_BEAT_ENV	"DT_RUN"
#define DT_JOIN_ENV	"DT_JOIN" /* PID:FD of the board, set for a process that joins an elastic run */
#define DT_BEAT_EVERY_S 0.1
#define DT_BEAT_MAGIC	0x64744234u /* "dtB4" */

enum dt_beat_phase {
	DT_BEAT_START,	 /* before the training loop */
	DT_BEAT_RESTORE, /* reading a checkpoint */
	DT_BEAT_TRAIN,
	DT_BEAT_SAVE,
	DT_BEAT_END, /* the rank exits by itself and reports why itself */
};

struct dt_beat {
	uint32_t magic, start;
	uint8_t cookie[16];
	uint64_t no; /* number of the datagram, increasing */
	int32_t rank, pid, phase;
	int32_t stage; /* pipeline stage; ranks of the same stage do the same work */
	/*
	 * For an elastic run, whose ranks change: the number of the current epoch (a period with a fixed set
	 * of ranks), its number of ranks, this rank's index among them, and the file descriptor of the board
	 * through which others join (-1: none).
	 */
	uint32_t epoch;
	int32_t ranks, place, board;
	int32_t status; /* exit status, set with DT_BEAT_END */
	uint32_t job;	/* Open MPI's job number, part of its shared memory file names; 0: unknown */
	char host[64];
	int64_t step, from; /* steps done; steps done when the loop began */
	int64_t saved;	    /* step of the newest checkpoint that this start wrote; -1: none */
	/* Seconds since the rank began; none of them includes another. */
	double restore_s, step_s, data_s, save_s, recovery_s;
	double compute_s; /* part of step_s in which this rank computes, without waiting for other ranks */
};

/* Starts the sending thread. Call once a process, before MPI_Init. rank -1: take the launcher's rank. */
void dt_beat_open(int rank);
/* The number of this start of the job; 1 without a supervisor. */
int dt_beat_start(void);
/*
 * Sets the contents of the next datagrams, except the fields that identify the rank. now: also sends one at
 * once.
 */
void dt_beat_set(const struct dt_beat *b, bool now);
/* The current contents. */
struct dt_beat dt_beat_get(void);
/*
 * Sends a last datagram with DT_BEAT_END and this exit status, and stops the thread. For a rank that exits by
 * itself.
 */
void dt_beat_close(int status);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
