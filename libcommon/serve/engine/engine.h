/*
 * The engine: one thread that, step after step, takes in what was submitted, drops what was cancelled or is
 * late, lets the scheduler plan, runs the model once, and hands every sequence that caught up its next token.
 * Other threads only submit, cancel and read (serve/engine/request.h).
 *
 * Requests are bounded: at most max_seqs + queue are in flight, the next one is refused (-EAGAIN). Of a call
 * for embeddings max_seqs count at most, and the rest wait behind them: they draw nothing, and hold a cache
 * only while they run. So are the
 * tokens of a tenant with a quota (-EDQUOT): prompt and output to come are taken from its bucket, which fills
 * at the quota's rate and holds a minute of it; what was not used goes back.
 */
#ifndef DT_SERVE_ENGINE_H
#define DT_SERVE_ENGINE_H

#include "nn/infer.h"
#include "serve/engine/kvdisk.h"
#include "serve/engine/kvpeers.h"
#include "serve/engine/metrics.h"
#include "serve/engine/request.h"
#include "serve/sched/trace.h"

/* The model: dt_infer_forward with its first argument, or a stand-in in tests. */
struct dt_engine_model {
	void *m;
	int (*forward)(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
	/*
	 * depth > 1, of a model over stages: so many steps, of different sequences, may be under way. begin
	 * starts one, take waits for the oldest, of the same batch, and draws where that says so. Not with
	 * guesses or a trace. 0: one, by forward.
	 */
	int depth;
	int (*begin)(void *m, const struct dt_infer_batch *b, struct dt_err *err);
	int (*take)(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
	/* Copies the rows of a cache block; 0 or a negative errno. NULL: each choice computes its prompt. */
	int (*copy_block)(void *m, int replica, int32_t from, int32_t to);
	/*
	 * Copies what a cache block has, block_bytes, out of it or into it; 0 or a negative errno. Needed by
	 * kv_host and kv_disk.
	 */
	int (*read_block)(void *m, int32_t block, void *to);
	int (*write_block)(void *m, int32_t block, const void *from);
	size_t block_bytes;
	/*
	 * Of a model over several ranks: called after every beat_s seconds without a step. If it, a step or
	 * copy_block fails, the engine fails. NULL: one process.
	 */
	int (*beat)(void *m, struct dt_err *err);
	double beat_s;
	/*
	 * Some milliseconds of what other ranks need before an adapter can be in a batch: 1 when it can, 0:
	 * there is more. Its requests wait until then while steps of others go on. NULL: nothing is needed.
	 */
	int (*ready)(void *m, const struct dt_infer_adapter *a, struct dt_err *err);
	/* What was read of weights that memory does not hold, since the start. NULL: it holds all. */
	void (*weights_read)(void *m, struct dt_weights_read *ret);
	bool draws; /* forward can draw tokens itself (batch.draw) */
	int vocab, hidden;
	int32_t eos[2]; /* ids that end a text */
	int neos;
};

struct dt_tenant {
	char name[64];
	struct dt_share share;
	double quota; /* tokens a minute, 0: no limit */
};

struct dt_engine_params {
	struct dt_engine_model model;
	const struct dt_tokenizer *tok; /* shared, outlives the engine */
	int max_seqs, max_tokens;	/* of one step */
	int replicas;			/* of the model, which divide these; 0: one. blocks are of each */
	int max_len;			/* tokens of a sequence, prompt and output */
	int blocks, block_size;
	int window; /* > 0: no layer of any model here sees more keys than this */
	int queue;  /* requests that may wait */
	bool share_prefixes;
	int draft; /* tokens guessed a step, 0: none; by drafter, or from the text so far */
	/* A cheaper model with the same vocabulary and a cache of equal blocks; m NULL: none. */
	struct dt_engine_model drafter;
	struct dt_adapters *adapters;	/* that requests may ask for, outlive the engine; NULL: none */
	const struct dt_tenant *tenant; /* [ntenants], outlive the engine; none: one without limits */
	int ntenants;
	struct dt_schedtrace *trace; /* records the scheduler's decisions, outlives the engine; NULL: none */
	/* Where the prefix cache goes on: bytes of the host's memory, 0: none; a folder, which outlives the
	 * engine, NULL: none. Neither goes with a trace. kv_always: blocks are read also where it would be
	 * faster to compute them. */
	uint64_t kv_host;
	struct dt_kvdisk *kv_disk;
	bool kv_always;
	/* Servers that compute prompts for this one; NULL: none. Not with a trace either. Strings in it
	 * outlive the engine. */
	const struct dt_kvpeers_params *peers;
	uint64_t cache_name; /* what equal blocks need (dt_infer_cache_name); 0: not known */
	double stuck_after;  /* seconds of one step after which the engine counts as stuck */
};

struct dt_engine;

enum dt_engine_state { DT_ENGINE_READY, DT_ENGINE_DRAINING, DT_ENGINE_STUCK, DT_ENGINE_FAILED };

int dt_engine_open(struct dt_engine **ret, const struct dt_engine_params *p, struct dt_err *err);
/* Cancels what is in flight and ends the thread. */
void dt_engine_close(struct dt_engine *e);

const struct dt_engine_params *dt_engine_params(const struct dt_engine *e);
struct dt_metrics *dt_engine_metrics(struct dt_engine *e);

/*
 * Submits every request of the call or none: -EAGAIN the queue is full, -E2BIG one can never fit, -ESHUTDOWN
 * the engine drains, -EDQUOT the quota of the tenant or of the adapter is used up (c->retry_after says for
 * how long). The requests must be complete (dt_serve_req_set_prompt, stop ids, ...). A call with an adapter
 * waits until that is in memory (dt_adapters_hold, which may fail).
 */
int dt_engine_submit(struct dt_engine *e, struct dt_call *c, struct dt_err *err);

/* Cancels the call and wakes the engine. */
void dt_engine_cancel(struct dt_engine *e, struct dt_call *c);

/* Submissions fail with -ESHUTDOWN from now on. */
void dt_engine_drain(struct dt_engine *e);
/* Waits at most `seconds` until no request is in flight; returns the number that still are. */
int dt_engine_wait_idle(struct dt_engine *e, double seconds);

enum dt_engine_state dt_engine_state(struct dt_engine *e);
/* Why it has failed, for good: every request has ended with this error, and new ones are refused with it. */
void dt_engine_failure(struct dt_engine *e, struct dt_err *ret);

/* ---- slots.c: what is in flight ---- */

#define DT_SLOTS_MAX 256

struct dt_slot {	/* one request */
	int64_t number; /* in order of arrival, from 1 */
	int tenant;
	bool running;	 /* or it waits */
	int prompt, out; /* tokens */
	int cached;	 /* tokens of the prompt that were found in the cache */
	int computed;	 /* tokens in the cache */
	int max_tokens;	 /* of the output */
	int blocks;	 /* it holds */
	int priority;
	double age, first; /* seconds since it came, and from then to its first token; -1: none yet */
	double rate;	   /* tokens a second since the first */
};

struct dt_slots {
	struct dt_slot slot[DT_SLOTS_MAX];
	int n; /* of running + waiting */
	int running, waiting;
	int blocks, free_blocks;
	int step_tokens;					 /* of the last step */
	int64_t steps, preemptions, prefix_queries, prefix_hits; /* the last two in tokens */
	double stepping; /* seconds since the step in progress began */
};

/* Which beginnings of prompts are in its cache; any thread may read it. NULL: it does not know. */
struct dt_kvmarks *dt_engine_marks(struct dt_engine *e);

/*
 * Asks the engine's thread, which answers between two steps. false: it has not within so many seconds; *ret
 * is what it last answered, with stepping of now.
 */
bool dt_engine_slots(struct dt_engine *e, double seconds, struct dt_slots *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
