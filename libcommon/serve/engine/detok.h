/*
 * From generated ids to text that may be shown. Bytes are held back while they could still become part of a
 * character or of a stop string; what is ready never changes.
 */
#ifndef DT_SERVE_DETOK_H
#define DT_SERVE_DETOK_H

#include "data/tokenizer.h"

#define DT_STOP_MAX 16 /* stop strings of a request */

struct dt_stop {
	char *s;
	size_t n; /* > 0 */
};

struct dt_detok {
	const struct dt_tokenizer *tok;
	bool special;	   /* special tokens are shown */
	bool include_stop; /* the stop string itself is kept */
	bool no_stop;	   /* a stop string that ends now is text like any other (min_tokens) */
	const struct dt_stop *stop;
	int nstop;
	char *text; /* every byte so far; not NUL-terminated */
	size_t n, cap;
	size_t ready; /* bytes of text that may be shown */
	int stopped;  /* which stop string ended it, -1: none yet */
};

void dt_detok_init(struct dt_detok *d, const struct dt_tokenizer *tok, const struct dt_stop *stop, int nstop);
void dt_detok_release(struct dt_detok *d);

/* Appends the bytes of id. Returns 1 when a stop string is complete (text then ends there), 0, or -ENOMEM. */
int dt_detok_push(struct dt_detok *d, int32_t id);
/* The same for raw bytes. */
int dt_detok_push_bytes(struct dt_detok *d, const char *s, size_t n);
/* Nothing follows: all of text is ready. */
void dt_detok_finish(struct dt_detok *d);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
