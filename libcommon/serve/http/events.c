/* GET /kv/events: which marks of prompts were stored in the cache or removed (serve/sched/kvmarks.h). */
#include "serve/http/priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS	    16	/* hexadecimal digits of a mark */
#define EVENT_BYTES 200 /* memory of a mark in JSON while the answer is built */

static int bad(struct dt_api_error *e, const char *what)
{
	return dt_api_fail(e, 400, "invalid_request_error", "kv_marks", "'kv_marks' %s", what);
}

int dt_http_marks(json_t *body, struct dt_http_marks *ret, struct dt_api_error *e)
{
	json_t *o = json_object_get(body, "kv_marks"), *share = json_object_get(o, "share");
	const char *names = json_string_value(json_object_get(o, "names"));
	size_t n = json_string_length(json_object_get(o, "names")) / DIGITS;
	double step = json_number_value(share);

	*ret = (struct dt_http_marks){0};
	if (!o)
		return 0;
	if (!names || !json_is_number(share) || n > DT_KVMARKS_MOST || strlen(names) != n * DIGITS)
		return bad(e, "is not {\"share\": NUMBER, \"names\": 16 hexadecimal digits for each}");
	if (!isfinite(step) || step <= 0 || step * (double)n > 1.001)
		return bad(e, "has more names than 1 / share");
	ret->mark = calloc(n + 1, sizeof(*ret->mark));
	if (!ret->mark) {
		dt_http_no_memory(e);
		return -EINVAL;
	}
	for (; ret->n < (int)n; ret->n++) {
		char text[DIGITS + 1] = {0};

		memcpy(text, names + (size_t)ret->n * DIGITS, DIGITS);
		if (strspn(text, "0123456789abcdef") != DIGITS) {
			free(ret->mark);
			*ret = (struct dt_http_marks){0};
			return bad(e, "has a name that is not hexadecimal");
		}
		ret->mark[ret->n] = strtoull(text, NULL, 16);
	}
	ret->share = fmin(step, 1);
	json_object_del(body, "kv_marks");
	return 0;
}

void dt_http_marks_give(struct dt_http_marks *m, struct dt_completion *c)
{
	struct dt_ask *ask = &c->call->ask;

	if (c->nprompts != 1 || m->n == 0) {
		free(m->mark);
		return;
	}
	ask->mark = m->mark;
	ask->nmarks = m->n;
	ask->mark_share = m->share;
}

/* One object for each run of consecutive events of the same kind. */
static json_t *runs(const struct dt_kvmark_event *e, size_t n)
{
	json_t *list = json_array(), *names = NULL;
	char text[DIGITS + 1];

	for (size_t i = 0; i < n; i++) {
		if (i == 0 || e[i].stored != e[i - 1].stored) {
			names = json_array();
			json_array_append_new(list, json_pack("{s:s, s:o}", "type",
							      e[i].stored ? "BlockStored" : "BlockRemoved",
							      "names", names));
		}
		snprintf(text, sizeof(text), "%016llx", (unsigned long long)e[i].mark);
		json_array_append_new(names, json_string(text));
	}
	return list;
}

enum MHD_Result dt_http_events(struct dt_http_req *q)
{
	const char *after = MHD_lookup_connection_value(q->mhd, MHD_GET_ARGUMENT_KIND, "after");
	struct dt_kvmarks *m = dt_engine_marks(q->engine);
	unsigned long long epoch = 0, seq = 0;
	struct dt_kvmark_event *e = NULL;
	struct dt_api_error error;
	uint64_t now_epoch, now_seq;
	bool cleared;
	size_t n;
	char text[48];
	json_t *v;

	if (after && sscanf(after, "%16llx.%llu", &epoch, &seq) != 2) {
		dt_api_fail(&error, 400, "invalid_request_error", "after",
			    "'after' is not the 'next' of an earlier answer");
		return dt_http_reply_error(q, &error);
	}
	if (!m || dt_kvmarks_read(m, epoch, seq, &e, &n, &now_epoch, &now_seq, &cleared) < 0 ||
	    !dt_http_take(q, n * EVENT_BYTES)) {
		free(e);
		dt_http_no_memory(&error);
		return dt_http_reply_error(q, &error);
	}
	snprintf(text, sizeof(text), "%016llx.%llu", (unsigned long long)now_epoch,
		 (unsigned long long)now_seq);
	v = json_pack("{s:s, s:b, s:o}", "next", text, "cleared", cleared, "events", runs(e, n));
	free(e);
	return dt_http_reply_json(q, 200, v);
}
/* SPDX-License-Identifier: Apache-2.0 */
