/*
 * Heartbeats: what a rank tells the program that supervises its job (dt-run), as datagrams. Each is whole,
 * with counters since the rank's start, so a lost one costs nothing. A thread sends one every
 * DT_BEAT_EVERY_S; a rank that computes for long, or waits for others, still beats, a stopped or dead one
 * does not.
 *
 * The supervisor says where to in the environment: DT_RUN=PORT:COOKIE:START:ADDRESS[,ADDRESS...], with a
 * port, 16 bytes in hexadecimal, the number of this start of the job, and IPv4 addresses that are all tried.
 * Without it every call does nothing.
 */
#ifndef DT_BASE_BEAT_H
#define DT_BASE_BEAT_H

#include <stdbool.h>
#include <stdint.h>

#define DT_BEAT_ENV	"DT_RUN"
#define DT_JOIN_ENV	"DT_JOIN" /* PID:FD of a board, for a process that joins an elastic run */
#define DT_BEAT_EVERY_S 0.1
#define DT_BEAT_MAGIC	0x64744234u /* "dtB4" */

enum dt_beat_phase {
	DT_BEAT_START,	 /* until the loop */
	DT_BEAT_RESTORE, /* reads a checkpoint */
	DT_BEAT_TRAIN,
	DT_BEAT_SAVE,
	DT_BEAT_END, /* the rank leaves by itself: its end is its own to explain */
};

struct dt_beat {
	uint32_t magic, start;
	uint8_t cookie[16];
	uint64_t no; /* of the datagram; later ones are larger */
	int32_t rank, pid, phase;
	int32_t stage; /* of the pipeline: ranks of one stage compute alike */
	/*
	 * The ranks of an elastic run leave and come: epochs, each with so many; this one's rank among them;
	 * its descriptor of the board that others join by, -1: none.
	 */
	uint32_t epoch;
	int32_t ranks, place, board;
	int32_t status; /* the exit status, with DT_BEAT_END */
	uint32_t job;	/* Open MPI's number of the job, in names of its shared memory; 0: unknown */
	char host[64];
	int64_t step, from; /* steps done; at the loop's beginning */
	int64_t saved;	    /* of the newest checkpoint of this start; -1: none */
	/* Seconds since the rank began, without one another. */
	double restore_s, step_s, data_s, save_s, recovery_s;
	double compute_s; /* of step_s: this rank's own, without waiting for others */
};

/* Starts sending. Once a process, before MPI. rank -1: as the launcher says. */
void dt_beat_open(int rank);
/* The number of this start of the job; 1 where nobody supervises. */
int dt_beat_start(void);
/* What the next datagrams say; fields that identify the rank are left alone. now: one is sent at once. */
void dt_beat_set(const struct dt_beat *b, bool now);
/* What they say now. */
struct dt_beat dt_beat_get(void);
/* The rank leaves by itself with this exit status: one more datagram, DT_BEAT_END, and no others. */
void dt_beat_close(int status);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
