/*
 * A call (one HTTP request, one line of a batch) consists of one or more requests: its prompts times its
 * choices (n). The caller fills struct dt_ask before submission; afterwards it is constant and read without a
 * lock. The engine's thread writes the results of a request, the caller's thread reads them, both under the
 * call's lock.
 *
 * Ownership: dt_call_new gives the caller one reference, dt_engine_submit takes one for the engine. Dropping
 * the last one frees everything, so a caller may leave at any time (cancel, drop) without waiting.
 */
#ifndef DT_SERVE_REQUEST_H
#define DT_SERVE_REQUEST_H

#include "grammar/grammar.h"
#include "serve/engine/adapters.h"
#include "serve/engine/detok.h"
#include "serve/engine/kvout.h"
#include "serve/engine/sampling.h"
#include "serve/sched/scheduler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define DT_LOGPROBS_MAX	       20  /* max alternatives a token */
#define DT_PROMPT_LOGPROBS_MAX 128 /* max alternatives a prompt token, for distillation teachers */

enum dt_finish {
	DT_FINISH_NONE,	  /* still running */
	DT_FINISH_STOP,	  /* end of text, a stop id or a stop string */
	DT_FINISH_LENGTH, /* max_tokens or the context length was reached */
	DT_FINISH_ABORT,  /* cancelled */
	DT_FINISH_TIMEOUT,
	DT_FINISH_ERROR, /* the model failed; see err */
	DT_FINISH_N,
};

/* "stop", "length", "abort", "timeout", "error"; NULL for NONE. */
const char *dt_finish_name(enum dt_finish f);

/* Log-probabilities of consecutive tokens, each with ntop alternatives. */
struct dt_scores {
	struct dt_logprob *chosen; /* [n] */
	struct dt_logprob *top;	   /* [n, ntop] */
	int n, cap, ntop;
};

/* Parameters of a call that hold for each of its requests. */
struct dt_ask {
	struct dt_sampling sampling; /* without stream, ban and allow, which are set for each draw */
	struct dt_bias *bias;	     /* [sampling.nbias] = sampling.bias */
	uint32_t *dry_break;	     /* = sampling.dry_break */
	int32_t *stop_ids;	     /* [nstop_ids] includes the end-of-text ids unless ignore_eos */
	int nstop_ids, nasked;	     /* the first nasked come from the request body */
	struct dt_stop *stop;	     /* [nstop] */
	int nstop;
	int min_tokens;		    /* until this many tokens: no stop id is drawn and stop strings are
				     * ignored; only a grammar that allows nothing more ends the text */
	int priority;		    /* within the tenant: lower goes first, as in vLLM */
	int logprobs;		    /* alternatives a token, -1: no log-probabilities at all */
	bool drawn_probs;	    /* logprobs are those that the samplers left */
	int prompt_logprobs;	    /* the same for prompt tokens, independent of logprobs; -1: none */
	double prompt_temperature;  /* temperature t of prompt logprobs, log softmax(logits / t) */
	struct dt_grammar *grammar; /* grammar of the output, NULL: none */
	uint64_t *mark;		    /* [nmarks] marks of the prompt (serve/sched/kvmarks.h); one prompt */
	int nmarks;
	double mark_share; /* distance between marks, as a fraction of the prompt */
	/*
	 * Texts, up to NULL, after any of which the grammar applies, at each occurrence; other text is free.
	 * {""}: the grammar applies to the whole text if it begins with {; NULL: it always applies to the
	 * whole text. Neither these nor first are owned.
	 */
	const char *const *trigger;
	const char *first; /* a trigger only if the text begins with it; NULL: none */
	bool once;	   /* the text ends where the grammar's text does */
	bool ignore_eos;
	bool include_stop; /* the text of the stop id or stop string is part of the result */
	bool skip_special; /* special tokens add no text */
	bool score_prompt; /* return log-probabilities of the prompt too */
	int score_from;	   /* only of its tokens behind this one, so that tokens before it may be cached */
	bool embed;	   /* result: sum of the prompt's last hidden states; no token is generated */
};
#define DT_ASK_DEFAULT                                                                                       \
	((struct dt_ask){.sampling = DT_SAMPLING_DEFAULT,                                                    \
			 .logprobs = -1,                                                                     \
			 .prompt_logprobs = -1,                                                              \
			 .prompt_temperature = 1,                                                            \
			 .skip_special = true})
