/* The engine's parts, each owned by one thread or guarded by one lock. Private to serve/engine. */
#ifndef DT_SERVE_ENGINE_PRIV_H
#define DT_SERVE_ENGINE_PRIV_H

#include "base/quota.h"
#include "serve/engine/engine.h"
#include "serve/engine/kvhost.h"
#include "serve/engine/kvio.h"
#include "serve/engine/speculate.h"

TAILQ_HEAD(dt_req_list, dt_serve_req);

/* State shared with the threads that submit and cancel. Guarded by mu. */
struct dt_engine_gate {
	pthread_mutex_t mu;
	pthread_cond_t work; /* wakes the engine's thread: a call was submitted or cancelled */
	pthread_cond_t idle; /* for dt_engine_wait_idle, on CLOCK_MONOTONIC */
	struct dt_req_list inbox;
	int inflight, counted; /* requests; those of them that max_seqs + queue bounds */
	bool draining, stop;
	bool failed;
	struct dt_err why;	/* it has failed */
	double busy_since;	/* dt_now() when the step in progress began, 0: none */
	struct dt_quota *quota; /* [ntenants] */

	pthread_cond_t shown; /* the slots were filled; on CLOCK_MONOTONIC */
	bool looking;	      /* somebody waits for them */
	uint64_t seen;	      /* times they were filled */
	struct dt_slots slots;
};

/* A step that is planned, until it has given its tokens. Used by the engine's thread alone. */
struct dt_engine_buffers {
	struct dt_sched_item *items, *drafts;	 /* [max_seqs] */
	struct dt_infer_batch batch;		 /* points into the buffers below */
	int32_t *ids, *pos;			 /* [max_tokens] */
	int64_t *slot;				 /* [max_tokens] */
	int32_t *q_start, *kv_len, *want;	 /* [max_seqs + 1], [max_seqs], [max_seqs] */
	int32_t *table;				 /* [max_seqs, blocks of max_len] */
	int32_t *replica;			 /* [max_seqs] */
	float **pool_to;			 /* [max_seqs] */
	const struct dt_infer_adapter **adapter; /* [max_seqs] */
	int n;					 /* items */
	double began;
	bool decode; /* every item decodes */
	int guessed; /* tokens */
};

/* What the step that gives its tokens has computed. Used by the engine's thread alone. */
struct dt_engine_results {
	float *logits;		/* [max_seqs + 2, vocab], the last two scratch */
	struct dt_draw *draw;	/* [max_seqs]; their edits are in the sampler */
	struct dt_drawn *drawn; /* [max_seqs] */
	struct dt_logprob *top; /* [DT_PROMPT_LOGPROBS_MAX] */
};

/* Tokens a grammar allows, as a bit mask for the sampler. Used by the engine's thread alone. */
struct dt_engine_mask {
	struct dt_vocab_order order; /* made when the first request asks for a grammar */
	uint32_t *allow;	     /* [vocab / 32] */
};

/* tell.c: a thread that wakes the threads waiting for tokens. */
struct dt_teller {
	struct dt_call *
		*own; /* [cap]: calls that got tokens in this step; used by the engine's thread alone */
	int nown, cap;
	bool open;
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t cond;
	struct dt_call **given, **telling; /* [cap]: calls handed over, and calls being woken */
	int ngiven;
	bool stop;
};

/* beyond.c: the prefix cache beyond the pool; all absent without one. Used by the engine's thread alone. */
struct dt_engine_beyond {
	struct dt_kvhost *host;
	struct dt_kvio *io;
	struct dt_kvpeers *peers;
	bool *written;	       /* [blocks] block b has gone to the folder since it was published */
	bool broken;	       /* blocks cannot be read out of the cache any more */
	bool behind;	       /* some have not, for lack of room on the way */
	int held;	       /* requests that wait for their blocks */
	double token_s;	       /* seconds a token of a prompt takes to compute, 0: not known */
	int64_t queries, hits; /* tokens */
};

struct dt_engine {
	struct dt_engine_params p; /* constant */
	struct dt_metrics metrics; /* has a lock of its own */
	pthread_t thread;
	double told; /* dt_now() when other ranks last heard of this one; the engine's thread alone */
	struct dt_engine_gate gate;

