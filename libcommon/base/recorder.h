/*
 * A flight recorder: the last communication operations that a process began, in a memory-mapped file. It
 * survives a kill of the process and costs a few stores an operation. dt-run explain compares the files of
 * all ranks.
 */
#ifndef DT_BASE_RECORDER_H
#define DT_BASE_RECORDER_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdint.h>

#define DT_RECORDER_MAGIC 0x64744631u /* "dtF1" */
enum { DT_RECORDER_ROOM = 2000 };

struct dt_record {
	uint64_t no;		/* number of the record, from 1; 0: being written */
	uint64_t seq;		/* number of the collective in its group, from 1; 0: point-to-point */
	uint64_t n;		/* elements */
	double began, ended;	/* monotonic seconds of its machine; ended 0: still running */
	int32_t peer;		/* for point-to-point; else -1 */
	int32_t members, first; /* number of ranks in the group, and the lowest of them */
	char group[16], kind[16], type[8], what[48];
};

struct dt_recording { /* contents of the file */
	uint32_t magic, record_bytes;
	int32_t rank, size, pid, room;
	_Atomic uint64_t next;		      /* number of the newest record */
	struct dt_record r[DT_RECORDER_ROOM]; /* record no is at index (no - 1) % room */
};

/* Creates the file PATH.RANK. */
int dt_recorder_open(const char *path, int rank, int size, struct dt_recording **ret, struct dt_err *err);
void dt_recorder_close(struct dt_recording *r);
/* Starts a record and returns its number. f NULL: does nothing and returns 0. */
uint64_t dt_recorder_begin(struct dt_recording *f, const struct dt_record *r);
void dt_recorder_end(struct dt_recording *f, uint64_t no);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
