/* What the files of this row share; not for others. */
#ifndef DT_LOAD_INTERNAL_H
#define DT_LOAD_INTERNAL_H

#include "bench/load/client.h"

#include <curl/curl.h>

struct load_text { /* grows; n without the NUL that always follows */
	char *s;
	size_t n, cap;
};

struct load_stream {		      /* of server-sent events */
	struct load_text line, reply; /* reply only where keep is set */
	bool keep, done, failed;
	char what[200];
};

/* Takes n bytes of a stream that came at `now`, seconds from the start of the run. -ENOMEM. */
int dt_load_stream_push(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			double now);
/* images.c: the same of an answer that is no stream, and its end: whether it names classes. */
int dt_load_take_classes(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			 double now);
void dt_load_end_classes(struct load_stream *s);
/* The message in a body of OpenAI's error shape, else the body's beginning. */
void dt_load_error_text(const char *body, char *ret, size_t n);

int dt_load_text_add(struct load_text *t, const char *s, size_t n); /* -ENOMEM */

/*
 * prompt.c: the body of request i. history: the conversation so far, a JSON string (text) or a list of
 * messages; NULL at its first turn. *ret_said is what must be kept of it for the next turn, NULL where no
 * turn follows. NULL: out of memory.
 */
char *dt_load_body(const struct dt_load_target *t, const struct dt_load *l, int i, const json_t *history,
		   json_t **ret_said);
/* The history of the next turn: what was said and the reply. Steals said. NULL: out of memory. */
json_t *dt_load_reply(const struct dt_load_target *t, json_t *said, const char *reply);
/* The words prompts are made of, separated by spaces. */
char *dt_load_words(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
