/*
 * Computes prompts for other servers (the client is serve/engine/kvpeers.h), and the server's role. The
 * response has a record for each block as soon as it is computed, followed by the block unless it was written
 * to the client's shared memory. The prompt is computed only while the connection lasts, as for any other
 * request.
 */
#include "base/crc.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (256 * 1024) /* bytes sent at a time */

const char *dt_http_role_name(enum dt_http_role r)
{
	static const char *const name[] = {"none", "both", "prefill", "decode"};

	return name[r];
}

/* ---- parsing the request ---- */

struct asked {
	uint64_t cache, salt, sum, nonce[2];
	int64_t block_bytes, block_size, from, pid, fd;
	const json_t *tokens;
	const char *model; /* NULL: the base model */
	bool memory;
};

static int bad(struct dt_api_error *e, const char *what)
{
	return dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", what);
}

static bool read_hex(const json_t *o, const char *key, uint64_t *ret)
{
	const char *s = json_string_value(json_object_get(o, key));
	int end = 0;

	return s && strlen(s) == 16 && strspn(s, "0123456789abcdef") == 16 &&
	       sscanf(s, "%16" SCNx64 "%n", ret, &end) == 1 && end == 16;
}

static bool read_int(const json_t *o, const char *key, int64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	*ret = json_integer_value(v);
	return json_is_integer(v) && *ret >= 0 && *ret <= INT32_MAX;
}

static int read_body(const json_t *o, struct asked *a, struct dt_api_error *e)
{
	const json_t *m = json_object_get(o, "memory");

	if (!read_hex(o, "cache", &a->cache) || !read_hex(o, "salt", &a->salt))
		return bad(e, "'cache' and 'salt' must be 16 hexadecimal digits");
	if (!read_int(o, "block_bytes", &a->block_bytes) || !read_int(o, "block_size", &a->block_size) ||
	    !read_int(o, "from", &a->from))
		return bad(e, "'block_bytes', 'block_size' and 'from' must be numbers");
	a->tokens = json_object_get(o, "tokens");
	if (!json_is_array(a->tokens))
		return bad(e, "'tokens' must be an array of token ids");
	a->model = json_string_value(json_object_get(o, "model"));
	if (a->model && !read_hex(o, "adapter", &a->sum))
		return bad(e, "'adapter' must be 16 hexadecimal digits");
	a->memory = m != NULL;
	if (m && (!read_int(m, "pid", &a->pid) || !read_int(m, "fd", &a->fd) ||
		  !read_hex(m, "nonce", &a->nonce[0]) || !read_hex(m, "nonce2", &a->nonce[1])))
		return bad(e, "'memory' must have 'pid', 'fd', 'nonce' and 'nonce2'");
	return 0;
}

/* Checks that both servers have compatible caches, and that the tokens are whole blocks. */
static int check(const struct dt_engine_params *p, const struct asked *a, struct dt_api_error *e)
{
	const size_t n = json_array_size(a->tokens);

	if (a->cache != p->cache_name || a->block_bytes != (int64_t)p->model.block_bytes ||
	    a->block_size != p->block_size)
		return dt_api_fail(e, 409, "invalid_request_error", "other_cache",
				   "the KV caches differ: weights, configuration, types, block size, kind of "
				   "processor and version must be the same");
	if (n == 0 || n % (size_t)a->block_size || n / (size_t)a->block_size <= (size_t)a->from)
		return bad(e, "'tokens' must be whole blocks, with at least one after 'from'");
	return n > (size_t)p->max_len ? bad(e, "the prompt is longer than the context") : 0;
}

/* Finds the adapter of that name with the same checksum. */
static int find_adapter(const struct dt_engine_params *p, const struct asked *a, struct dt_call *c,
			struct dt_api_error *e)
{
	if (!a->model)
		return 0;
	c->adapter = p->adapters ? dt_adapters_find(p->adapters, a->model) : NULL;
	if (!c->adapter || c->adapter->sum != a->sum)
		return dt_api_fail(e, 409, "invalid_request_error", "other_adapter",
				   "this server has no adapter '%.100s', or a different one of that name",
				   a->model);
	return 0;
}

