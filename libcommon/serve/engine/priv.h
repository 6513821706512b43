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
	pthread_cond_t
		work; /* wakes the engine's thread: submitted, cancelled, blocks arrived, a job ended */
	pthread_cond_t idle; /* signals dt_engine_wait_idle; CLOCK_MONOTONIC */
	struct dt_req_list inbox;
	int inflight, counted; /* requests in flight, and how many of them count against max_seqs + queue */
	bool begun;	       /* the thread may compute */
	bool draining, stop;
	bool constrained; /* a job of constrain_jobs.c ended */
	bool failed;
	struct dt_err why;	/* why the engine failed */
	double busy_since;	/* dt_now() when the step in progress began, 0: none */
	struct dt_quota *quota; /* [ntenants] */

	pthread_cond_t shown; /* the slots were filled in; CLOCK_MONOTONIC */
	bool looking;	      /* a thread waits for the slots */
	uint64_t seen;	      /* how often they were filled in */
	struct dt_slots slots;
};

/* A step from its planning until its tokens are handed out. Used by the engine's thread alone. */
struct dt_engine_buffers {
	struct dt_sched_item *items, *drafts;	 /* [max_seqs] */
	struct dt_infer_seen *seen;		 /* [max_tokens] of a model that reads images; else NULL */
	struct dt_infer_batch batch;		 /* points into the buffers below */
	int32_t *ids, *pos;			 /* [max_tokens] */
	int32_t *types;				 /* [max_tokens] of an encoder; else NULL */
	int64_t *slot;				 /* [max_tokens] */
	int32_t *q_start, *kv_len, *want;	 /* [max_seqs + 1], [max_seqs], [max_seqs] */
	int32_t *table;				 /* [max_seqs, blocks of max_len] */
	int32_t *state;				 /* [max_seqs] places */
	int32_t *replica;			 /* [max_seqs] */
	float **pool_to;			 /* [max_seqs] */
	const struct dt_infer_adapter **adapter; /* [max_seqs] */
	int n;					 /* items */
	double began;
	bool decode; /* every item is a decode */
	int guessed; /* draft tokens */
};

/* rows.c: log-probabilities of a row of logits that a request asks for. */
struct dt_engine_row {
	int32_t target; /* the next token of a scored prompt; -1: it is sampled */
	int ntop;
	double temperature, log_sum;
	struct dt_logprob chosen; /* of target */
};

/* Results of the step whose tokens are handed out. Used by the engine's thread alone. */
struct dt_engine_results {
	float *logits;		   /* [max_seqs + 2, vocab]; the last two rows are scratch */
	struct dt_draw *draw;	   /* [max_seqs]; their edits are in e->sampler */
	struct dt_drawn *drawn;	   /* [max_seqs] */
	struct dt_engine_row *row; /* [max_seqs] */
	int *todo;		   /* [max_seqs] rows that are computed */
	struct dt_logprob *top;	   /* [max_seqs, DT_PROMPT_LOGPROBS_MAX] */
	/* [max_tokens, p.follows] final hidden states of a pass, and those a module reads; NULL: none does */
	char *hidden, *given;
};

/* The vocabulary of grammars, constant once it is open, and a mask for the sampler. */
struct dt_engine_mask {
	struct dt_vocab_order order; /* built when the first request has a grammar */
	uint32_t *space;	     /* [vocab / 32] tokens of white space alone */
	uint32_t *allow;	     /* [vocab / 32] of the next draw; used by the engine's thread alone */
	atomic_bool open;
};

enum { DT_CONSTRAIN_THREADS = 4 };