	/* used by the engine's thread alone */
	struct dt_kvpool *pool; /* [p.replicas]; what is beyond it is beyond the first, which is alone then */
	struct dt_sched sched;
	struct dt_req_list live;	  /* taken from the inbox, in order of arrival */
	int64_t taken, steps;		  /* so far */
	int preparing;			  /* requests that wait until other ranks have their adapter */
	int depth;			  /* steps that may be under way */
	struct dt_engine_buffers *flight; /* [depth] a ring: nflight are, from the oldest on */
	int oldest, nflight;
	struct dt_engine_buffers *step; /* of flight: which is planned, or gives its tokens */
	struct dt_engine_results out;
	double ended; /* dt_now() when a step last had given its tokens */
	struct dt_engine_mask mask;
	struct dt_serve_sampler sampler;
	struct dt_spec spec;
	struct dt_teller teller;
	struct dt_engine_beyond beyond;
};

/* engine.c: ends a request. The call may be freed by this. */
void dt_engine_retire(struct dt_engine *e, struct dt_serve_req *r, enum dt_finish why);
void dt_engine_retire_error(struct dt_engine *e, struct dt_serve_req *r, const struct dt_err *err);
/* engine.c: the scheduler has it from here on. */
void dt_engine_enter(struct dt_engine *e, struct dt_serve_req *r);
/* engine.c: every request in flight ends with this error, and none is taken any more. */
void dt_engine_fail(struct dt_engine *e, const struct dt_err *err);

/*
 * beyond.c. hold: whether r waits for blocks to be read, and bring has it enter then; retire: it ends before.
 * write: what is published and not in the folder yet goes there, as much as there is room for on the way, or
 * all; due: that can go on.
 * measured: a step of so many tokens was mostly prompts.
 */
int dt_engine_beyond_open(struct dt_engine *e, struct dt_err *err); /* after the pool and the buffers */
void dt_engine_beyond_close(struct dt_engine *e);
void dt_engine_beyond_measure(struct dt_engine *e);
void dt_engine_beyond_measured(struct dt_engine *e, int tokens, double seconds);
bool dt_engine_beyond_hold(struct dt_engine *e, struct dt_serve_req *r);
void dt_engine_beyond_bring(struct dt_engine *e);
void dt_engine_beyond_retire(struct dt_engine *e, struct dt_serve_req *r);
void dt_engine_beyond_write(struct dt_engine *e, bool all);
bool dt_engine_beyond_due(struct dt_engine *e);

/* slots.c: fills the slots where somebody asks for them. Gate locked, not within a step. */
void dt_engine_show(struct dt_engine *e);

/* submit.c */
int dt_engine_gate_init(struct dt_engine *e); /* -ENOMEM */
void dt_engine_gate_release(struct dt_engine *e);

/* buffers.c */
int dt_engine_buffers_init(struct dt_engine *e); /* -ENOMEM */
void dt_engine_buffers_release(struct dt_engine *e);

int dt_teller_open(struct dt_teller *t, int cap); /* *t is zeroed. -ENOMEM, -EAGAIN */
void dt_teller_close(struct dt_teller *t);	  /* wakes all calls handed over first */
/* Remembers c; dt_teller_go wakes the waiters of all remembered calls at the end of the step. */
void dt_teller_add(struct dt_teller *t, struct dt_call *c);
void dt_teller_go(struct dt_teller *t);

/* draft.c: runs the draft model on the planned items; it guesses for items with a draft. */
int dt_engine_draft(struct dt_engine *e, int n);

/* draws.c: lets the model draw the tokens of the batch where every wanted row allows it; 0 or -ENOMEM. */
int dt_engine_plan_draws(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft);

/* take.c: gives each request the tokens that the step produced; returns their number. */
int dt_engine_take(struct dt_engine *e, const struct dt_sched_item *items, int n);

/*
 * step.c: dt_engine_build fills the batch. dt_engine_step begins a step where one more may be under way, and
 * where that are all there can be the oldest hands out its tokens. settle: all of them do.
 */
void dt_engine_build(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft);
/* Rows of an item whose logits are wanted: the prompt's when it is scored, the last known token's and those
 * of guessed tokens; of the model that guesses only guesses are. */
bool dt_engine_wanted(const struct dt_sched_item *it, int row, bool draft);
void dt_engine_step(struct dt_engine *e);
void dt_engine_settle(struct dt_engine *e);

static inline struct dt_serve_req *dt_serve_req_of(struct dt_seq *seq)
{
	return (struct dt_serve_req *)((char *)seq - offsetof(struct dt_serve_req, seq));
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
