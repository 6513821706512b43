/*
 * Pipeline schedules as tables: for every stage the order in which it runs F (forward), B (backward, or only
 * its input part where split) and W (weight gradients) of each microbatch on each of its chunks of layers.
 * The same table is printed, checked, simulated by the planner and executed by the trainer. Sends and
 * receives follow from it: F's output goes to the next virtual stage, B's to the one before.
 *
 * Virtual stage of chunk c on stage i is c * pp + i.
 *   gpipe          all F, then all B (Huang et al. 2019)
 *   1f1b           warm-up of pp - i - 1 F, then one F one B (Narayanan et al. 2021, PipeDream-Flush)
 *   interleaved    1f1b over several chunks a stage (Narayanan et al. 2021, Megatron-LM, section 2.2)
 *   zb-h1          B split in two; W fills what would be the bubble, at 1f1b's peak memory (Qi et al. 2023,
 * ZB-H1)
 */
#ifndef DT_PLAN_SCHEDULE_H
#define DT_PLAN_SCHEDULE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

/* Chunks a stage at most. */
#define DT_MAX_CHUNKS 16

enum dt_pipeline { DT_PIPE_GPIPE, DT_PIPE_1F1B, DT_PIPE_INTERLEAVED, DT_PIPE_ZB_H1 };

struct dt_action {
	char op; /* 'F', 'B' or 'W' */
	int mb, chunk;
};

struct dt_schedule {
	int pp, chunks, microbatches;
	bool split;	     /* W apart from B */
	struct dt_action *a; /* stage i: a[start[i]] .. a[start[i + 1] - 1] */
	int *start;	     /* [pp + 1] */
};

/* "gpipe", "1f1b", "interleaved:V", "zb-h1". */
int dt_pipeline_parse(const char *s, enum dt_pipeline *ret, int *ret_chunks, struct dt_err *err);

int dt_schedule_make(enum dt_pipeline kind, int pp, int chunks, int microbatches, struct dt_schedule *ret,
		     struct dt_err *err);
/* Unchecked, with the actions of only one stage, for in_flight and held; stage -1: of all. */
int dt_schedule_make_stage(enum dt_pipeline kind, int pp, int chunks, int microbatches, int stage,
			   struct dt_schedule *ret, struct dt_err *err);
/* As dt_schedule_print writes it: a line a stage, "F0 F1 B0 ..." with ".c" behind the microbatch for chunk c
 * > 0. */
int dt_schedule_read(const char *text, const char *name, int pp, int chunks, int microbatches,
		     struct dt_schedule *ret, struct dt_err *err);
/* Room for the actions of a stage, or of all (stage -1), for the functions that make schedules. */
int dt_schedule_alloc(struct dt_schedule *s, int pp, int chunks, int microbatches, bool split, int stage,
		      struct dt_err *err);
int dt_schedule_copy(const struct dt_schedule *s, struct dt_schedule *ret, struct dt_err *err);
void dt_schedule_release(struct dt_schedule *s);
void dt_schedule_print(const struct dt_schedule *s, FILE *f);

/* Checks that every action occurs exactly once, and that the stages cannot deadlock. */
int dt_schedule_check(const struct dt_schedule *s, struct dt_err *err);

/* The most microbatches whose activations a chunk of a stage holds at a time (from F to B, or to W where
 * split). */
int dt_schedule_in_flight(const struct dt_schedule *s, int stage, int chunk);

/* The most a stage holds at a time over all its chunks, where a microbatch of chunk k weighs weight[k]. */
double dt_schedule_held(const struct dt_schedule *s, int stage, const double *weight);

struct dt_pipe_cost { /* seconds of one chunk's action, by virtual stage; w is 0 where not split */
	double f, b, w;
};
/*
 * Runs the table on paper. cost[pp * chunks] by virtual stage, hop: seconds a message takes. Returns the
 * makespan; ret_bubble (may be NULL): idle share of all stages up to it. Negative on a table that cannot
 * finish.
 */
double dt_schedule_simulate(const struct dt_schedule *s, const struct dt_pipe_cost *cost, double hop,
			    double *ret_bubble);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
