/* A request for the blocks of one prompt (serve/engine/kvpeers.h): builds it, and parses the response. */
#include "base/crc.h"
#include "base/progress.h"
#include "serve/engine/kvpeers_priv.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *hex(uint64_t v, char to[20])
{
	snprintf(to, 20, "%016" PRIx64, v);
	return to;
}

static char *question(const struct dt_kvpeers *p, const struct dt_kvshare *mem, const struct dt_kvask *a)
{
	char cache[20], salt[20], sum[20], nonce[2][20], *text;
	json_t *ids = json_array(), *v;

	for (int i = 0; i < a->to * p->p.block_size; i++)
		json_array_append_new(ids, json_integer(a->tokens[i]));
	v = json_pack("{s:s, s:I, s:i, s:s, s:i, s:o}", "cache", hex(p->p.name, cache), "block_bytes",
		      (json_int_t)p->p.block_bytes, "block_size", p->p.block_size, "salt", hex(a->salt, salt),
		      "from", a->from, "tokens", ids);
	if (v && a->adapter) {
		json_object_set_new(v, "model", json_string(a->adapter));
		json_object_set_new(v, "adapter", json_string(hex(a->sum, sum)));
	}
	if (v && !p->p.inline_only)
		json_object_set_new(v, "memory",
				    json_pack("{s:i, s:i, s:s, s:s}", "pid", (int)getpid(), "fd", mem->fd,
					      "nonce", hex(mem->nonce[0], nonce[0]), "nonce2",
					      hex(mem->nonce[1], nonce[1])));
	text = v ? json_dumps(v, JSON_COMPACT) : NULL;
	json_decref(v);
	return text;
}

static size_t on_body(char *data, size_t one, size_t n, void *arg)
{
	struct dt_kvget *g = arg;
	long status = 0;

	curl_easy_getinfo(g->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return dt_kvget_push(g, data, n) ? n : 0;
	for (size_t i = 0; i < n && g->nwhy + 1 < sizeof(g->why); i++)
		g->why[g->nwhy++] = data[i] < ' ' ? ' ' : data[i];
	g->why[g->nwhy] = '\0';
	return n;
}

struct dt_kvget *dt_kvget_new(struct dt_kvpeers *p, struct dt_kvpeer *peer, const struct dt_kvask *a)
{
	struct dt_kvget *g = calloc(1, sizeof(*g));
	struct dt_err err;

	if (!g)
		return NULL;
	g->of = p;
	g->peer = peer;
	g->n = a->to - a->from;
	g->block_bytes = p->p.block_bytes;
	g->began = g->last = dt_now();
	if (dt_kvshare_make(&g->mem, (size_t)g->n * g->block_bytes, &err) == 0)
		g->body = question(p, &g->mem, a);
	g->easy = g->body ? curl_easy_init() : NULL;
	if (!g->easy) {
		dt_kvget_free(g);
		return NULL;
	}
	curl_easy_setopt(g->easy, CURLOPT_URL, peer->url);
	curl_easy_setopt(g->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(g->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(g->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(g->easy, CURLOPT_BUFFERSIZE, 256L << 10);
	curl_easy_setopt(g->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(p->p.timeout * 1e3));
	curl_easy_setopt(g->easy, CURLOPT_POSTFIELDS, g->body);
	curl_easy_setopt(g->easy, CURLOPT_POSTFIELDSIZE, (long)strlen(g->body));
	curl_easy_setopt(g->easy, CURLOPT_HTTPHEADER, peer->head[p->p.nkeys > 0 ? a->tenant : 0]);
	curl_easy_setopt(g->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(g->easy, CURLOPT_WRITEDATA, g);
	curl_easy_setopt(g->easy, CURLOPT_PRIVATE, g);
	return g;
}

void dt_kvget_free(struct dt_kvget *g)
{
	curl_easy_cleanup(g->easy);
	dt_kvshare_release(&g->mem);
	free(g->body);
	free(g);
}

static bool wrong(struct dt_kvget *g, const char *what)
{
	g->failed = true;
	snprintf(g->why, sizeof(g->why), "%s", what);
	return false;
}

/* A block is complete: checks its checksum and counts it. */
static bool take_block(struct dt_kvget *g)
{
	const char *at = dt_kvshare_data(&g->mem) + (size_t)g->seen * g->block_bytes;

	if (dt_crc32(0, at, g->block_bytes) != g->rec.crc)
		return wrong(g, "a block came with a wrong checksum");
	g->seen++;
	g->shared += !g->rec.here;
	g->got = g->filled = 0;
	return true;
}

/* The header of a record is complete. */
static bool take_head(struct dt_kvget *g)
{
	if (g->rec.magic != DT_KVRECORD_MAGIC || g->whole)
		return wrong(g, "the answer is not one of blocks");
	if (g->rec.index == DT_KVRECORD_END) {
		g->whole = g->seen == g->n;
		g->got = 0;
		return g->whole || wrong(g, "blocks are missing");
	}
	if (g->rec.index != g->seen || g->seen == g->n || g->rec.here > 1)
		return wrong(g, "a block came out of its order");
	return g->rec.here || take_block(g);
}

bool dt_kvget_push(struct dt_kvget *g, const char *data, size_t n)
{
	while (n > 0) {
		const bool head = g->got < sizeof(g->rec);
		size_t want = head ? sizeof(g->rec) - g->got : g->block_bytes - g->filled;
		char *to = head ? (char *)&g->rec + g->got
				: dt_kvshare_data(&g->mem) + (size_t)g->seen * g->block_bytes + g->filled;

		want = want < n ? want : n;
		memcpy(to, data, want);
		data += want;
		n -= want;
		*(head ? &g->got : &g->filled) += want;
		if (head ? g->got == sizeof(g->rec) && !take_head(g)
			 : g->filled == g->block_bytes && !take_block(g))
			return false;
	}
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
