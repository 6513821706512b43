/* What the two files of serve/engine/kvpeers.h share. */
#ifndef DT_SERVE_KVPEERS_PRIV_H
#define DT_SERVE_KVPEERS_PRIV_H

#include "serve/engine/kvout.h"
#include "serve/engine/kvpeers.h"

#include <curl/curl.h>
#include <pthread.h>
#include <sys/queue.h>

#define DT_KVGET_REASON 300

struct dt_kvpeer {
	char *url;		  /* of its route */
	const char *name;	  /* as given */
	struct curl_slist **head; /* [nkeys or 1] */
	/* guarded by dt_kvpeers.mu */
	int running;
	uint64_t asked;
	double down_until; /* dt_now() */
	bool down;	   /* and that was said */
};

struct dt_kvget {
	struct dt_kvpeers *of;
	struct dt_kvpeer *peer;
	struct dt_kvshare mem;
	size_t block_bytes;
	int n; /* blocks asked for */
	char *body;
	CURL *easy;
	double began, last; /* dt_now(): asked, and the last block; began is constant */
	/* the thread alone: what has been read of the answer */
	struct dt_kvrecord rec;
	size_t got, filled; /* bytes of rec, and of the block behind it */
	int seen, shared;   /* blocks */
	bool whole, failed;
	bool begun;		   /* it is in the multi handle */
	char why[DT_KVGET_REASON]; /* it has failed, or what the server said */
	size_t nwhy;
	/* guarded by dt_kvpeers.mu */
	int ready, taken;
	bool ended, closed;
	TAILQ_ENTRY(dt_kvget) in_list;
};

struct dt_kvpeers {
	struct dt_kvpeers_params p;
	struct dt_kvpeer *peer; /* [p.n] */
	CURLM *multi;
	void (*wake)(void *arg);
	void *arg;
	pthread_t thread;
	bool started;
	pthread_mutex_t mu;
	TAILQ_HEAD(, dt_kvget) gets; /* all that are not freed */
	uint64_t used;		     /* bytes of them */
	struct dt_kvpeers_counts counts;
	bool stop;
};

/* kvget.c: a prompt to be asked of the peer; NULL: no memory. */
struct dt_kvget *dt_kvget_new(struct dt_kvpeers *p, struct dt_kvpeer *peer, const struct dt_kvask *a);
void dt_kvget_free(struct dt_kvget *g);
/* kvget.c: the next bytes of the answer; false: it is wrong (g->why). Blocks are counted in g->seen. */
bool dt_kvget_push(struct dt_kvget *g, const char *data, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