void dt_ask_release(struct dt_ask *a);

struct dt_call;
struct dt_kvread; /* serve/engine/kvio.h */
struct dt_kvget;  /* serve/engine/kvpeers.h */

struct dt_serve_req {
	struct dt_call *call;
	struct dt_seq seq; /* the scheduler's view; used by the engine's thread alone */
	int64_t number;	   /* in order of arrival, from 1; used by the engine's thread alone */
	int drafted;	   /* tokens in the draft model's KV cache */
	int ahead;	   /* draft tokens behind the known ones, of a drafter that follows the model */

	const struct dt_ask *ask; /* = &call->ask */
	int32_t *tokens;	  /* [nprompt + max_tokens] the prompt, then generated tokens */
	/*
	 * [nprompt + max_tokens] What the prefix cache knows the tokens by: those of images by their
	 * contents. NULL: by themselves.
	 */
	int32_t *keys;
	int nprompt, max_tokens;
	int second; /* encoders: where the second text begins, of another token type; 0: there is one text */
	uint32_t choice;	    /* index among the choices of its prompt; selects the random stream */
	struct dt_matcher *matcher; /* state of ask->grammar, NULL: none */
	bool dormant;		    /* the grammar is inactive until ask->trigger occurs */
	int lead;		    /* white-space tokens that may still come between trigger and grammar */
	size_t looked, woken;	    /* bytes searched for the trigger; where to search for the next one */

	/* constrain.c: what is to be done before the next token can be drawn; a thread's while working */
	enum dt_constrain_stage {
		DT_CONSTRAIN_READY,
		DT_CONSTRAIN_READ,    /* read unread [nunread] */
		DT_CONSTRAIN_RESTART, /* begin the grammar again, dormant */
		DT_CONSTRAIN_MASK,    /* set allow */
	} stage;
	const char *unread; /* borrowed */
	size_t nunread;
	int32_t unread_id; /* the token that unread is the text of; -1: it may be several */
	bool waking;	   /* unread follows the trigger */
	bool over;	   /* nothing may follow */
	int unmasked;	   /* negative errno: allow could not be set */
	uint32_t *allow;   /* [vocab / 32] tokens that matcher allows; NULL: not allocated yet */
	atomic_bool working;
	bool queued;  /* guarded by the jobs' lock */
	bool waiting; /* the engine's thread has not seen the end of the job yet */
	TAILQ_ENTRY(dt_serve_req) in_jobs;

	/* results so far */
	int nout;
	int cached; /* tokens of the prompt that were found, from its first step on */
	struct dt_detok detok;
	struct dt_scores scores, prompt_scores; /* prompt_scores[i]: of prompt token score_from + i + 1 */
	enum dt_finish finish;
	int32_t stop_id; /* stop id in the request body that ended it, -1: none */
	float *pooled;	 /* [hidden] sum of the hidden states, with embed */
	struct dt_err err;

	/* times, dt_now() */
	double t_arrive, t_start, t_first, t_last;

	/* used by the engine's thread alone */
	double mu;		/* mirostat's state */
	bool counted;		/* counts against the limit of requests in flight */
	bool preparing;		/* waits until the other ranks have its adapter */
	bool held, looked_up;	/* held: waits for blocks from outside the pool; looked_up: has searched
				 * the disk */
	struct dt_kvread *read; /* read of blocks from disk, from block read_from on; NULL: none */
	bool asked;		/* another server was asked for blocks */
	struct dt_kvget *get;	/* the request to that server; NULL: none */
	int read_from, read_next;
	double t_held;
	int charged_prompt, charged_out;   /* tokens charged to the tenant's quota */
	TAILQ_ENTRY(dt_serve_req) in_list; /* of requests in flight */
};

