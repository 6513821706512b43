/*
 * Continuous batching without phases, after vLLM's v1 scheduler: a sequence has known tokens (prompt and
 * generated) and computed ones (their keys and values are in the cache). Each step moves computed toward
 * known under one budget of tokens. A chunked prefill is a sequence that needs several steps to catch up;
 * decode is one that is one behind.
 *
 * - Every running sequence moves by at least one token a step (with several steps under way, in each round
 *   of them): a long prefill cannot stall a decode. Of what
 *   is left of the budget the oldest prefill is sure of a quarter; the rest goes to the one that needs least.
 * - A sequence gets the blocks of all its known tokens when it is admitted, so a prefill never preempts. It
 *   starts behind what the pool has published of its tokens.
 * - When a sequence finds no block, the running one that is cheapest to compute again (of the lowest
 *   priority; but never the one admitted first) gives its blocks back.
 * - A sequence whose largest size does not fit the pool is refused when it is submitted, so the first one can
 *   always run to its end.
 * - Who is admitted next: the highest priority; then the tenant that has had the fewest tokens for its weight
 *   (virtual token counters: Sheng et al., Fairness in Serving Large Language Models, 2024); then the most
 * urgent of its own; then arrival.
 *
 * Pure bookkeeping: no clock, no thread, no model.
 */
#ifndef DT_SERVE_SCHEDULER_H
#define DT_SERVE_SCHEDULER_H

#include "base/err.h"
#include "serve/sched/kvpool.h"

#include <stdbool.h>
#include <sys/queue.h>

enum dt_seq_state { DT_SEQ_IDLE, DT_SEQ_WAITING, DT_SEQ_RUNNING };

struct dt_seq {		       /* zero-initialise; embedded in a request */
	const int32_t *tokens; /* [known]; NULL: never shared */
	struct dt_kv_salt salt;
	int tenant;
	int urgency;   /* within its tenant: higher goes first */
	int known;     /* tokens that exist; the owner raises it when one is generated */
	int computed;  /* tokens in the cache; the owner raises it when a step has run */
	int draft;     /* guessed tokens behind the known ones; the step may lower it */
	int max_rows;  /* cache rows it can ever need */
	int score_end; /* logits of rows before this one are wanted too; 0: of the last known one alone */
	int cached;    /* tokens that were found when it was first admitted */
	bool admitted;
	bool busy; /* with s->depth > 1: a step with it is under way; the owner lowers it when that has run */
	bool picked;	      /* for the step that is planned */
	int64_t turn;	      /* the step that it was planned in last, or started */
	const uint64_t *mark; /* [nmarks] of its beginnings (serve/sched/kvmarks.h) */
	int nmarks, marked;
	double mark_tokens;    /* from one to the next */
	struct dt_seq *leader; /* waits for this one's prompt, to share its blocks; see dt_sched_fork */
	struct dt_block_table blocks;
	int replica;	/* that has its blocks; while it runs */
	int64_t number; /* for a trace of decisions (serve/sched/trace.h): which request, and the */
	int traced;	/* known tokens that it has seen */
	enum dt_seq_state state;
	TAILQ_ENTRY(dt_seq) in_list;
};

TAILQ_HEAD(dt_seq_list, dt_seq);

struct dt_share {      /* what a tenant is entitled to */
	double weight; /* > 0 */
	int priority;  /* higher goes first */
};

enum { DT_REPLICAS_MAX = 64 };

struct dt_sched {
	struct dt_kvpool *pool; /* [replicas] */
	/*
	 * 1, or more after init: replicas of the model compute a step together, each with blocks of its own.
	 * max_seqs and max_tokens are of all of them, and each has an equal part. A sequence goes where most
	 * of it is found, of equal ones to where the fewest run.
	 */
	int replicas;
	int running_on[DT_REPLICAS_MAX];
	/*
	 * 1, or more after init: so many steps may be under way at once, each with sequences of its own, so
	 * that none has more than dt_sched_step_seqs of a replica. Those that run are shared out evenly.
	 */
	int depth;
	int64_t turn;		  /* steps planned so far */
	int max_seqs, max_tokens; /* of one step; max_tokens >= max_seqs */
	int window; /* > 0: no layer sees more keys than this, and the blocks behind are given back; set after
		     * init
		     */
	struct dt_seq_list running;
	int nrunning;
	int waiting; /* sequences, of all tenants */
	int ntenants;
	struct dt_sched_tenant {
		struct dt_share share;
		struct dt_seq_list waiting;
		int active;    /* sequences that run or wait */
		double served; /* tokens over weight */
	} * tenant;
	struct dt_block_copy { /* to be done in this order before the step's computation */
		int32_t from, to;
		int replica;
	} * copy; /* [max_seqs] */
	int ncopy;
	int64_t preemptions, prefix_queries, prefix_hits; /* the last two in tokens */
};

struct dt_sched_item { /* compute tokens [first, first + n) of seq */
	struct dt_seq *seq;
	int first, n;
};

/* share NULL: one tenant. */
int dt_sched_init(struct dt_sched *s, struct dt_kvpool *pool, int max_seqs, int max_tokens,
		  const struct dt_share *share, int ntenants, struct dt_err *err);
void dt_sched_release(struct dt_sched *s);

/* Puts seq at the end of its tenant's waiting list. -E2BIG: it can never fit. */
int dt_sched_submit(struct dt_sched *s, struct dt_seq *seq, struct dt_err *err);

/*
 * Plans one step into items [max_seqs], those of a replica next to each other in the order of replicas, and
 * s->copy; returns the number of items, or -ENOMEM. No step wants the logits of more than max_seqs rows, or
 * with depth > 1 dt_sched_step_seqs of a replica. It is 0 only when nothing runs or waits, or steps are under
 * way.
 */
int dt_sched_step(struct dt_sched *s, struct dt_sched_item *items);

/* Sequences of a replica, and rows whose logits are wanted, that a step has at most. */
static inline int dt_sched_step_seqs(const struct dt_sched *s)
{
	return (s->max_seqs / s->replicas + s->depth - 1) / s->depth;
}

/* seq->computed was raised by n: the tenant is charged, full blocks are published, and those that the window
 * has left behind are given back. */
void dt_sched_computed(struct dt_sched *s, struct dt_seq *seq, int n);

/*
 * The prompt of child's leader is computed; child shares its blocks and runs, without having computed
 * anything. It must get its next token from the same logits. false: there is no place; child waits like any
 * other. Not between a step's plan and its computation.
 */
bool dt_sched_fork(struct dt_sched *s, struct dt_seq *child);

/* Takes seq out, wherever it is, and frees its blocks. Not between a step's plan and its computation, nor
 * while a step with it is under way, unless its results will not be taken. */
void dt_sched_remove(struct dt_sched *s, struct dt_seq *seq);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
