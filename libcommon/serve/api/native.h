/* llama.cpp's own format (tools/server/README.md there): the endpoints /completion and /infill. */
#ifndef DT_SERVE_NATIVE_H
#define DT_SERVE_NATIVE_H

#include "serve/api/openai.h"

/* As dt_completion_parse (serve/api/openai.h). */
int dt_native_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		    struct dt_api_error *e);
int dt_infill_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *ret,
		    struct dt_api_error *e);
/* The reply to a finished call: an object, or an array of them if there are several answers. */
json_t *dt_native_json(const struct dt_completion *c, struct dt_api_error *e);
/* Upper bound of the memory that the prompt and the settings of r take in a reply. */
size_t dt_native_cost(const struct dt_completion *c, const struct dt_serve_req *r);
/*
 * The event of r's text from byte `at` on and its tokens [from, to); the last one if r has ended and `to` is
 * the number of its tokens. Call with the call locked. NULL: out of memory.
 */
json_t *dt_native_event(const struct dt_completion *c, const struct dt_serve_req *r, size_t at, int from,
			int to);

/*
 * For openai.c. defaults: llama.cpp's values of keys that a body lacks. read: checks the keys that only these
 * bodies have. infill: the prompt of /infill. -EINVAL with b->e filled.
 */
struct dt_body;
void dt_native_defaults(struct dt_body *b);
int dt_native_read(struct dt_body *b, struct dt_completion *c);
int dt_native_infill(struct dt_body *b);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