/*
 * Whether a prompt of n tokens is scored and nothing follows it: the model then does not read its last token,
 * which is only a target and needs no place in the context.
 */
static inline bool dt_ask_last_unread(const struct dt_ask *a, size_t n, int max_tokens)
{
	return a->score_prompt && max_tokens == 0 && n > 1;
}

/*
 * Images of a call, which has one prompt: tiles, whose rows stand in the places of image tokens. The engine's
 * thread computes rows when a step needs them, and then has no more use for the pixels.
 */
struct dt_call_images {
	int n, rows; /* tiles, and tokens of each */
	struct dt_call_tile {
		int at;		 /* token of the prompt that has its first row */
		uint8_t *pixels; /* [3, side, side] */
		void *rows;	 /* [rows, hidden] in the model's type; NULL: not computed */
		uint32_t sum[8]; /* SHA-256 of the pixels */
	} tile[];
};
void dt_call_images_free(struct dt_call_images *x); /* NULL is allowed */

struct dt_call {
	pthread_mutex_t mu;
	pthread_cond_t cond; /* signalled on new tokens and ends; CLOCK_MONOTONIC */
	atomic_int refs;
	atomic_bool cancelled;
	double deadline; /* dt_now(), 0: none */
	int tenant;	 /* index in the engine's table */
	uint64_t salt;	 /* prefixes are shared only within a tenant and between equal salts */
	struct dt_served_adapter *adapter; /* NULL: the base model; released with the call */
	bool held;			   /* holds the adapter until the last request ends */
	double retry_after;		   /* seconds, after -EDQUOT; 0: the quota can never admit the call */
	int peer;			   /* server to compute the prompt (kvpeers.h); 0: not named */
	struct dt_kvout *out;	       /* owned: blocks of the single prompt for another server; NULL: none */
	struct dt_call_images *images; /* owned; NULL: none */
	struct dt_ask ask;	       /* owned */
	int n, open;		       /* requests, and how many of them have not finished */
	struct dt_serve_req *req;
	void (*on_done)(void *arg); /* called by the engine's thread when all have finished; may be NULL */
	void *arg;
};

struct dt_call *dt_call_new(int n); /* NULL: out of memory */
void dt_call_ref(struct dt_call *c);
void dt_call_drop(struct dt_call *c); /* NULL is allowed */
/* Asks the engine to drop the call, which it does within one step. */
void dt_call_cancel(struct dt_call *c);
/* Waits until results arrive or `seconds` have passed. Call with mu held. */
void dt_call_wait_locked(struct dt_call *c, double seconds);
/* Waits until every request has finished. */
void dt_call_wait_done(struct dt_call *c);

/* Copies a prompt and allocates room for max_tokens more. -ENOMEM. */
int dt_serve_req_set_prompt(struct dt_serve_req *r, const int32_t *ids, size_t n, int max_tokens);
/* Its first step begins, at dt_now() `at`. Engine thread only. */
void dt_serve_req_start(struct dt_serve_req *r, double at);
/* Appends one entry; top [s->ntop]. -ENOMEM. */
int dt_scores_push(struct dt_scores *s, struct dt_logprob chosen, const struct dt_logprob *top);

/* The sampling parameters of r's next draw, without the step's ban and allow. */
static inline struct dt_sampling dt_serve_req_sampling(const struct dt_serve_req *r)
{
	struct dt_sampling s = r->ask->sampling;

	s.stream += r->choice;
	return s;
}

static inline int32_t *dt_serve_req_out(const struct dt_serve_req *r)
{
	return r->tokens + r->nprompt;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
