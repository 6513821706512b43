/*
 * Sends questions (POST /v1/completions, over libcurl) to an OpenAI-compatible server, several in flight at a
 * time, and returns whole, unstreamed answers. Used by dt-eval and dt-rollout.
 */
#ifndef DT_LOAD_ASKS_H
#define DT_LOAD_ASKS_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct dt_asks_opts {
	const char *model, *key; /* NULL: the server's first model; no key */
	int parallel;		 /* maximum questions in flight, at least 1 */
	size_t most_reply;	 /* maximum bytes of an answer */
};

/* Callbacks: the body and the answer of questions 0 .. n - 1. */
struct dt_asks_list {
	json_t *(*body)(void *arg, int64_t i, const char *model); /* a new object; NULL: out of memory */
	int (*take)(void *arg, int64_t i, const json_t *reply, struct dt_err *err);
	void *arg;
};

struct dt_asks;

/* url: in any form dt_load_url accepts. -EIO: the server does not answer, or lists no model. */
int dt_asks_open(const char *url, const struct dt_asks_opts *o, struct dt_asks **ret, struct dt_err *err);
const char *dt_asks_url(const struct dt_asks *a); /* for error messages */

/*
 * Asks all n questions in order; handles answers as they arrive. Stops at the first error. A question that
 * fails (no connection, 429, 5xx) is asked again for DT_LOAD_AGAIN_S, after a Retry-After of the server for
 * as long after that; not if the server has never answered.
 */
int dt_asks_run(struct dt_asks *a, const struct dt_asks_list *l, int64_t n, struct dt_err *err);
void dt_asks_close(struct dt_asks *a); /* NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
