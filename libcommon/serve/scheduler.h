/*
 * Continuous batching without phases, after vLLM's v1 scheduler: a sequence has known tokens (prompt and
 * generated) and computed ones (their keys and values are in the cache). Each step moves computed toward
 * known under one budget of tokens, running sequences first and then waiting ones, in order of arrival.
 * A chunked prefill is a sequence that needs several steps to catch up; decode is one that is one behind.
 *
 * - A sequence gets the blocks of all its known tokens when it is admitted, so a prefill never preempts.
 * - Every running sequence moves by at least one token a step: a long prefill cannot stall a decode.
 * - When a decode finds no block, the running sequence that arrived last gives its blocks back and will be
 *   computed again. Every running sequence arrived before every waiting one, at all times.
 * - A sequence whose largest size does not fit the pool is refused when it is submitted, so the oldest one
 *   can always run to its end.
 *
 * Pure bookkeeping: no clock, no thread, no model.
 */
#ifndef DT_SERVE_SCHEDULER_H
#define DT_SERVE_SCHEDULER_H

#include "base/err.h"
#include "serve/kvpool.h"

#include <stdbool.h>

enum dt_seq_state { DT_SEQ_IDLE, DT_SEQ_WAITING, DT_SEQ_RUNNING };

struct dt_seq {	       /* zero-initialise; embedded in a request */
	int known;     /* tokens that exist; the owner raises it when one is generated */
	int computed;  /* tokens in the cache; the owner raises it when a step has run */
	int max_rows;  /* cache rows it can ever need */
	int score_end; /* the logits of the rows before this one are wanted too (0: only the last known row's)
			*/
	struct dt_block_table blocks;
	enum dt_seq_state state;
	struct dt_seq *prev, *next;
};

struct dt_seq_list {
	struct dt_seq *head, *tail;
	int n;
};

struct dt_sched {
	struct dt_kvpool *pool;
	int max_seqs, max_tokens; /* of one step; max_tokens >= max_seqs */
	struct dt_seq_list running, waiting;
	int64_t preemptions;
};

struct dt_sched_item { /* compute tokens [first, first + n) of seq */
	struct dt_seq *seq;
	int first, n;
};

int dt_sched_init(struct dt_sched *s, struct dt_kvpool *pool, int max_seqs, int max_tokens,
		  struct dt_err *err);

/* Puts seq at the end of the waiting list. -E2BIG: it can never fit. */
int dt_sched_submit(struct dt_sched *s, struct dt_seq *seq, struct dt_err *err);

/*
 * Plans one step into items [max_seqs]; returns their number, or -ENOMEM. No step wants the logits of more
 * than max_seqs rows. It is 0 only when nothing runs or waits.
 */
int dt_sched_step(struct dt_sched *s, struct dt_sched_item *items);

/* Takes seq out, wherever it is, and frees its blocks. Not between a step's plan and its computation. */
void dt_sched_remove(struct dt_sched *s, struct dt_seq *seq);

#endif