/* constrain_jobs.c: threads that compute masks. Guarded by mu, but for order_mu. */
struct dt_constrain_jobs {
	pthread_mutex_t mu;
	pthread_cond_t work;
	TAILQ_HEAD(, dt_serve_req) queue;
	pthread_t thread[DT_CONSTRAIN_THREADS];		   /* started when they are needed */
	const struct dt_grammar *at[DT_CONSTRAIN_THREADS]; /* that a thread works on; NULL: none */
	int nqueued, nthreads, started, idle;
	bool stop;
	pthread_mutex_t order_mu; /* held while e->mask is opened */
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

/*
 * beyond.c: the prefix cache outside the pool (host memory, disk, other servers). All members are NULL if
 * there is none. Used by the engine's thread alone.
 */
struct dt_engine_beyond {
	struct dt_kvhost *host;
	struct dt_kvio *io;
	struct dt_kvpeers *peers;
	bool *written;	       /* [blocks] block b was written to the folder since it was published */
	bool broken;	       /* blocks can no longer be read out of the cache */
	bool behind;	       /* some published blocks wait for a free write buffer */
	int held;	       /* requests that wait for their blocks */
	double token_s;	       /* seconds to compute one prompt token, moving average; 0: unknown */
	int64_t queries, hits; /* tokens */
};

struct dt_engine {
	struct dt_engine_params p; /* constant */
	struct dt_metrics metrics; /* has a lock of its own */
	pthread_t thread;
	double told; /* dt_now() when the other ranks last got a message; used by the engine's thread alone */
	struct dt_engine_gate gate;

