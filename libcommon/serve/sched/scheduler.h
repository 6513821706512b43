/*
 * Continuous batching without separate prefill and decode phases, after vLLM's v1 scheduler. A sequence has
 * known tokens (prompt and generated) and computed tokens (their keys and values are in the cache). Each step
 * raises computed toward known within one token budget. Chunked prefill is a sequence that needs several
 * steps to catch up; decode is a sequence that is one token behind.
 *
 * - Every running sequence gets at least one token a step (with several steps in flight: one a round of
 *   steps), so a long prefill cannot stall a decode. Of the remaining budget the oldest prefill is sure of
 *   a quarter; the rest goes to the sequences that need least.
 * - A sequence gets the blocks of all its known tokens when it is admitted, so a prefill never preempts. Its
 *   computation starts behind the published blocks that hold a prefix of it. If a running sequence is about
 *   to compute a prefix of it that is half of what it lacks or more, it waits for these blocks: of many
 *   prompts that begin alike and come at once, the common part is computed once.
 * - When a sequence finds no free block, another running one is preempted: of the lowest priority, the one
 *   that is cheapest to recompute, but never the one admitted first.
 * - A sequence whose largest size does not fit the pool is refused when it is submitted, so the first one can
 *   always run to its end.
 * - Order of admission: the highest priority; then the tenant that has had the fewest tokens for its weight
 *   (virtual token counters: Sheng et al., Fairness in Serving Large Language Models, 2024); then the most
 *   urgent sequence of that tenant; then arrival.
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
	const int32_t *tokens; /* [known]; NULL: its blocks are never shared */
	struct dt_kv_salt salt;
	int tenant;
	int urgency;  /* within its tenant: higher goes first */
	int known;    /* tokens that exist; the owner raises it for each generated token */
	int computed; /* tokens in the cache; the owner raises it after each step */
	int draft;    /* draft tokens behind the known ones; planning may lower it */
	int max_rows; /* max cache rows it can need */
	int score_first,
		score_end; /* logits of rows [first, end) are needed too; 0: of the last known one only */
	int cached;	   /* tokens found in the prefix cache when it was first admitted */
	bool admitted;
	bool busy;   /* with s->depth > 1: in a step in flight; the owner clears it after that step */
	bool held;   /* no step computes it until the owner clears this; it may be preempted, which does so */
	bool picked; /* selected for the step being planned */
	int64_t turn;	      /* last step that planned it, or the step that admitted it */
	const uint64_t *mark; /* [nmarks] marks of its prefixes (serve/sched/kvmarks.h) */
	int nmarks, marked;
	double mark_tokens;    /* tokens from one mark to the next */
	struct dt_seq *leader; /* waits for this sequence's prompt, to share its blocks; see dt_sched_fork */
	struct dt_seq
		*after; /* while it waits: the running sequence that computes the first `until` tokens of */
	int until;	/* both; NULL: none */
	bool followed;	/* it may be another's `after` */
	struct dt_block_table blocks;
	int replica;	/* replica that holds its blocks; valid while it runs */
	int place;	/* while it runs, below max_seqs: no other running sequence has it */
	int64_t number; /* for the decision trace (serve/sched/trace.h): number of the request, */
	int traced;	/* and known tokens written so far */
	enum dt_seq_state state;
	TAILQ_ENTRY(dt_seq) in_list;
};

TAILQ_HEAD(dt_seq_list, dt_seq);

struct dt_share {      /* share of a tenant */
	double weight; /* > 0 */
	int priority;  /* higher goes first */
};

enum { DT_REPLICAS_MAX = 64 };

struct dt_sched {
	struct dt_kvpool *pool; /* [replicas] */
	/*
	 * Data-parallel replicas, 1 or set after init. They compute a step together, each with its own
	 * blocks. max_seqs and max_tokens are totals, divided equally. A sequence goes to the replica with
	 * the longest cached prefix; of equal ones, to the one with the fewest running sequences.
	 */
	int replicas;
	int running_on[DT_REPLICAS_MAX];
	/*
	 * Most steps in flight, 1 or set after init. Each has sequences of its own, at most
	 * dt_sched_step_seqs of a replica. Running sequences are distributed evenly over steps.
	 */
	int depth;
	/* A sequence is computed in one step, as encoders need it: of max_tokens at most. Set after init. */
	bool whole;
	int64_t turn;		  /* steps planned so far */
	int max_seqs, max_tokens; /* of one step; max_tokens >= max_seqs */
	int window; /* > 0: no layer attends to more keys than this; blocks behind the window are released;
		     * set after init */
	struct dt_seq_list running;
	int nrunning;
	int *place;  /* [max_seqs]: those behind the first nrunning are free */
	int waiting; /* sequences, of all tenants */
	int ntenants;
	struct dt_sched_tenant {
		struct dt_share share;
		struct dt_seq_list waiting;
		int active;    /* sequences that run or wait */
		double served; /* tokens divided by weight */
	} * tenant;
	struct dt_block_copy { /* copies to be done in this order before the step's computation */
		int32_t from, to;
		int replica;
	} * copy; /* [max_seqs] */
	int ncopy;
	int64_t preemptions, prefix_queries, prefix_hits; /* prefix_queries and prefix_hits count tokens */
};

/* Whether the logits of a row are needed. */
static inline bool dt_seq_scored(const struct dt_seq *q, int row)
{
	return row >= q->score_first && row < q->score_end;
}

struct dt_sched_item { /* compute tokens [first, first + n) of seq */
	struct dt_seq *seq;
	int first, n;
};

/* share NULL: a single tenant. */
int dt_sched_init(struct dt_sched *s, struct dt_kvpool *pool, int max_seqs, int max_tokens,
		  const struct dt_share *share, int ntenants, struct dt_err *err);
void dt_sched_release(struct dt_sched *s);

/* Puts seq into its tenant's waiting list. -E2BIG: it can never fit. */
int dt_sched_submit(struct dt_sched *s, struct dt_seq *seq, struct dt_err *err);

/*
 * Plans one step: fills items [max_seqs], grouped by replica in ascending order, and s->copy. Returns the
 * number of items, or -ENOMEM; 0 only when no unheld sequence runs or waits, or when steps are in flight, or
 * when none can run beside the held ones. A step needs
 * the logits of at most max_seqs rows; with depth > 1, of dt_sched_step_seqs rows a replica.
 */
int dt_sched_step(struct dt_sched *s, struct dt_sched_item *items);

/* Most sequences, and most rows with logits, of a replica in one step. */
static inline int dt_sched_step_seqs(const struct dt_sched *s)
{
	return (s->max_seqs / s->replicas + s->depth - 1) / s->depth;
}

/*
 * The owner calls it after raising seq->computed by n: charges the tenant, publishes full blocks, and
 * releases blocks behind the window.
 */
void dt_sched_computed(struct dt_sched *s, struct dt_seq *seq, int n);

/*
 * Called when the prompt of child's leader is computed: child shares its blocks and runs, without computing
 * anything; the caller copies what is kept by place. Its next token must come from the same logits. false:
 * there is no room; child waits like any other. Must not be called between a step's plan and its computation.
 */
bool dt_sched_fork(struct dt_sched *s, struct dt_seq *child);

/*
 * Removes seq from any list and releases its blocks. Must not be called between a step's plan and its
 * computation, nor while seq is in a step in flight, unless that step's results are discarded.
 */
void dt_sched_remove(struct dt_sched *s, struct dt_seq *seq);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
