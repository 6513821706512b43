/*
 * Client of servers that compute prompts for this one (dt-serve --role prefill). It asks them over HTTP for
 * the cache blocks of a prompt. They send each block when it is computed: through shared memory if it can be
 * mapped, else over the connection. A thread of its own does the communication. The functions here are called
 * from one other thread and never wait. A server holds resources for a prompt only while the connection
 * lasts; closing the struct dt_kvget closes the connection.
 */
#ifndef DT_SERVE_KVPEERS_H
#define DT_SERVE_KVPEERS_H

#include "base/log.h"
#include "serve/sched/kvkey.h"

#include <stddef.h>

struct dt_kvpeers_params {
	const char *const *url; /* [n] "http://127.0.0.1:8001" */
	int n;
	const char *const *key; /* [nkeys] API keys of the tenants, sent with requests; nkeys 0: none */
	int nkeys;
	int least;	  /* a server is asked only if at least this many tokens are not in the cache */
	double timeout;	  /* seconds without a new block after which the request is given up */
	uint64_t memory;  /* max bytes of blocks in transit */
	bool inline_only; /* do not use shared memory */
	const struct dt_log *log;
	/* properties of the cache; both sides must agree */
	uint64_t name;
	size_t block_bytes;
	int block_size; /* tokens */
};

struct dt_kvpeers;
struct dt_kvget;

struct dt_kvpeers_counts {
	uint64_t asked, failed;	 /* prompts; failed: those that did not arrive completely */
	uint64_t blocks, shared; /* blocks received, and how many of them through shared memory */
	double seconds;		 /* from the request to the last block, summed over complete prompts */
	int running;
};

/*
 * The communication thread calls wake after a block has arrived, or when no more will. The strings in p
 * outlive the struct dt_kvpeers.
 */
int dt_kvpeers_open(struct dt_kvpeers **ret, const struct dt_kvpeers_params *p, void (*wake)(void *arg),
		    void *arg, struct dt_err *err);
void dt_kvpeers_close(struct dt_kvpeers *p); /* NULL is allowed */
struct dt_kvpeers_counts dt_kvpeers_counts(struct dt_kvpeers *p);

/* Index of a URL in params->url, from 1; 0: not in the list. */
int dt_kvpeers_find(const struct dt_kvpeers_params *p, const char *url);

struct dt_kvask {
	int peer; /* the server to ask if it is up, from 1; 0: the least busy one */
	int tenant;
	uint64_t salt;
	const char *adapter; /* name of the adapter; NULL: none */
	uint64_t sum;	     /* checksum of the adapter */
	const int32_t *tokens;
	int from, to; /* the blocks [from, to) of tokens */
};

/* Asks one server for blocks. NULL: no server is up, out of memory, or too few tokens are needed. */
struct dt_kvget *dt_kvpeers_get(struct dt_kvpeers *p, const struct dt_kvask *a);
/* Returns the next block. NULL: it has not arrived yet, or (*ended) there are no more. */
const void *dt_kvget_next(struct dt_kvget *g, bool *ended);
void dt_kvget_take(struct dt_kvget *g);	 /* releases the block that dt_kvget_next returned */
void dt_kvget_close(struct dt_kvget *g); /* may be called at any time; NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
