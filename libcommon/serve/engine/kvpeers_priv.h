/* Shared by kvpeers.c and kvget.c. */
#ifndef DT_SERVE_KVPEERS_PRIV_H
#define DT_SERVE_KVPEERS_PRIV_H

#include "serve/engine/kvout.h"
#include "serve/engine/kvpeers.h"

#include <curl/curl.h>
#include <pthread.h>
#include <sys/queue.h>

#define DT_KVGET_REASON 300

struct dt_kvpeer {
	char *url;		  /* of the prefill route */
	const char *name;	  /* URL as configured */
	struct curl_slist **head; /* HTTP headers, [nkeys or 1] */
	/* guarded by dt_kvpeers.mu */
	int running;
	uint64_t asked;
	double down_until; /* dt_now() until which the server is not asked */
	bool down;	   /* a failure was logged, and no request has succeeded since */
};

struct dt_kvget {
	struct dt_kvpeers *of;
	struct dt_kvpeer *peer;
	struct dt_kvshare mem;
	size_t block_bytes;
	int n; /* blocks asked for */
	char *body;
	CURL *easy;
	double began, last; /* dt_now() of the request and of the last block; began is constant */
	/* used by the communication thread alone: the part of the response parsed so far */
	struct dt_kvrecord rec;
	size_t got, filled; /* bytes read of rec, and of the block behind it */
	int seen, shared;   /* blocks received, and those of them in shared memory that are not counted yet */
	bool whole, failed;
	bool begun;		   /* added to the multi handle */
	char why[DT_KVGET_REASON]; /* reason of a failure, or the error body that the server sent */
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
	TAILQ_HEAD(, dt_kvget) gets; /* all that are not freed yet */
	uint64_t used;		     /* bytes of their memory */
	struct dt_kvpeers_counts counts;
	bool stop;
};

/* kvget.c: prepares a request to a peer; NULL: out of memory. */
struct dt_kvget *dt_kvget_new(struct dt_kvpeers *p, struct dt_kvpeer *peer, const struct dt_kvask *a);
void dt_kvget_free(struct dt_kvget *g);
/*
 * kvget.c: parses the next bytes of the response. Complete blocks are counted in g->seen. false: the response
 * is invalid (g->why).
 */
bool dt_kvget_push(struct dt_kvget *g, const char *data, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
