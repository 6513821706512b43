/*
 * Servers that compute prompts for this one (dt-serve --role prefill): asked over HTTP for the blocks of a
 * prompt, which they send as they compute them, through shared memory where that can be joined, else over the
 * connection. A thread of its own talks to them; the calls here come from one other thread and never wait.
 * What a server holds for a prompt it holds while the connection lasts: closing a prompt ends both.
 */
#ifndef DT_SERVE_KVPEERS_H
#define DT_SERVE_KVPEERS_H

#include "base/log.h"
#include "serve/sched/kvkey.h"

#include <stddef.h>

struct dt_kvpeers_params {
	const char *const *url; /* [n] "http://127.0.0.1:8001" */
	int n;
	const char *const *key; /* [nkeys] of tenants, which a server is asked with; nkeys 0: none */
	int nkeys;
	int least;	  /* tokens that are not in the cache yet from which on one is asked */
	double timeout;	  /* seconds without a block after which it is given up */
	uint64_t memory;  /* bytes of blocks on their way */
	bool inline_only; /* no shared memory */
	const struct dt_log *log;
	/* of the cache, as both sides must have it */
	uint64_t name;
	size_t block_bytes;
	int block_size; /* tokens */
};

struct dt_kvpeers;
struct dt_kvget;

struct dt_kvpeers_counts {
	uint64_t asked, failed;	 /* prompts; failed: those that did not come whole */
	uint64_t blocks, shared; /* that came, and those of them through shared memory */
	double seconds;		 /* from asking to the last block, of those that came whole */
	int running;
};

/* wake is called by the thread after a block has come or no more will. The strings outlive it. */
int dt_kvpeers_open(struct dt_kvpeers **ret, const struct dt_kvpeers_params *p, void (*wake)(void *arg),
		    void *arg, struct dt_err *err);
void dt_kvpeers_close(struct dt_kvpeers *p); /* NULL is allowed */
struct dt_kvpeers_counts dt_kvpeers_counts(struct dt_kvpeers *p);

/* The number of a URL among params->url, from 1; 0: it is none of them. */
int dt_kvpeers_find(const struct dt_kvpeers_params *p, const char *url);

struct dt_kvask {
	int peer; /* who is to be asked, where it is well, from 1; 0: whoever has the least to do */
	int tenant;
	uint64_t salt;
	const char *adapter; /* its name; NULL: none */
	uint64_t sum;	     /* the adapter's */
	const int32_t *tokens;
	int from, to; /* the blocks [from, to) of them */
};

/* Asks one server. NULL: none is well, there is no memory, or too few tokens are asked for. */
struct dt_kvget *dt_kvpeers_get(struct dt_kvpeers *p, const struct dt_kvask *a);
/* The next block, NULL: it has not come yet, or (*ended) no more will. */
const void *dt_kvget_next(struct dt_kvget *g, bool *ended);
void dt_kvget_take(struct dt_kvget *g);	 /* the block that next gave is not needed any more */
void dt_kvget_close(struct dt_kvget *g); /* at any time; NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
