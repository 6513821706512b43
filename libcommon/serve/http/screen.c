/*
 * Checks the request line and the headers. Requests that another HTTP parser could frame differently are
 * refused (request smuggling: RFC 9112, section 11.2); libmicrohttpd alone is lenient.
 */
#include "serve/http/priv.h"

#include "base/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FORM 65536 /* bytes of a form besides its file */

struct headers {
	size_t bytes; /* of lines "Name: value\r\n" */
	int lengths, encodings, hosts;
	const char *length, *encoding, *host;
	bool bad;
};

static enum MHD_Result look(void *cls, enum MHD_ValueKind kind, const char *key, size_t nkey,
			    const char *value, size_t n)
{
	struct headers *h = cls;

	h->bytes += nkey + 2 + n + 2;
	h->bad |= !dt_http_is_token(key, nkey) || !dt_http_is_text(value ? value : "", n);
	if (!strcasecmp(key, "Content-Length")) {
		h->lengths++;
		h->length = value;
	} else if (!strcasecmp(key, "Transfer-Encoding")) {
		h->encodings++;
		h->encoding = value;
	} else if (!strcasecmp(key, "Host")) {
		h->hosts++;
		h->host = value;
	}
	return MHD_YES;
}

static int bad_frame(struct dt_api_error *e, const char *why)
{
	return dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", why);
}

static int check_frame(struct dt_http_req *q, const char *method, const char *version, struct headers *h,
		       struct dt_api_error *e)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(q->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	size_t line = strlen(method) + 1 + q->uri_bytes + 1 + strlen(version) + 2;

	MHD_get_connection_values_n(q->mhd, MHD_HEADER_KIND, look, h);
	if (h->bad)
		return bad_frame(e, "a header contains an invalid character");
	if (h->lengths > 1)
		return bad_frame(e, "Content-Length occurs twice");
	if (h->lengths && h->encodings)
		return bad_frame(e, "Content-Length and Transfer-Encoding cannot be combined");
	if (h->length && (!*h->length || strspn(h->length, "0123456789") != strlen(h->length)))
		return bad_frame(e, "Content-Length is not a number");
	if (h->encodings > 1 || (h->encoding && strcasecmp(h->encoding, "chunked")))
		return bad_frame(e, "Transfer-Encoding is not chunked");
	if (h->hosts > 1 || (h->hosts == 0 && strcmp(version, "HTTP/1.0")))
		return bad_frame(e, "a request must have exactly one Host header");
	/* libmicrohttpd cuts a line at a NUL, but counts the bytes behind it. */
	if (i && i->header_size > line + h->bytes + 2)
		return bad_frame(e, "the headers contain a NUL or white space where it is not allowed");
	return 0;
}

/* ---- cross-origin requests ---- */

static bool is_own_name(const struct dt_http_req *q, const char *host)
{
	return dt_http_is_own_name(host, strlen(host), q->params->host);
}

/* Whether the origin is in --allow-origin. */
static bool is_allowed(const struct dt_http_req *q, const char *origin)
{
	const char *at = q->params->allow_origin;
	size_t n = strlen(origin);

	while (at && *at) {
		size_t len = strcspn(at, ",");

		if ((len == 1 && *at == '*') || (len == n && !strncasecmp(at, origin, n)))
			return true;
		at += len + (at[len] == ',');
	}
	return false;
}

/*
 * Whether the origin is this server's own page: "http://" and the request's Host, which must be a name that
 * no foreign page can have. Behind a TLS proxy the scheme is https.
 */
static bool is_own_page(const struct dt_http_req *q, const char *origin, const char *host)
{
	size_t n = !strncasecmp(origin, "http://", 7) ? 7 : !strncasecmp(origin, "https://", 8) ? 8 : 0;

	return n > 0 && host && !strcasecmp(origin + n, host) && is_own_name(q, host);
}

/*
 * Without keys anyone who reaches the server may use it, and a browser on this machine reaches it on behalf
 * of any web page. So requests from pages are accepted only from allowed origins, and a foreign host name
 * that resolves to this machine (DNS rebinding) is refused.
 */
static int check_origin(struct dt_http_req *q, const char *host, struct dt_api_error *e)
{
	const char *origin = MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "Origin");

	if (origin && is_allowed(q, origin))
		q->origin = origin;
	if (q->params->nkeys > 0)
		return 0;
	if (origin && !q->origin && !is_own_page(q, origin, host))
		return dt_api_fail(
			e, 403, "invalid_request_error", "origin_not_allowed",
			"web pages of '%.200s' may not use this server; --allow-origin lists those "
			"that may",
			origin);
	if (host && q->http->loopback && !is_own_name(q, host))
		return dt_api_fail(e, 403, "invalid_request_error", "host_not_allowed",
				   "'%.200s' is not a name of this server", host);
	return 0;
}

