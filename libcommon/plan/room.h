/*
 * The room on a device and a disk, and whether an estimate fits: dt-memest's verdict, as text and JSON.
 */
#ifndef DT_PLAN_ROOM_H
#define DT_PLAN_ROOM_H

#include "plan/fit.h"
#include "plan/solve.h"

struct dt_room {
	uint64_t device;	 /* bytes of one device, or of one rank on a processor; 0: not known */
	double margin;		 /* percent of it kept free */
	const char *weights_dir; /* where a server has weights; NULL: not said */
	uint64_t disk_free;	 /* bytes free in the folder of --offload-to, or that one */
	int64_t node;		 /* devices of a machine */
};

/* The folder whose free space counts; NULL: there is none. */
const char *dt_room_dir(const struct dt_room *room, const struct dt_fit_query *q);

/* Bytes a rank may take of the device: what the margin leaves. */
uint64_t dt_room_budget(const struct dt_room *room);

/* Whether device and disk hold the fullest rank. Unknown sizes count as unlimited. */
bool dt_room_fits(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f);

/* Seconds and bytes of the disk, the solution where s->what is set, the verdict. why: as dt_solve_print. */
void dt_room_print(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f,
		   const struct dt_solve *s, bool why, FILE *out);

/* The same as keys of o. */
void dt_room_json(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f,
		  const struct dt_solve *s, json_t *o);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
