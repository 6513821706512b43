/*
 * The engine: one thread that repeats steps. A step takes new requests from the inbox, drops cancelled and
 * late ones, lets the scheduler plan, runs one forward pass, and gives every sequence whose known tokens are
 * all computed its next token. Other threads only submit, cancel and read (serve/engine/request.h).
 *
 * At most max_seqs + queue requests are in flight; further ones are refused (-EAGAIN). An embedding call
 * counts as at most max_seqs requests, because its requests draw no tokens and hold KV cache only while they
 * run.
 *
 * A tenant may have a quota of tokens (-EDQUOT). It is a token bucket that fills at the quota's rate and
 * holds one minute of it. Submission takes the prompt tokens and max_tokens from it; unused tokens are
 * returned.
 */
#ifndef DT_SERVE_ENGINE_H
#define DT_SERVE_ENGINE_H

#include "model/vision.h"
#include "nn/infer.h"
#include "serve/engine/kvdisk.h"
#include "serve/engine/kvpeers.h"
#include "serve/engine/metrics.h"
#include "serve/engine/request.h"
#include "serve/sched/trace.h"

/* The model: dt_infer_forward with its first argument, or a stub in tests. */
struct dt_engine_model {
	void *m;
	int (*forward)(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
	/*
	 * depth > 1 (pipeline stages): number of steps, of different sequences, that may be in flight. begin
	 * starts a step. take waits for the oldest one, is given the same batch, and draws tokens where the
	 * batch says so. Not supported with speculation or a trace. 0: one step at a time, by forward.
	 */
	int depth;
	int (*begin)(void *m, const struct dt_infer_batch *b, struct dt_err *err);
	int (*take)(void *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
	/*
	 * Copies the rows of a cache block; returns 0 or a negative errno. NULL: every choice computes the
	 * prompt itself.
	 */
	int (*copy_block)(void *m, int replica, int32_t from, int32_t to);
	/* Copies the states of one place (serve/sched/scheduler.h) to another. NULL: sequences have none. */
	int (*copy_state)(void *m, int32_t from, int32_t to);
	/*
	 * Copies the contents of a cache block, block_bytes, out of the cache or into it; returns 0 or a
	 * negative errno. Required for kv_host and kv_disk.
	 */
	int (*read_block)(void *m, int32_t block, void *to);
	int (*write_block)(void *m, int32_t block, const void *from);
	size_t block_bytes;
	/*
	 * With several ranks: called after every beat_s seconds without a step. If it, a step or copy_block
	 * fails, the engine fails. NULL: one process.
	 */
	int (*beat)(void *m, struct dt_err *err);
	double beat_s;
	/*
	 * Spends a few milliseconds on sending other ranks what they need before an adapter can be in a
	 * batch. Returns 1 when they have everything, 0 when there is more to send. Requests for the adapter
	 * wait until then; steps of other requests go on. NULL: nothing is needed.
	 */
	int (*ready)(void *m, const struct dt_infer_adapter *a, struct dt_err *err);
	/*
	 * Totals of reads of weights that do not fit in memory, since the start. NULL: all weights are in
	 * memory.
	 */
	void (*weights_read)(void *m, struct dt_weights_read *ret);
	/*
	 * Models that read images: makes rows of the pixels of a tile, tile_rows of them and tile_bytes in
	 * all. NULL: there are no images.
	 */
	int (*see)(void *tower, const uint8_t *pixels, void *rows, struct dt_err *err);
	void *tower;
	int tile_rows;
	size_t tile_bytes;
	bool draws; /* forward can draw tokens itself (batch.draw) */
	int vocab, hidden;
	/*
	 * Encoders: requests only embed, and steps have whole sequences. seps: tokens between two texts that
	 * are read together (BERT 1, RoBERTa 2); types: whether the second is of another token type. labels:
	 * classes of a text, of which `classes` makes logits from its pooled state; 0: none. label: their
	 * names, NULL: not known; label_loss: enum dt_class_loss that they were trained with.
	 */
	bool encoder, types;
	int seps, labels, label_loss;
	const char *const *label; /* [labels] */
	int (*classes)(const void *m, const float *pooled, float *ret);
	const void *judge; /* the first argument of classes */
	int32_t eos[2];	   /* end-of-text ids */
	int neos;
};

struct dt_tenant {
	char name[64];
	struct dt_share share;
	double quota; /* tokens a minute, 0: no limit */
};

struct dt_engine_params {
	struct dt_engine_model model;
	const struct dt_tokenizer *tok; /* shared; outlives the engine */
	int max_seqs, max_tokens;	/* max sequences and tokens of one step */
	int replicas;			/* number of data-parallel replicas; divides max_seqs and
					 * max_tokens; 0: one. blocks is per replica */
	struct dt_dev *dev;		/* whose threads compute log-probabilities; outlives the engine;
					 * NULL: one thread does */
	int max_len;			/* max tokens of a sequence, prompt and output */
	int blocks, block_size;
	int window; /* > 0: no layer of any model here attends to more keys than this */
	int queue;  /* max requests that may wait */
	bool share_prefixes;
	int draft; /* max draft tokens a step, 0: no speculation; from drafter, or from prompt lookup */
	/*
	 * A draft model with the same vocabulary and the same number and size of cache blocks; m NULL: none.
	 */
	struct dt_engine_model drafter;
	/*
	 * Not 0: the drafter is the model's module for a further token (dt_config_module), which reads the
	 * model's final hidden states of so many bytes a row. Supported with one replica and depth 1.
	 */
	size_t follows;
	struct dt_adapters *adapters;	/* adapters that requests may name; outlives the engine; NULL: none */
	const struct dt_tenant *tenant; /* [ntenants], outlives the engine; none: one without limits */
	int ntenants;
	struct dt_schedtrace *trace; /* records the scheduler's decisions; outlives the engine; NULL: none */
	/*
	 * Lower levels of the prefix cache. kv_host: bytes of host memory, 0: none. kv_disk: a folder,
	 * outlives the engine, NULL: none. Neither is supported with a trace. kv_always: load blocks even
	 * where computing them would be faster.
	 */
	uint64_t kv_host;
	struct dt_kvdisk *kv_disk;
	bool kv_always;
	/*
	 * Servers that compute prompts for this one (disaggregated prefill); NULL: none. Not supported with a
	 * trace. Its strings outlive the engine.
	 */
	const struct dt_kvpeers_params *peers;
	uint64_t cache_name; /* identifies the contents of blocks (dt_infer_cache_name); 0: unknown */
	const struct dt_vision
		*vision; /* how images become tiles; outlives the engine; NULL: the model reads none */
	int images;	 /* most of a request */
	int32_t image_token;
	double stuck_after;	      /* seconds of one step after which the engine counts as stuck */
	bool held;		      /* the thread computes nothing before dt_engine_begin */
	struct dt_grammars *grammars; /* of requests before; set by dt_engine_open */
};

struct dt_engine;

enum dt_engine_state { DT_ENGINE_READY, DT_ENGINE_DRAINING, DT_ENGINE_STUCK, DT_ENGINE_FAILED };

int dt_engine_open(struct dt_engine **ret, const struct dt_engine_params *p, struct dt_err *err);
/*
 * Lets an engine begin that was opened with `held`. Two threads of a rank must not send messages at once:
 * with several ranks the caller may do so until then, and the engine's thread from then on.
 */
void dt_engine_begin(struct dt_engine *e);
/* Cancels all requests in flight and ends the thread. */
void dt_engine_close(struct dt_engine *e);

const struct dt_engine_params *dt_engine_params(const struct dt_engine *e);
struct dt_metrics *dt_engine_metrics(struct dt_engine *e);

/* Of int context, size_t prompt, int output. Clients know the error by these words of OpenAI. */
#define DT_TOO_LONG                                                                                          \
	"this model's maximum context length is %d tokens, but the request has %zu in the prompt and %d to " \
	"generate"

/*
 * Submits all requests of the call, or none. -EAGAIN: the queue is full; -E2BIG: a request can never fit;
 * -ESHUTDOWN: the engine drains; -EDQUOT: the quota of the tenant or adapter is used up (c->retry_after:
 * seconds to wait). The requests must be complete (dt_serve_req_set_prompt, stop ids, ...). A call with an
 * adapter waits until the adapter is in memory; errors of dt_adapters_hold are returned.
 */
int dt_engine_submit(struct dt_engine *e, struct dt_call *c, struct dt_err *err);

/* Cancels the call and wakes the engine. */
void dt_engine_cancel(struct dt_engine *e, struct dt_call *c);

/* Submissions fail with -ESHUTDOWN from now on. */
void dt_engine_drain(struct dt_engine *e);
/* Waits at most `seconds` until no request is in flight; returns the number still in flight. */
int dt_engine_wait_idle(struct dt_engine *e, double seconds);

enum dt_engine_state dt_engine_state(struct dt_engine *e);
/*
 * The reason of a permanent failure: every request has ended with this error, and new ones are refused with
 * it.
 */
void dt_engine_failure(struct dt_engine *e, struct dt_err *ret);

/* ---- slots.c: requests in flight ---- */

#define DT_SLOTS_MAX 256

struct dt_slot {	/* one request */
	int64_t number; /* in order of arrival, from 1 */
	int tenant;
	bool running;	 /* false: waiting */
	int prompt, out; /* tokens */
	int cached;	 /* prompt tokens found in the prefix cache */
	int computed;	 /* tokens in the KV cache */
	int max_tokens;	 /* max output tokens */
	int blocks;	 /* cache blocks held */
	int priority;
	double age, first; /* age: seconds since arrival; first: TTFT in seconds, -1: no token yet */
	double rate;	   /* tokens a second since the first token */
};

struct dt_slots {
	struct dt_slot slot[DT_SLOTS_MAX];
	int n; /* entries of slot; may be fewer than running + waiting */
	int running, waiting;
	int blocks, free_blocks;
	int step_tokens;					 /* tokens of the last step */
	int64_t steps, preemptions, prefix_queries, prefix_hits; /* the last two count tokens */
	double stepping; /* seconds since the current step began, 0: none */
};

/* Marks of the prompt prefixes that are in the cache; any thread may read them. NULL: there are none. */
struct dt_kvmarks *dt_engine_marks(struct dt_engine *e);

/*
 * Asks the engine's thread, which answers between two steps. false: there was no answer within `seconds`;
 * *ret is then the previous answer, with an up-to-date `stepping`.
 */
bool dt_engine_slots(struct dt_engine *e, double seconds, struct dt_slots *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
