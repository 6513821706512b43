/*
 * Streams of server-sent events, as dt-loadgen and dt-eval read them from a server. However a stream is cut
 * into pieces, the same text, tokens, moments and outcome come of it.
 */
#include "bench/load/internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int push(struct load_stream *s, struct dt_load_result *r, const uint8_t *data, size_t n, size_t piece)
{
	int rc = 0;

	for (size_t at = 0; at < n && rc == 0; at += piece)
		rc = dt_load_stream_push(s, r, (const char *)data + at, n - at < piece ? n - at : piece, 1.5);
	return rc;
}

static void release(struct load_stream *s, struct dt_load_result *r)
{
	free(s->line.s);
	free(s->reply.s);
	free(r->gap);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const size_t piece[] = {1, 7, 64};
	struct load_stream s = {.keep = true};
	struct dt_load_result r = {.first = -1};
	int rc = push(&s, &r, data, n, n ? n : 1);

	if (s.reply.s && strlen(s.reply.s) != s.reply.n)
		abort();
	if (s.what[0] && !s.failed)
		abort();
	for (const char *p = s.what; *p; p++)
		if ((unsigned char)*p < 0x20)
			abort();
	for (size_t i = 0; i < sizeof(piece) / sizeof(piece[0]); i++) {
		struct load_stream t = {.keep = true};
		struct dt_load_result q = {.first = -1};

		if (push(&t, &q, data, n, piece[i]) != rc || t.done != s.done || t.failed != s.failed ||
		    strcmp(t.what, s.what) || t.reply.n != s.reply.n || t.line.n != s.line.n ||
		    (s.reply.n && memcmp(t.reply.s, s.reply.s, s.reply.n)) || q.first != r.first ||
		    q.ngap != r.ngap || q.input != r.input || q.output != r.output || q.cached != r.cached)
			abort();
		release(&t, &q);
	}
	release(&s, &r);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
