/* Shared by the files of this folder only. */
#ifndef DT_LOAD_INTERNAL_H
#define DT_LOAD_INTERNAL_H

#include "bench/load/client.h"

#include <curl/curl.h>

#define DT_LOAD_MOST_TEXT (8 << 20) /* bytes of one line, one text or one answer that is kept */

struct load_text { /* growable buffer; n excludes the terminating NUL */
	char *s;
	size_t n, cap;
};

struct load_stream {		      /* parser of server-sent events */
	struct load_text line, reply; /* reply is filled only if keep is set */
	bool keep, done, failed;
	bool begun, counted; /* an event arrived; one had the usage */
	char what[200];
};

/*
 * Parses n bytes of a stream that arrived at `now`, seconds since the start of the run. -ENOMEM. -EMSGSIZE:
 * what has to be kept of it is larger than any answer; s->what says so.
 */
int dt_load_stream_push(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			double now);
/* images.c: the same for an unstreamed response; and, at its end, whether it names classes. */
int dt_load_take_classes(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			 double now);
void dt_load_end_classes(struct load_stream *s);
/* The message of an OpenAI error body, or the beginning of any other body, without control characters. */
void dt_load_error_text(const char *body, char *ret, size_t n);
/* The same for an answer with another status than 200 to a finished request. body: NULL if it has none. */
void dt_load_refusal_text(CURL *c, const char *body, char *ret, size_t n);

int dt_load_text_add(struct load_text *t, const char *s, size_t n); /* -ENOMEM */
/* Fails the stream because `what` of it is longer than DT_LOAD_MOST_TEXT. Returns -EMSGSIZE. */
int dt_load_too_long(struct load_stream *s, const char *what);

/*
 * prompt.c: the body of request i. history: the conversation so far, a JSON string (text) or a list of
 * messages; NULL in the first turn. *ret_said: what the next turn needs of this one, NULL if there is none.
 * Returns NULL when out of memory.
 */
char *dt_load_body(const struct dt_load_target *t, const struct dt_load *l, int i, const json_t *history,
		   json_t **ret_said);
/* The history for the next turn: said plus the reply. Takes over said. NULL: out of memory. */
json_t *dt_load_reply(const struct dt_load_target *t, json_t *said, const char *reply);
/* The words that prompts are made of, separated by spaces. */
char *dt_load_words(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
