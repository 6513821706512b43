/* Shared by the files of this folder only. */
#ifndef DT_LOAD_INTERNAL_H
#define DT_LOAD_INTERNAL_H

#include "bench/load/client.h"

#include <curl/curl.h>

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

/* Parses n bytes of a stream that arrived at `now`, seconds since the start of the run. -ENOMEM. */
int dt_load_stream_push(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			double now);
/* images.c: the same for an unstreamed response; and, at its end, whether it names classes. */
int dt_load_take_classes(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			 double now);
void dt_load_end_classes(struct load_stream *s);
/* The message of an OpenAI error body, or the beginning of any other body. */
void dt_load_error_text(const char *body, char *ret, size_t n);

int dt_load_text_add(struct load_text *t, const char *s, size_t n); /* -ENOMEM */

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
