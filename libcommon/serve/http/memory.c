/*
 * One budget for the memory that clients can make the server use: bodies, values parsed from them, queued
 * answers. A body is charged while it arrives, by an upper bound of the memory that parsing will need.
 */
#include "serve/http/priv.h"

/* Bytes of jansson's values on a 64-bit machine, rounded up, including malloc's overhead. */
#define OBJECT_BYTES 288
#define ARRAY_BYTES  160
#define VALUE_BYTES  128 /* an element, or a key and its value */
#define TEXT_COPIES  6	 /* as JSON string, prompt and tokens */

bool dt_http_take(struct dt_http_req *q, size_t n)
{
	size_t max = q->params->max_memory, was = atomic_fetch_add(&q->http->memory, n);

	if (was + n > max) {
		atomic_fetch_sub(&q->http->memory, n);
		return false;
	}
	q->memory += n;
	return true;
}

void dt_http_give_back(struct dt_http_req *q)
{
	atomic_fetch_sub(&q->http->memory, q->memory);
	q->memory = 0;
}

size_t dt_http_json_cost(struct dt_http_req *q, const char *s, size_t n)
{
	size_t cost = TEXT_COPIES * n;

	for (size_t i = 0; i < n; i++) {
		if (q->in_string) {
			if (q->escaped)
				q->escaped = false;
			else if (s[i] == '\\')
				q->escaped = true;
			else if (s[i] == '"')
				q->in_string = false;
			continue;
		}
		q->in_string = s[i] == '"';
		cost += s[i] == '{'		     ? OBJECT_BYTES
			: s[i] == '['		     ? ARRAY_BYTES
			: s[i] == ',' || s[i] == ':' ? VALUE_BYTES
						     : 0;
	}
	return cost;
}
/* SPDX-License-Identifier: Apache-2.0 */