	/* used by the engine's thread alone */
	struct dt_kvpool *pool; /* [p.replicas]; with a cache beyond the pool there is only one */
	struct dt_sched sched;
	struct dt_req_list live;	  /* requests taken from the inbox, in order of arrival */
	int64_t taken, steps;		  /* totals of requests taken and of steps */
	int preparing;			  /* requests that wait until the other ranks have their adapter */
	int depth;			  /* max steps in flight */
	struct dt_engine_buffers *flight; /* [depth] ring buffer; nflight entries from oldest on */
	int oldest, nflight;
	struct dt_engine_buffers *step; /* entry of flight that is being planned or finished */
	struct dt_engine_results out;
	double ended; /* dt_now() when the last step had handed out its tokens */
	struct dt_engine_mask mask;
	struct dt_constrain_jobs jobs;
	int constrained; /* requests with a job whose end was not seen yet */
	bool stalled;	 /* no step could be planned before one of these jobs ends */
	struct dt_serve_sampler sampler;
	struct dt_spec spec;
	struct dt_teller teller;
	struct dt_engine_beyond beyond;
};

/* engine.c: ends a request. This may free the call. */
void dt_engine_retire(struct dt_engine *e, struct dt_serve_req *r, enum dt_finish why);
void dt_engine_retire_error(struct dt_engine *e, struct dt_serve_req *r, const struct dt_err *err);
/* engine.c: passes r to the scheduler. */
void dt_engine_enter(struct dt_engine *e, struct dt_serve_req *r);
/* engine.c: ends every request in flight with this error and refuses new ones. */
void dt_engine_fail(struct dt_engine *e, const struct dt_err *err);

/*
 * beyond.c. hold: true if r must wait for blocks to be loaded; bring enters r into the scheduler when they
 * are there; retire: r ends before that. write: writes published blocks that are not in the folder yet, as
 * many as there are free buffers, or all; due: write can continue. measure: times the computation of a block
 * at start. measured: a step of `tokens` tokens, mostly of prompts, took `seconds`.
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

/* slots.c: fills in the slots if a thread waits for them. Call with the gate locked, not within a step. */
void dt_engine_show(struct dt_engine *e);

/* submit.c */
int dt_engine_gate_init(struct dt_engine *e); /* -ENOMEM */
void dt_engine_gate_release(struct dt_engine *e);
/* Waits for dt_engine_begin. Returns false if the engine is closed instead. */
bool dt_engine_gate_wait(struct dt_engine_gate *g);

/* buffers.c */
int dt_engine_buffers_init(struct dt_engine *e); /* -ENOMEM */
void dt_engine_buffers_release(struct dt_engine *e);

int dt_teller_open(struct dt_teller *t, int cap); /* *t is zeroed. -ENOMEM, -EAGAIN */
void dt_teller_close(struct dt_teller *t);	  /* first wakes the waiters of all calls handed over */
/* Remembers c; dt_teller_go wakes the waiters of all remembered calls at the end of the step. */
void dt_teller_add(struct dt_teller *t, struct dt_call *c);
void dt_teller_go(struct dt_teller *t);

/*
 * draft.c: runs the draft model on the planned items and sets the draft tokens of items that have some; 0 or
 * a negative errno.
 */
int dt_engine_draft(struct dt_engine *e, int n);
/*
 * draft.c: runs the module for a further token on the rows of the step whose tokens were handed out, and sets
 * the draft tokens of the next step. The calls of the items are still there, also of those that ended.
 */
void dt_engine_follow(struct dt_engine *e);

/*
 * see.c: images. key_images: checks where the tiles of r's call are, and sets r->keys. see: limits items to
 * the first tile each that has no rows yet, where other requests run, and computes the rows that they need.
 * put: the rows of an item, which begins at batch row `row`.
 */
int dt_engine_key_images(const struct dt_engine *e, struct dt_serve_req *r, struct dt_err *err);
int dt_engine_see(struct dt_engine *e, struct dt_sched_item *items, int n, struct dt_err *err);
void dt_engine_put_rows(struct dt_engine *e, const struct dt_sched_item *it, int row);

/* draws.c: lets the model draw the tokens of the batch where every wanted row allows it; 0 or -ENOMEM. */
int dt_engine_plan_draws(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft);

/*
 * constrain.c. begin: r was submitted; its first mask is needed. mask: the tokens that r's grammar allows,
 * and end of text if it may end; r must be ready. tell: advances r's grammar by a token; true: nothing may
 * follow. What is not remembered becomes a job: dt_constrain_work does it, in a thread of constrain_jobs.c.
 */
void dt_constrain_begin(struct dt_engine *e, struct dt_serve_req *r);
const uint32_t *dt_constrain_mask(struct dt_engine *e, const struct dt_serve_req *r);
bool dt_constrain_tell(struct dt_engine *e, struct dt_serve_req *r, int32_t id);
void dt_constrain_work(struct dt_engine *e, struct dt_serve_req *r);
void dt_engine_mask_release(struct dt_engine_mask *k);

/*
 * constrain_jobs.c. give: starts the job of r. ready: whether r's next token can be drawn; waits a short time
 * if r is the only request. hold: discards r's last row, and leaves r out of steps until its job is done.
 * ends: ends r if nothing may follow or its mask cannot be computed; true: it has ended. collect: lets the
 * requests whose jobs are done run again. retire: r ends.
 */
void dt_constrain_jobs_init(struct dt_engine *e);
void dt_constrain_jobs_release(struct dt_engine *e); /* joins the threads; after the last request has ended */
void dt_constrain_give(struct dt_engine *e, struct dt_serve_req *r);
bool dt_constrain_ready(struct dt_engine *e, struct dt_serve_req *r);
void dt_constrain_hold(struct dt_serve_req *r);
bool dt_constrain_ends(struct dt_engine *e, struct dt_serve_req *r);
void dt_constrain_collect(struct dt_engine *e);
void dt_constrain_retire(struct dt_engine *e, struct dt_serve_req *r);

/* rows.c: computes what the items' requests ask for of their rows of logits, with all threads. */
void dt_engine_score_rows(struct dt_engine *e, const struct dt_sched_item *items, int n);
static inline struct dt_logprob *dt_engine_row_top(const struct dt_engine *e, int row)
{
	return e->out.top + (size_t)row * DT_PROMPT_LOGPROBS_MAX;
}

/* take.c: hands each request its tokens of the step; returns the number of tokens. */
int dt_engine_take(struct dt_engine *e, const struct dt_sched_item *items, int n);

/*
 * step.c: dt_engine_build fills the batch. dt_engine_step begins a step if one more may be in flight; if the
 * limit is reached or no step could begin, it finishes the oldest one. dt_engine_settle finishes all.
 */
void dt_engine_build(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft);
/*
 * Whether the logits of a row of an item are needed: all rows of a scored prompt, the row of the last known
 * token, and those of draft tokens; for the draft model, only rows that produce draft tokens.
 */
bool dt_engine_wanted(const struct dt_sched_item *it, int row, bool draft);
void dt_engine_step(struct dt_engine *e);
void dt_engine_settle(struct dt_engine *e);

static inline struct dt_serve_req *dt_serve_req_of(struct dt_seq *seq)
{
	return (struct dt_serve_req *)((char *)seq - offsetof(struct dt_serve_req, seq));
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
