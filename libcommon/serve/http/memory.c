/*
 * One budget for the memory that clients can make the server use: bodies, values parsed from them, queued
 * answers. A body is charged while it arrives, by an upper bound of the memory that parsing will need.
 */
#include "serve/http/priv.h"

#include <errno.h>

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

void dt_http_give(struct dt_http_req *q, size_t n)
{
	atomic_fetch_sub(&q->http->memory, n);
	q->memory -= n;
}

void dt_http_give_back(struct dt_http_req *q)
{
	atomic_fetch_sub(&q->http->memory, q->memory);
	q->memory = 0;
}

int dt_http_too_large(struct dt_http_req *q, struct dt_api_error *e)
{
	const size_t hidden = (size_t)dt_engine_params(q->engine)->model.hidden;
	const size_t kept = q->completion.stream ? dt_completion_kept_cost(&q->completion) : 0;
	const size_t need = dt_completion_known_cost(&q->completion, hidden) + kept,
		     max = q->params->max_memory;

	if (need <= max)
		return 0;
	dt_api_fail(e, 400, "invalid_request_error", "answer_too_large",
		    "the answer could take %zu MiB, more than the %zu MiB of --http-mem: ask for fewer or "
		    "shorter prompts or fewer log-probabilities",
		    need >> 20, max >> 20);
	return -EINVAL;
}

int dt_http_charge_images(struct dt_http_req *q, struct dt_api_error *e)
{
	const struct dt_engine_params *p = dt_engine_params(q->engine);
	const size_t side = p->vision ? (size_t)p->vision->tile : 0;

	return dt_http_take(q,
			    dt_completion_images_cost(&q->completion, 3 * side * side, p->model.tile_bytes))
		       ? 0
		       : dt_http_no_memory(e);
}

int dt_http_charge_stream(struct dt_http_req *q, struct dt_api_error *e)
{
	const size_t need =
		dt_completion_known_cost(&q->completion, 0) + dt_completion_kept_cost(&q->completion);

	return q->completion.stream && !dt_http_take(q, need) ? dt_http_no_memory(e) : 0;
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
