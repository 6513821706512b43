/* What offloading costs a step: seconds, and bytes read and written. */
#ifndef DT_PLAN_OFFTIME_H
#define DT_PLAN_OFFTIME_H

#include "plan/stepcost.h"

#define DT_DISK_BW 1e9 /* bytes a second of a machine's disk where nobody says */

/*
 * Fills r->offload_s, offload_exposed, offload_read and offload_written of a rank that has the states of so
 * many parameters. The update moves its states while it computes on others, and, where it may begin behind
 * the last microbatch's backward, of so many seconds, while that computes; what takes longer is exposed.
 * Activations, and the weights of layers twice a microbatch, move behind forward and backward. r->optimizer
 * and r->makespan are known.
 */
void dt_offload_time(const struct dt_step_model *m, double params, double backward, struct dt_step_time *r);

/* Of a rank's transfers to and from where the run offloads, of ranks that share a disk. */
double dt_offload_seconds(const struct dt_run *s, const struct dt_device *d, int ranks, double read,
			  double written);
/* Bytes a second that each of so many ranks has of its machine's disk. */
double dt_offload_bw(const struct dt_run *s, int ranks);
/* One line on it for people: bytes, seconds, tokens that hide them, and what a disk is written a day. */
const char *dt_offload_text(const struct dt_run *s, const struct dt_step_time *t, int ranks, char *buf,
			    size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
