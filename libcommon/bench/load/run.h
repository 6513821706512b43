/* State of a run: run.c schedules its calls, call.c prepares each. For these files only. */
#ifndef DT_LOAD_RUN_H
#define DT_LOAD_RUN_H

#include "base/progress.h"
#include "bench/load/internal.h"

struct load_call { /* a request, from the creation of its body on */
	struct load_run *run;
	CURL *c;
	struct curl_slist *head;
	char *body;
	json_t *said;
	struct load_stream in;
	struct load_text other; /* a body that is not a stream */
	double cut_at;		/* < 0: never */
	bool cut;
	int item, place; /* index in run->call */
	int no_socket;	 /* errno of a socket that could not be made; 0: none */
};

struct load_later { /* a turn, or a user's next conversation (item -1), due later */
	double at;
	int item;
	json_t *history;
};

struct load_run {
	const struct dt_load_target *t;
	const struct dt_load *l;
	const struct dt_load_run_params *p;
	struct dt_load_result *ret;
	struct dt_load_errors *errors;
	CURLM *m;
	struct load_call **call, *ready; /* [l->n] in flight; the next one, prepared ahead of time */
	int ncall, next;		 /* next: first item not begun yet */
	struct load_later *later;	 /* [l->n + users] */
	int nlater, done;
	int64_t storms;
	double t0;
	bool nomem;
};

static inline double load_now(const struct load_run *r)
{
	return dt_now() - r->t0;
}

/* The call of an item, with the conversation so far. NULL: out of memory; sets r->nomem. */
struct load_call *load_call_make(struct load_run *r, int item, const json_t *history);
void load_call_free(struct load_call *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
