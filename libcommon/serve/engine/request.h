/*
 * A call (one HTTP request, one line of a batch) is one or more requests: its prompts times its choices.
 * What a call asks for (struct dt_ask) is filled by its caller, fixed when it is submitted, and read without
 * a lock from then on. What a request has got so far is written by the engine's thread and read by the
 * caller's under the call's lock.
 *
 * Ownership: dt_call_new gives the caller one reference, dt_engine_submit takes one for the engine. Dropping
 * the last frees everything, so a caller may leave at any time (cancel, drop) without waiting.
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

#define DT_LOGPROBS_MAX	       20  /* alternatives a token */
#define DT_PROMPT_LOGPROBS_MAX 128 /* of a prompt, for teachers */

enum dt_finish {
	DT_FINISH_NONE,	  /* still going */
	DT_FINISH_STOP,	  /* end of text, a stop id or a stop string */
	DT_FINISH_LENGTH, /* max_tokens or the context */
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

/* What a call asks of each of its requests. */
struct dt_ask {
	struct dt_sampling sampling; /* without stream, ban and allow, which belong to one draw */
	struct dt_bias *bias;	     /* [sampling.nbias] = sampling.bias */
	uint32_t *dry_break;	     /* = sampling.dry_break */
	int32_t *stop_ids;	     /* [nstop_ids] the end-of-text ids among them unless ignore_eos */
	int nstop_ids, nasked;	     /* the first nasked come from the body */
	struct dt_stop *stop;	     /* [nstop] */
	int nstop;
	int min_tokens;		    /* before one more, no stop id is drawn and no stop string counts;
				     * only a grammar that allows nothing more ends the text */
	int priority;		    /* within the tenant: lower goes first, as in vLLM */
	int logprobs;		    /* alternatives a token, -1: no log-probabilities at all */
	int prompt_logprobs;	    /* of each token of the prompt, apart; -1: none */
	double prompt_temperature;  /* t of prompt logprobs, log softmax(logits / t) */
	struct dt_grammar *grammar; /* what the output must fit, NULL: anything */
	uint64_t *mark;		    /* [nmarks] of the prompt (serve/sched/kvmarks.h); one prompt alone */
	int nmarks;
	double mark_share; /* of the prompt, from one to the next */
	char *trigger;	   /* what comes behind this text must fit, each time, and the rest need not;
				     * "": all of it must, where it begins with {; NULL: all of it must */
	bool ignore_eos;
	bool include_stop; /* the text of the stop id or string is part of the result */
	bool skip_special; /* special tokens add no text */
	bool score_prompt; /* log-probabilities of the prompt too */
	bool embed;	   /* the result is the mean of the prompt's last hidden states, and no token */
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
	struct dt_seq seq; /* the scheduler's view; engine thread only */
	int64_t number;	   /* in order of arrival, from 1; engine thread only */
	int drafted;	   /* tokens in the cache of the model that guesses */

	const struct dt_ask *ask; /* of its call */
	int32_t *tokens;	  /* [nprompt + max_tokens] the prompt, then what was generated */
	int nprompt, max_tokens;
	uint32_t choice;	    /* of its prompt: its stream of random numbers */
	struct dt_matcher *matcher; /* state of ask->grammar, NULL: there is none */
	bool dormant;		    /* the matcher waits for ask->trigger */
	int lead;	      /* tokens of white space that may still come between that and the grammar */
	size_t looked, woken; /* bytes of the text where it has been looked for, and where to begin */

	/* results so far */
	int nout;
	struct dt_detok detok;
	struct dt_scores scores, prompt_scores; /* prompt_scores[i]: of prompt token i + 1 */
	enum dt_finish finish;
	int32_t stop_id; /* stop id of the request that ended it, -1: none */
	float *pooled;	 /* [hidden] sum of the hidden states, with embed */
	struct dt_err err;

	/* times, dt_now() */
	double t_arrive, t_start, t_first, t_last;

	/* used by the engine alone */
	double mu;		/* state of mirostat */
	bool counted;		/* by the engine's bound of requests in flight */
	bool preparing;		/* it waits until other ranks have its adapter */
	bool held, looked_up;	/* it waits for blocks from beyond the pool; they were looked for */
	struct dt_kvread *read; /* of them from the disk, from block read_from on; NULL: none */
	bool asked;		/* another server was */
	struct dt_kvget *get;	/* the same from there */
	int read_from, read_next;
	double t_held;
	int charged_prompt, charged_out;   /* tokens taken from the tenant's account */
	TAILQ_ENTRY(dt_serve_req) in_list; /* of requests in flight */
};

struct dt_call {
	pthread_mutex_t mu;
	pthread_cond_t cond; /* new tokens or an end; on CLOCK_MONOTONIC */
	atomic_int refs;
	atomic_bool cancelled;
	double deadline; /* dt_now(), 0: none */
	int tenant;	 /* number in the engine's table */
	uint64_t salt;	 /* prefixes are shared only within a tenant, and there only under the same salt */
	struct dt_served_adapter *adapter; /* NULL: the base alone; given back with the call */
	bool held;			   /* the adapter, from submission to the end of the last request */
	double retry_after;		   /* seconds, after -EDQUOT; 0: it can never pass */
	int peer;			   /* who computes its prompt (kvpeers.h); 0: not named */
	struct dt_kvout *out; /* owned: blocks of its one prompt for another server; NULL: none */
	struct dt_ask ask;    /* owned */
	int n, open;	      /* requests, and those without a finish */
	struct dt_serve_req *req;
	void (*on_done)(void *arg); /* the engine's thread: every request has a finish; may be NULL */
	void *arg;
};

struct dt_call *dt_call_new(int n); /* NULL: out of memory */
void dt_call_ref(struct dt_call *c);
void dt_call_drop(struct dt_call *c); /* NULL is allowed */
/* The engine forgets the call within one step. */
void dt_call_cancel(struct dt_call *c);
/* Waits, mu held, until something comes or seconds are over. */
void dt_call_wait_locked(struct dt_call *c, double seconds);
/* Waits until every request has a finish. */
void dt_call_wait_done(struct dt_call *c);

/* Copies a prompt and makes room for max_tokens more. -ENOMEM. */
int dt_serve_req_set_prompt(struct dt_serve_req *r, const int32_t *ids, size_t n, int max_tokens);
/* Appends one entry; top [s->ntop]. -ENOMEM. */
int dt_scores_push(struct dt_scores *s, struct dt_logprob chosen, const struct dt_logprob *top);

/* The parameters of r's next draw, without what its step bans or allows. */
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
