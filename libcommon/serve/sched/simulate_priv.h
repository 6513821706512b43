/* Inside the simulation: simulate.c has the servers and the clock, simulate_request.c the requests. */
#ifndef DT_SERVE_SIMULATE_PRIV_H
#define DT_SERVE_SIMULATE_PRIV_H

#include "serve/sched/agenda.h"
#include "serve/sched/simulate.h"

struct dt_sim_flight { /* a step in flight */
	struct dt_sched_item *items;
	int n;
	double done_s; /* when the last stage has computed it */
};

enum dt_sim_doing {
	DT_SIM_IDLE,
	DT_SIM_COMPUTES,
	DT_SIM_TAKES
}; /* newest step's first stage; oldest step's results */

struct dt_sim_server {
	struct dt_kvpool pool;
	struct dt_sched sched;
	struct dt_sim_flight flight[DT_FLOW_STAGES];
	int oldest, nflight;
	enum dt_sim_doing doing;
	double until; /* when that ends */
	double free_s[DT_FLOW_STAGES];
	int unfinished, had;
	bool listed; /* in the agenda */
	bool woken;  /* in sim.woken */
};

struct dt_sim_request {
	struct dt_seq seq;	     /* first member: a pointer to an item's sequence is one to its request */
	struct dt_sim_request *next; /* in the list of requests in transit from a prefill server */
	const struct dt_sim_ask *ask;
	struct dt_sim_answer *answer;
	struct dt_sim_server *home, *helper; /* helper: prefill server that computes the prompt now */
	double there_s;			     /* when its blocks arrive */
	int32_t *tokens;
	int outputs;
	bool moved, slow; /* slow: its time per token exceeds the limit */
};

struct dt_sim {
	const struct dt_sim_params *p;
	struct dt_sim_server *server; /* [servers + prefill] */
	int nserver, stages;
	struct dt_agenda agenda; /* when servers that are not idle end what they do */
	int *woken, nwoken;	 /* [nserver] servers to look at, at this instant */
	struct dt_sim_request *moving;
	const struct dt_sim_ask *ask;
	struct dt_sim_answer *answer;
	struct dt_sim_report *r;
	int late, slow, may; /* requests that exceed a limit, and so many may */
};

/* simulate.c: the server may be able to begin a step at this instant. */
void dt_sim_wake(struct dt_sim *m, struct dt_sim_server *s);

/* Whether no cache has room for the request. */
bool dt_sim_too_long(const struct dt_sim_params *p, const struct dt_sim_ask *a);
/* Request i arrives. */
int dt_sim_arrive(struct dt_sim *m, int i, struct dt_err *err);
/* Prompts whose blocks have arrived: their own servers continue. */
int dt_sim_take_moved(struct dt_sim *m, double now, struct dt_err *err);
/* Its helper has computed the last n tokens of its prompt. */
void dt_sim_leave_helper(struct dt_sim *m, struct dt_sim_request *q, int n, double now);
/* Its last token has been computed. */
void dt_sim_finish(struct dt_sim *m, struct dt_sim_request *q, double now);
void dt_sim_drop(struct dt_sim_request *q);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
