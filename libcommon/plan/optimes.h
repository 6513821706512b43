/*
 * How long the operations of training take on a processor, as dt-calibrate(1) measured them: for each a grid
 * of sizes, for one process that has all cores and for as many as there are cores at the same time. Between
 * the points of a grid the time a unit of work is interpolated, all logarithmic; beyond its largest sizes
 * that of the edge is kept, below its smallest the time.
 */
#ifndef DT_PLAN_OPTIMES_H
#define DT_PLAN_OPTIMES_H

#include "base/json.h"
#include "model/op/timed.h"

#define DT_GRID_MAX 8 /* sizes along an axis */

struct dt_timed_info {
	const char *name;
	int axes;
	int64_t at[3][DT_GRID_MAX]; /* what dt-calibrate measures, ascending, ended by 0 */
};
extern const struct dt_timed_info dt_timed_ops[DT_T_N];
/* The operation that rounds to blocks of a format ("q4_k"), by its name; DT_T_N: there is none. */
#define DT_TIMED_ROUND "round-"
enum dt_timed dt_timed_round(const char *format);

struct dt_op_grid {
	int n[3];
	double at[3][DT_GRID_MAX];
	double *s; /* [n0][n1][n2] seconds; NULL: not measured */
};

enum { DT_OP_TYPES = 2 }; /* f32, bf16 */

struct dt_op_mode {
	int processes; /* that share the cores equally, all at work */
	struct dt_op_grid g[DT_T_N][DT_OP_TYPES];
};

struct dt_op_times {
	int cores, nmode;
	char isa[24];
	struct dt_op_mode mode[3];
};

/*
 * The grid that dt-calibrate fills, times 0, for the modes t has; `fewer` of the largest sizes of every axis
 * are left out, two stay. Released by dt_op_times_release.
 */
int dt_op_times_init(struct dt_op_times *t, int fewer, struct dt_err *err);
void dt_op_times_release(struct dt_op_times *t);

/* Whether it was measured: files of earlier versions have no rounding. */
bool dt_op_times_has(const struct dt_op_times *t, enum dt_timed op);

/* Points of a grid, and the sizes of point number i. */
int dt_grid_points(const struct dt_op_grid *g);
void dt_grid_sizes(const struct dt_op_grid *g, int i, int64_t ret[3]);

/* Seconds of op where `processes` ranks share the machine; more ranks than cores take turns. */
double dt_op_seconds(const struct dt_op_times *t, int processes, enum dt_timed op, enum dt_dtype type,
		     double a, double b, double c);

json_t *dt_op_times_to_json(const struct dt_op_times *t);
int dt_op_times_from_json(const json_t *o, struct dt_op_times *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
