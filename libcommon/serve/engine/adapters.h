/*
 * Adapters by name, of which some are in memory. A request holds its adapter from its submission to its end:
 * it is read where it is not in memory, by the thread that submits, and nobody else waits. Where `resident`
 * are in memory and a further one is asked for, the one that nobody has held for longest goes; where all are
 * held, the one asked for longest ago is not given to new requests any more until it has gone, so that who
 * waits gets a place. Places are given in the order of asking.
 *
 * Every function may be called from any thread. An adapter that is removed or replaced is freed when the last
 * request that holds it has ended.
 */
#ifndef DT_SERVE_ADAPTERS_H
#define DT_SERVE_ADAPTERS_H

#include "base/quota.h"
#include "nn/infer_adapter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/queue.h>

struct dt_tokenizer;
struct dt_adapters;

struct dt_adapters_params {
	const struct dt_infer *model;	/* outlives it */
	const struct dt_tokenizer *tok; /* the base's; outlives it */
	const char *name;		/* the base's, which no adapter has; outlives it */
	char base[40];	 /* fingerprint of the base, which adapters are to be made for; empty: any */
	const char *dir; /* what clients may load lies under it; NULL: they may not */
	int resident;	 /* adapters in memory, at least 1 */
	double quota;	 /* tokens a minute of each, 0: no limit */
};

struct dt_served_adapter {
	/* constant */
	struct dt_adapters *of;
	char *name, *path;
	uint64_t number; /* from 1, never used again */
	uint64_t sum;	 /* of what it changes, as it was when it was added */

	/* guarded by the lock of `of` */
	int refs, holds, waiters;
	int queued; /* requests in the queue for a place for it */
	bool listed, loading, leaving;
	double used; /* dt_now() of the last hold */
	uint64_t requests, prompt_tokens, generation_tokens;
	TAILQ_ENTRY(dt_served_adapter) in_list;

	/* set while it is in memory, which it is while somebody holds it */
	struct dt_infer_adapter *in;

	struct dt_quota quota; /* guarded by the engine's gate */
};

int dt_adapters_open(struct dt_adapters **ret, const struct dt_adapters_params *p, struct dt_err *err);
void dt_adapters_close(struct dt_adapters *a); /* nobody refers to an adapter any more; NULL is allowed */

/*
 * Adds an adapter, which is read to see that it can be served. asked: a client did; path is then taken from
 * dir and must lie in it. -EPERM: clients may not, or it does not; -EEXIST: the name is taken (replace: by an
 * adapter, which this one then replaces, is no error); -EINVAL: the name, or as dt_infer_adapter_open.
 */
int dt_adapters_add(struct dt_adapters *a, const char *name, const char *path, bool asked, bool replace,
		    struct dt_err *err);
/* Forgets a name. -ENOENT: there is none; -EPERM: clients may not. */
int dt_adapters_remove(struct dt_adapters *a, const char *name, struct dt_err *err);

/* The adapter of this name, to be given back; NULL. */
struct dt_served_adapter *dt_adapters_find(struct dt_adapters *a, const char *name);
void dt_adapters_drop(struct dt_served_adapter *s); /* NULL is allowed */

/*
 * Has it in memory until dt_adapters_release. Waits for that, at most until the deadline (dt_now(), 0: none):
 * -ETIMEDOUT; or until *cancelled: -ECANCELED. Else as reading it fails.
 */
int dt_adapters_hold(struct dt_served_adapter *s, double deadline, const atomic_bool *cancelled,
		     struct dt_err *err);
void dt_adapters_release(struct dt_served_adapter *s);
/* Counts a request that has ended. */
void dt_adapters_count(struct dt_served_adapter *s, int prompt, int generated);

/* Calls each with every adapter, in order of names. It must not call back. */
void dt_adapters_each(struct dt_adapters *a, void (*each)(void *arg, const struct dt_served_adapter *s),
		      void *arg);
/* Metrics in Prometheus' format. */
void dt_adapters_write(struct dt_adapters *a, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
