/* The page for browsers (page/, compiled in as text), and the scheduler's state that it shows. */
#include "serve/http/priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define NONCE	   "NONCE-OF-THE-REPLY" /* placeholder in the page for the reply's nonce */
#define LOOK	   2			/* seconds to wait for the end of a step */
#define SLOT_BYTES 512			/* bytes of memory for a slot, as values and as text */

/* Only the page's own script and style may run, and it may connect only to this server. */
static int add_policy(struct MHD_Response *r, const char *nonce)
{
	char csp[512];

	snprintf(csp, sizeof(csp),
		 "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
		 "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		 nonce, nonce);
	return MHD_add_response_header(r, "Content-Security-Policy", csp) == MHD_YES &&
			       MHD_add_response_header(r, "X-Content-Type-Options", "nosniff") == MHD_YES &&
			       MHD_add_response_header(r, "Referrer-Policy", "no-referrer") == MHD_YES &&
			       MHD_add_response_header(r, "Cache-Control", "no-store") == MHD_YES
		       ? 0
		       : -1;
}

enum MHD_Result dt_http_page(struct dt_http_req *q)
{
	const size_t width = strlen(NONCE), n = strlen(dt_http_page_text);
	char *text = strdup(dt_http_page_text), nonce[sizeof(NONCE)], *at = text;
	uint64_t bits;
	struct MHD_Response *r;

	if (!text)
		return MHD_NO;
	while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits))
		continue;
	snprintf(nonce, sizeof(nonce), "%0*llx", (int)width, (unsigned long long)bits);
	while ((at = strstr(at, NONCE)))
		memcpy(at, nonce, width);
	r = MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		free(text);
		return MHD_NO;
	}
	if (add_policy(r, nonce) < 0) {
		MHD_destroy_response(r);
		return MHD_NO;
	}
	dt_http_answered(q, n, false);
	return dt_http_reply(q, 200, r, "text/html; charset=utf-8");
}

/* Shows sizes and times of all requests, names only of the client's own tenant, and never text. */
static json_t *slot_json(const struct dt_http_req *q, const struct dt_slot *s)
{
	const struct dt_engine_params *p = dt_engine_params(q->engine);
	const bool own = s->tenant == q->tenant;
	json_t *v = json_pack("{s:I, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "id",
			      (json_int_t)s->number, "state", s->running ? "running" : "waiting", "own", own,
			      "prompt_tokens", s->prompt, "cached_tokens", s->cached, "computed_tokens",
			      s->computed, "generated_tokens", s->out, "max_tokens", s->max_tokens, "blocks",
			      s->blocks, "priority", s->priority, "age_seconds", s->age, "tokens_per_second",
			      s->rate);

	if (v && s->first >= 0)
		json_object_set_new(v, "ttft_seconds", json_real(s->first));
	if (v && own && p->ntenants > 0)
		json_object_set_new(v, "tenant", json_string(p->tenant[s->tenant].name));
	return v;
}

enum MHD_Result dt_http_slots(struct dt_http_req *q)
{
	const struct dt_engine_params *p = dt_engine_params(q->engine);
	struct dt_slots *s = calloc(1, sizeof(*s));
	struct dt_api_error e;
	json_t *list, *v;
	bool fresh;

	if (!s || !dt_http_take(q, DT_SLOTS_MAX * SLOT_BYTES)) {
		free(s);
		dt_http_no_memory(&e);
		return dt_http_reply_error(q, &e);
	}
	fresh = dt_engine_slots(q->engine, LOOK, s);
	list = json_array();
	for (int i = 0; i < s->n; i++)
		json_array_append_new(list, slot_json(q, &s->slot[i]));
	v = json_pack("{s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:o}",
		      "current", fresh, "running", s->running, "waiting", s->waiting, "max_num_seqs",
		      p->max_seqs, "max_num_batched_tokens", p->max_tokens, "block_size", p->block_size,
		      "blocks", s->blocks, "free_blocks", s->free_blocks, "step_tokens", s->step_tokens,
		      "steps", (json_int_t)s->steps, "preemptions", (json_int_t)s->preemptions,
		      "prefix_cache_queries", (json_int_t)s->prefix_queries, "prefix_cache_hits",
		      (json_int_t)s->prefix_hits, "step_seconds", s->stepping, "requests", list);
	free(s);
	return dt_http_reply_json(q, 200, v);
}

/* What clients of llama.cpp ask for. */
enum MHD_Result dt_http_props(struct dt_http_req *q)
{
	const struct dt_engine_params *p = dt_engine_params(q->engine);

	return dt_http_reply_json(q, 200,
				  json_pack("{s:{s:i}, s:i, s:s, s:s, s:{s:b, s:b}, s:s}",
					    "default_generation_settings", "n_ctx", p->max_len, "total_slots",
					    p->max_seqs, "model_path", q->params->model_name, "model_alias",
					    q->params->model_name, "modalities", "vision", 0, "audio", 0,
					    "build_info", DT_VERSION));
}
/* SPDX-License-Identifier: Apache-2.0 */
