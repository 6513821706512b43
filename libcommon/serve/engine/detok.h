/*
 * Incremental detokenizer: turns generated token ids into text that may be sent. Bytes are held back while
 * they could still become part of a UTF-8 character or of a stop string. Text that is ready never changes.
 */
#ifndef DT_SERVE_DETOK_H
#define DT_SERVE_DETOK_H

#include "data/tokenizer.h"

#define DT_STOP_MAX 16 /* max stop strings of a request */

struct dt_stop {
	char *s;
	size_t n; /* > 0 */
};

struct dt_detok {
	const struct dt_tokenizer *tok;
	bool special;	   /* special tokens are part of the text */
	bool include_stop; /* the stop string is kept in the text */
	bool no_stop;	   /* stop strings are ignored for now (min_tokens) */
	const struct dt_stop *stop;
	int nstop;
	char *text; /* all bytes so far; not NUL-terminated; NULL before the first */
	size_t n, cap;
	size_t ready; /* bytes of text that may be sent */
	int stopped;  /* index of the stop string that ended the text, -1: none yet */
};

void dt_detok_init(struct dt_detok *d, const struct dt_tokenizer *tok, const struct dt_stop *stop, int nstop);
void dt_detok_release(struct dt_detok *d);

/* Appends the bytes of id. Returns 1 when a stop string is complete (text then ends there), 0, or -ENOMEM. */
int dt_detok_push(struct dt_detok *d, int32_t id);
/* As dt_detok_push, for raw bytes. */
int dt_detok_push_bytes(struct dt_detok *d, const char *s, size_t n);
/* Ends the text: all of it is ready. */
void dt_detok_finish(struct dt_detok *d);
/* The text from byte `from` on, which is at most n; never NULL. */
static inline const char *dt_detok_from(const struct dt_detok *d, size_t from)
{
	return d->text ? d->text + from : "";
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
