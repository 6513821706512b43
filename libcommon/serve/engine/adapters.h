/*
 * LoRA adapters by name, some of which are in memory. A request holds its adapter from submission to its end.
 * An adapter that is not in memory is read by the submitting thread; no other thread waits for that. At most
 * `resident` adapters are in memory. To load one more, the unheld adapter that was taken longest ago is
 * evicted. If all are held, the one taken longest ago accepts no new requests until it has been evicted, so
 * that waiting requests get its place. Places are given in the order of requests.
 *
 * Every function may be called from any thread. A removed or replaced adapter is freed when the last request
 * that holds it has ended.
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
	const struct dt_infer *model;	/* outlives the table */
	const struct dt_tokenizer *tok; /* of the base model; outlives the table */
	const char *name;		/* of the base model; no adapter may have it; outlives the table */
	char base[40];	 /* fingerprint of the base model that adapters must have been made for; empty: any */
	const char *dir; /* folder from which clients may load adapters; NULL: clients may not load any */
	int resident;	 /* max adapters in memory, at least 1 */
	double quota;	 /* tokens a minute for each adapter, 0: no limit */
};

struct dt_served_adapter {
	/* constant after creation */
	struct dt_adapters *of;
	char *name, *path;
	uint64_t number; /* from 1, never reused */
	uint64_t sum;	 /* checksum of the changed weights at the time the adapter was added */

	/* guarded by the lock of `of` */
	int refs, holds, waiters;
	int queued; /* requests that wait in the queue for a place for this adapter */
	bool listed, loading, leaving;
	double used; /* dt_now() of the last dt_adapters_hold */
	uint64_t requests, prompt_tokens, generation_tokens;
	TAILQ_ENTRY(dt_served_adapter) in_list;

	/* set while the adapter is in memory; it stays there while somebody holds it */
	struct dt_infer_adapter *in;

	struct dt_quota quota; /* guarded by the engine's gate */
};

int dt_adapters_open(struct dt_adapters **ret, const struct dt_adapters_params *p, struct dt_err *err);
void dt_adapters_close(struct dt_adapters *a); /* no reference to any adapter may be left; NULL is allowed */

/*
 * Reads an adapter to check that it can be served, and adds it. asked: a client asked for it; path is then
 * relative to dir, or absolute, and must lie inside dir. replace: an existing adapter of this name is
 * replaced. -EPERM: clients may not load adapters, or path is outside dir; -EEXIST: the name is taken;
 * -EINVAL: the name is not valid; or an error of dt_infer_adapter_open.
 */
int dt_adapters_add(struct dt_adapters *a, const char *name, const char *path, bool asked, bool replace,
		    struct dt_err *err);
/* Removes an adapter by name. -ENOENT: there is none; -EPERM: clients may not remove adapters. */
int dt_adapters_remove(struct dt_adapters *a, const char *name, struct dt_err *err);

/* Returns a new reference to the adapter of this name, or NULL. Release it with dt_adapters_drop. */
struct dt_served_adapter *dt_adapters_find(struct dt_adapters *a, const char *name);
void dt_adapters_drop(struct dt_served_adapter *s); /* NULL is allowed */

/*
 * Keeps the adapter in memory until dt_adapters_release. Waits until it is loaded: at most until the deadline
 * (dt_now(), 0: none), -ETIMEDOUT, or until *cancelled, -ECANCELED. Also returns errors of reading the
 * adapter.
 */
int dt_adapters_hold(struct dt_served_adapter *s, double deadline, const atomic_bool *cancelled,
		     struct dt_err *err);
void dt_adapters_release(struct dt_served_adapter *s);
/* Adds the tokens of a request that has ended to the adapter's counters. */
void dt_adapters_count(struct dt_served_adapter *s, int prompt, int generated);

/* Calls each() for every adapter in order of names. each() must not call functions of this header. */
void dt_adapters_each(struct dt_adapters *a, void (*each)(void *arg, const struct dt_served_adapter *s),
		      void *arg);
/* Writes metrics in the Prometheus text format. */
void dt_adapters_write(struct dt_adapters *a, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