/*
 * Opens the output memory: the client's shared memory if it can be mapped, else own memory, which is charged
 * to the request.
 */
static int open_out(struct dt_http_req *q, const struct asked *a, int n, struct dt_api_error *e)
{
	struct dt_kvout *o = calloc(1, sizeof(*o));
	const size_t bytes = (size_t)(n - a->from) * (size_t)a->block_bytes;
	struct dt_err err;

	if (!o)
		return dt_http_no_memory(e);
	q->completion.call->out = o;
	o->block_bytes = (size_t)a->block_bytes;
	o->from = (int)a->from;
	o->n = n - (int)a->from;
	o->to.fd = -1;
	if (a->memory && dt_kvshare_join(&o->to, a->pid, a->fd, a->nonce, bytes) == 0)
		return 0;
	if (!dt_http_take(q, bytes) || dt_kvshare_make(&o->to, bytes, &err) < 0)
		return dt_http_no_memory(e);
	q->kv_here = true;
	return 0;
}

static int make_call(struct dt_http_req *q, const struct asked *a, struct dt_api_error *e)
{
	const struct dt_engine_params *p = dt_engine_params(q->engine);
	const size_t n = json_array_size(a->tokens);
	struct dt_call *c = q->completion.call = dt_call_new(1);
	int32_t *ids = malloc(n * sizeof(*ids));
	int rc = c && ids ? 0 : dt_http_no_memory(e);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		const json_t *v = json_array_get(a->tokens, i);
		const json_int_t id = json_integer_value(v);

		if (!json_is_integer(v) || id < 0 || id >= p->model.vocab)
			rc = bad(e, "'tokens' has an element that is not a token id");
		else
			ids[i] = (int32_t)id;
	}
	if (rc == 0 && dt_serve_req_set_prompt(&c->req[0], ids, n, 0) < 0)
		rc = dt_http_no_memory(e);
	free(ids);
	if (rc < 0)
		return rc;
	c->salt = a->salt;
	c->tenant = q->tenant;
	rc = find_adapter(p, a, c, e);
	return rc == 0 ? open_out(q, a, (int)(n / (size_t)a->block_size), e) : rc;
}

/* ---- response ---- */

/* Waits for the next block and sets q->kv_rec; 0: all were sent; -EIO: no more will come. */
static int next_record(struct dt_http_req *q)
{
	struct dt_call *c = q->completion.call;
	struct dt_kvout *o = c->out;
	bool come;

	pthread_mutex_lock(&c->mu);
	while (q->kv_sent < o->n && o->ready == q->kv_sent && c->open > 0 && !o->failed)
		pthread_cond_wait(&c->cond, &c->mu);
	come = o->ready > q->kv_sent;
	pthread_mutex_unlock(&c->mu);
	if (!come && (q->kv_sent < o->n || q->kv_ended))
		return q->kv_ended ? 0 : -EIO;
	q->kv_rec = (struct dt_kvrecord){.magic = DT_KVRECORD_MAGIC, .index = DT_KVRECORD_END};
	q->kv_ended = !come;
	q->kv_off = 0;
	if (come) {
		q->kv_rec.index = q->kv_sent;
		q->kv_rec.here = q->kv_here;
		q->kv_rec.crc = dt_crc32(0, dt_kvout_block(o, q->kv_sent++), o->block_bytes);
	}
	return 1;
}