bool dt_http_is_preflight(struct dt_http_req *q, const char *method)
{
	return !strcmp(method, "OPTIONS") &&
	       MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "Access-Control-Request-Method");
}

/* ---- authentication and routing ---- */

static bool equal_keys(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	unsigned diff = n != m;

	/* Constant time in b, so that timing does not reveal the key. */
	for (size_t i = 0; i < n; i++)
		diff |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
	return diff == 0;
}

/* Checks the key and sets the client's tenant; *ret_given: there is a key. */
static bool authorised(struct dt_http_req *q, bool *ret_given)
{
	const char *h = MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "Authorization");
	const char *x =
		MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "X-Api-Key"); /* Anthropic's clients */
	bool ok = q->params->nkeys == 0;

	if (h && !strncasecmp(h, "Bearer ", 7))
		x = h + 7;
	*ret_given = x != NULL;
	if (ok || !x)
		return ok;
	for (int i = 0; i < q->params->nkeys; i++)
		if (equal_keys(x, q->params->keys[i].key)) {
			q->tenant = q->params->keys[i].tenant;
			ok = true;
		}
	return ok;
}

/* A compressed body would be no JSON. */
static int check_coding(struct dt_http_req *q, struct dt_api_error *e)
{
	const char *coding = MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "Content-Encoding");

	if (!coding || !*coding || !strcasecmp(coding, "identity"))
		return 0;
	return dt_api_fail(e, 415, "invalid_request_error", "unsupported_content_encoding",
			   "this server takes no body with Content-Encoding '%.50s'", coding);
}

static int check_route(struct dt_http_req *q, const char *method, const char *length, struct dt_api_error *e)
{
	bool given, known = authorised(q, &given);

	q->route = dt_route_find(method, q->path, &q->allow);
	if (!(q->route && q->route->flags & DT_ROUTE_OPEN) && !known)
		return dt_api_fail(e, 401, "authentication_error", "invalid_api_key",
				   given ? "this server does not know this API key"
					 : "this server requires an API key: 'Authorization: Bearer KEY'");
	if (!q->allow)
		return dt_api_fail(e, 404, "invalid_request_error", "not_found", "unknown route '%.200s'",
				   q->path);
	if (!q->route)
		return dt_api_fail(e, 405, "invalid_request_error", "method_not_allowed",
				   "'%.200s' only accepts %s", q->path, q->allow);
	if (!(q->route->flags & DT_ROUTE_SPARE) && !dt_http_make_place(q)) {
		dt_api_fail(e, 503, "server_error", "too_many_connections",
			    "this server has reached its limit of connections");
		e->retry_after = 1;
		return -EINVAL;
	}
	if (q->classify && !(q->route->flags & DT_ROUTE_ANY))
		return dt_api_fail(e, 404, "invalid_request_error", "not_found",
				   "'%.200s' is only for models of text", q->path);
	if (!q->engine && !q->classify && !(q->route->flags & DT_ROUTE_EARLY)) {
		dt_api_fail(e, 503, "server_error", "loading", "the model is still loading");
		e->retry_after = 5;
		return -EINVAL;
	}
	size_t max = q->route->flags & DT_ROUTE_UPLOAD ? DT_STORE_UPLOAD + FORM : q->params->max_body;

	if (length && strtoull(length, NULL, 10) > max)
		return dt_api_fail(e, 413, "invalid_request_error", "body_too_large",
				   "the body is larger than %zu bytes", max);
	return check_coding(q, e);
}

int dt_http_screen(struct dt_http_req *q, const char *method, const char *version, struct dt_api_error *e)
{
	struct headers h = {0};

	if (check_frame(q, method, version, &h, e) < 0 || check_origin(q, h.host, e) < 0)
		return -EINVAL;
	return dt_http_is_preflight(q, method) ? 0 : check_route(q, method, h.length, e);
}

enum MHD_Result dt_http_preflight(struct dt_http_req *q)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	if (q->origin) {
		MHD_add_response_header(r, "Access-Control-Allow-Origin", q->origin);
		MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE");
		MHD_add_response_header(r, "Access-Control-Allow-Headers", "Authorization, Content-Type");
		MHD_add_response_header(r, "Access-Control-Max-Age", "600");
	}
	MHD_add_response_header(r, "Vary", "Origin");
	rc = MHD_queue_response(q->mhd, q->origin ? 204 : 403, r);
	MHD_destroy_response(r);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
