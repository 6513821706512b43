/* What engine.c and step.c share; not for others. */
#ifndef DT_SERVE_ENGINE_PRIV_H
#define DT_SERVE_ENGINE_PRIV_H

#include "serve/engine/engine.h"
#include "serve/engine/speculate.h"

struct req_list {
	struct dt_serve_req *head, *tail;
};

/* tell.c */
struct dt_teller {
	struct dt_call **own; /* [cap]: the engine's thread's, of this step */
	int nown, cap;
	bool open;
	pthread_t thread;
	pthread_mutex_t mu;
	pthread_cond_t cond;
	struct dt_call **given, **telling; /* [cap]: what the thread shall tell, and what it is telling */
	int ngiven;
	bool stop;
};

struct dt_engine {
	struct dt_engine_params p;
	struct dt_metrics metrics;
	pthread_t thread;

	pthread_mutex_t mu;
	pthread_cond_t work; /* for the engine: something was submitted or cancelled */
	pthread_cond_t idle; /* for dt_engine_wait_idle, on CLOCK_MONOTONIC */
	struct req_list inbox;
	int inflight;
	bool draining, stop;
	double busy_since; /* dt_now() when the step in progress began, 0: none */
	struct dt_bucket {
		double tokens, at; /* what was left at the moment `at` */
	} * bucket;		   /* [ntenants] */

	/* the engine thread's own */
	struct dt_kvpool pool;
	struct dt_sched sched;
	struct req_list live; /* taken from the inbox, in order of arrival */
	struct dt_serve_sampler sampler;
	struct dt_teller teller;
	struct dt_spec spec;
	struct dt_sched_item *items, *drafts; /* [max_seqs] */
	struct dt_infer_batch batch;
	int32_t *ids, *pos, *q_start, *kv_len, *table, *want;
	int64_t *slot;
	float **pool_to;
	float *logits;		/* [max_seqs + 2, vocab], the last two scratch */
	struct dt_draw *draw;	/* [max_seqs], and their edits are the sampler's */
	struct dt_drawn *drawn; /* [max_seqs] */
	struct dt_logprob *top;
	struct dt_vocab_order order; /* made when the first request asks for a grammar */
	uint32_t *allow;	     /* [vocab / 32] */
};

/* engine.c: ends a request for its caller and for the engine. The call may be gone afterwards. */
void dt_engine_retire(struct dt_engine *e, struct dt_serve_req *r, enum dt_finish why);
void dt_engine_retire_error(struct dt_engine *e, struct dt_serve_req *r, const struct dt_err *err);

int dt_teller_open(struct dt_teller *t, int cap); /* of zeros. -ENOMEM, -EAGAIN */
void dt_teller_close(struct dt_teller *t);	  /* once all have been told */
/* The waiters of c hear of its tokens when the step is over: dt_teller_go. */
void dt_teller_add(struct dt_teller *t, struct dt_call *c);
void dt_teller_go(struct dt_teller *t);

/* draft.c: lets the other model see what the planned items compute, and guess for those with a draft.
 */
int dt_engine_draft(struct dt_engine *e, int n);

/* draws.c: has the model draw what e->batch wants of the items, if it can; 0 or -ENOMEM. */
int dt_engine_plan_draws(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft);

/* step.c: fills e->batch; and the whole of a step: plans, computes and hands out tokens once. */
int dt_engine_build(struct dt_engine *e, const struct dt_sched_item *items, int n, bool draft);
/* Rows of an item whose logits are wanted: the prompt's when it is scored, the last known token's and those
 * of guessed tokens; of the model that guesses only guesses are. */
bool dt_engine_wanted(const struct dt_sched_item *it, int row, bool draft);
void dt_engine_step(struct dt_engine *e);

static inline struct dt_serve_req *dt_serve_req_of(struct dt_seq *seq)
{
	return (struct dt_serve_req *)((char *)seq - offsetof(struct dt_serve_req, seq));
}

#endif