static ssize_t read_records(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct dt_http_req *q = cls;
	const struct dt_kvout *o = q->completion.call->out;
	const size_t head = sizeof(q->kv_rec);
	const char *from;
	size_t all = q->kv_rec.magic ? head + (q->kv_rec.here ? o->block_bytes : 0) : 0, n;

	if (q->kv_off == all) {
		int rc = next_record(q);

		if (rc <= 0)
			return rc == 0 ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
		all = head + (q->kv_rec.here ? o->block_bytes : 0);
	}
	from = q->kv_off < head ? (const char *)&q->kv_rec + q->kv_off
				: dt_kvout_block(o, q->kv_rec.index) + (q->kv_off - head);
	n = q->kv_off < head ? head - q->kv_off : all - q->kv_off;
	n = n < max ? n : max;
	memcpy(buf, from, n);
	q->kv_off += n;
	return (ssize_t)n;
}

static enum MHD_Result reply_blocks(struct dt_http_req *q)
{
	struct MHD_Response *r =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE, read_records, q, NULL);

	if (!r)
		return MHD_NO;
	dt_http_answered(q, 0, true);
	return dt_http_reply(q, 200, r, "application/octet-stream");
}

enum MHD_Result dt_http_prefill(struct dt_http_req *q)
{
	const enum dt_http_role role = atomic_load(&q->http->role);
	struct dt_api_error e;
	struct asked a = {0};
	json_t *body = dt_http_body(q, &e);
	int rc = body ? 0 : -EINVAL;

	if (rc == 0 && role != DT_ROLE_BOTH && role != DT_ROLE_PREFILL) {
		rc = dt_api_fail(&e, 503, "server_error", "role",
				 "this server does not compute prompts for others: "
				 "its role is %s",
				 dt_http_role_name(role));
		e.retry_after = 1;
	}
	if (rc == 0)
		rc = read_body(body, &a, &e);
	if (rc == 0)
		rc = check(dt_engine_params(q->engine), &a, &e);
	if (rc == 0)
		rc = make_call(q, &a, &e);
	json_decref(body);
	if (rc == 0)
		rc = dt_http_submit(q, &e);
	return rc < 0 ? dt_http_reply_error(q, &e) : reply_blocks(q);
}

/* ---- prefill server of a request ---- */

int dt_http_peer(const struct dt_http_req *q, json_t *body, int *ret, struct dt_api_error *e)
{
	const struct dt_kvpeers_params *p = dt_engine_params(q->engine)->peers;
	const json_t *v = json_object_get(body, "kv_prefill");
	const char *name = json_string_value(v);

	*ret = 0;
	if (v && !name)
		return dt_api_fail(e, 400, "invalid_request_error", "kv_prefill",
				   "'kv_prefill' must be the URL of a server");
	if (p && name)
		*ret = dt_kvpeers_find(p, name);
	json_object_del(body, "kv_prefill");
	return 0;
}

/* ---- the role ---- */

enum MHD_Result dt_http_role(struct dt_http_req *q)
{
	return dt_http_reply_json(q, 200,
				  json_pack("{s:s}", "role", dt_http_role_name(atomic_load(&q->http->role))));
}

enum MHD_Result dt_http_set_role(struct dt_http_req *q)
{
	struct dt_api_error e;
	json_t *body = dt_http_body(q, &e);
	const char *name = json_string_value(json_object_get(body, "role"));
	int role = DT_ROLE_BOTH;

	if (!body)
		return dt_http_reply_error(q, &e);
	while (name && role <= DT_ROLE_DECODE &&
	       strcmp(name, dt_http_role_name((enum dt_http_role)role)) != 0)
		role++;
	if (!name || role > DT_ROLE_DECODE || json_object_size(body) != 1) {
		json_decref(body);
		bad(&e, "the body must be {\"role\": \"prefill\"}, \"decode\" or \"both\"");
		return dt_http_reply_error(q, &e);
	}
	json_decref(body);
	if (q->params->role == DT_ROLE_NONE) {
		dt_api_fail(&e, 400, "invalid_request_error", "role",
			    "this server was started without --role");
		return dt_http_reply_error(q, &e);
	}
	atomic_store(&q->http->role, role);
	return dt_http_role(q);
}
/* SPDX-License-Identifier: Apache-2.0 */
