/*
 * Search for the best layout: over every way to cut a model over the ranks that is possible and fits in
 * memory. Layouts are first ranked by a quick guess of their step time; memory is computed from the fastest
 * on, and the best that fit are then timed with their schedule tables.
 */
#ifndef DT_PLAN_SEARCH_H
#define DT_PLAN_SEARCH_H

#include "plan/fit.h"
#include "plan/run_cost.h"
#include "plan/steptime.h"

struct dt_plan_query {
	const struct dt_cluster *cluster;
	const struct dt_stack *stack;
	struct dt_fit_query fit; /* the run (microbatch 0: any) and the account; the search sets the rest */
	int recompute;		 /* -1: any, else enum dt_recompute */
	uint64_t room;		 /* bytes a rank may hold */
	bool dt_train;		 /* only what dt-train runs */
	struct dt_work_cache *work; /* NULL: a search has its own */
};

struct dt_candidate {
	struct dt_layout layout;
	int64_t microbatch, accumulation;
	enum dt_recompute recompute;
	struct dt_step_time t;
	uint64_t peak_bytes; /* 0: not worked out */
	bool fits;
};

enum { DT_PLAN_REASONS = 8 };

struct dt_plan {
	struct dt_candidate *best; /* [n], fastest first, all fit */
	int n;
	enum dt_account account;
	int cut, tried,
		too_large; /* layouts that can be cut so; whose memory was worked out; that did not fit */
	struct dt_candidate smallest; /* that least does not fit, where nothing fits */
	int passed; /* ways that cannot be run, and why: reasons by how many ways have them */
	struct {
		char text[200], layout[80]; /* of the first such way */
		int n;
	} reason[DT_PLAN_REASONS];
	int nreason;
};

/* At most `most` plans. n 0: nothing fits. */
int dt_plan_search(const struct dt_plan_query *q, int most, struct dt_plan *ret, struct dt_err *err);
void dt_plan_release(struct dt_plan *p);

/* One layout, microbatch and all: its time, and whether it fits. */
int dt_plan_judge(const struct dt_plan_query *q, struct dt_candidate *c, struct dt_err *err);

/* The run that c is. */
struct dt_run dt_candidate_run(const struct dt_plan_query *q, const struct dt_candidate *c);

/* candidate.c: a layout by its name, with the microbatch and recomputation that suit it best. */
int dt_plan_judge_layout(const struct dt_plan_query *q, const char *layout, struct dt_candidate *ret,
			 struct dt_err *err);

/*
 * Refuses what q->cluster cannot do, whatever the model is: --fp8 without products of 8 bits, --offload-to
 * host on processors, memory that the ranks of several machines would share, a layout (NULL: none) of another
 * number of ranks.
 */
int dt_plan_check_machines(const struct dt_plan_query *q, const char *layout, struct dt_err *err);
/* Refuses --fp8 where dt-train would find no linear for products of 8 bits. */
int dt_plan_check_fp8(const struct dt_plan_query *q, struct dt_err *err);

/*
 * Why c is where it is, in one line: what its time goes into, or against another (may be NULL), where it
 * loses.
 */
const char *dt_plan_reason(const struct dt_plan_query *q, const struct dt_candidate *c,
			   const struct dt_candidate *against, char *buf, size_t n);

/* --shares of dt-train for unlike devices, to be freed; NULL: ranks have the same. */
char *dt_plan_shares(const struct dt_plan_query *q, const struct dt_candidate *c);

/* The parts of a step, seconds. */
json_t *dt_step_time_json(const struct dt_step_time *t);
json_t *dt_candidate_json(const struct dt_plan_query *q, const struct dt_candidate *c);
/* What a million tokens of training cost where nothing fails. */
struct dt_run_cost dt_plan_million(const struct dt_plan_query *q, const struct dt_candidate *c);

/* Arguments of dt-train that run c: "--model M --layout L ...". shell: quoted for sh(1). Returns buf. */
const char *dt_plan_args(const struct dt_plan_query *q, const struct dt_candidate *c, const char *model,
			 bool shell, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
