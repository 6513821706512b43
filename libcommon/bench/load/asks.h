/*
 * Questions to an OpenAI-compatible server whose whole answers are wanted, several under way at a time, over
 * libcurl: POST /v1/completions. dt-eval and dt-rollout ask so.
 */
#ifndef DT_LOAD_ASKS_H
#define DT_LOAD_ASKS_H

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct dt_asks_opts {
	const char *model, *key; /* NULL: the server's first; none */
	int parallel;		 /* questions under way, at least 1 */
	size_t most_reply;	 /* bytes of an answer */
	double patience; /* seconds in which what fails is asked again (no connection, 429, 5xx); 0: none */
};

/* What is asked: bodies and answers of questions 0 .. n - 1. */
struct dt_asks_list {
	json_t *(*body)(void *arg, int64_t i, const char *model); /* a new object; NULL: no memory */
	int (*take)(void *arg, int64_t i, const json_t *reply, struct dt_err *err);
	void *arg;
};

struct dt_asks;

/* url: as dt_load_url reads it. -EIO: the server does not answer, or names no model. */
int dt_asks_open(const char *url, const struct dt_asks_opts *o, struct dt_asks **ret, struct dt_err *err);
const char *dt_asks_url(const struct dt_asks *a); /* for messages */

/* Asks all n in order and takes each answer as it comes. The first error ends it. */
int dt_asks_run(struct dt_asks *a, const struct dt_asks_list *l, int64_t n, struct dt_err *err);
void dt_asks_close(struct dt_asks *a); /* NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
