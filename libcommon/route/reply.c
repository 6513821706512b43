/* Responses of the router itself; errors have the format of the client's API. */
#include "base/json.h"
#include "base/utf8.h"
#include "route/priv.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dt_route_reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} known[] = {{200, "OK"},
		     {201, "Created"},
		     {202, "Accepted"},
		     {204, "No Content"},
		     {400, "Bad Request"},
		     {401, "Unauthorized"},
		     {403, "Forbidden"},
		     {404, "Not Found"},
		     {405, "Method Not Allowed"},
		     {408, "Request Timeout"},
		     {413, "Content Too Large"},
		     {422, "Unprocessable Content"},
		     {429, "Too Many Requests"},
		     {431, "Request Header Fields Too Large"},
		     {500, "Internal Server Error"},
		     {502, "Bad Gateway"},
		     {503, "Service Unavailable"},
		     {504, "Gateway Timeout"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].status == status)
			return known[i].text;
	return "Status";
}

/* ---- responses ---- */

const char *dt_route_connection(struct dt_route_client *c)
{
	if (c->r->draining)
		c->keep = false;
	return !c->keep ? "Connection: close\r\n" : c->http10 ? "Connection: keep-alive\r\n" : "";
}

void dt_route_reply(struct dt_route_client *c, int status, const char *type, const char *body, size_t n,
		    const char *headers)
{
	if (status < 600 && !c->x) /* exchanges are counted when they end */
		c->r->stats.status[status]++;
	dt_route_conn_printf(&c->conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s",
			     status, dt_route_reason(status), type, n, dt_route_connection(c));
	dt_route_conn_put(&c->conn, headers, strlen(headers));
	dt_route_conn_put(&c->conn, "\r\n", 2);
	if (!c->is_head)
		dt_route_conn_put(&c->conn, body, n);
	dt_route_conn_flush(&c->conn);
}

/* Names of error types in OpenAI's and in Anthropic's API. */
static const char *type_of(int status, bool messages)
{
	static const struct {
		int status;
		const char *openai, *anthropic;
	} known[] = {{401, "authentication_error", "authentication_error"},
		     {403, "permission_error", "permission_error"},
		     {404, "invalid_request_error", "not_found_error"},
		     {413, "invalid_request_error", "request_too_large"},
		     {429, "rate_limit_error", "rate_limit_error"},
		     {503, "server_error", "overloaded_error"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].status == status)
			return messages ? known[i].anthropic : known[i].openai;
	return status < 500 ? "invalid_request_error" : messages ? "api_error" : "server_error";
}

void dt_route_reply_error(struct dt_route_client *c, int status, const char *code, int retry_after,
			  const char *headers, const char *msg)
{
	json_t *v = dt_route_error_json(c->messages, status, code, msg);
	char *text = v ? json_dumps(v, JSON_COMPACT) : NULL, more[1024];

	snprintf(more, sizeof(more), "%s", headers);
	if (retry_after > 0)
		snprintf(more + strlen(more), sizeof(more) - strlen(more), "Retry-After: %d\r\n",
			 retry_after);
	dt_route_reply(c, status, "application/json", text ? text : "", text ? strlen(text) : 0, more);
	free(text);
	json_decref(v);
}

json_t *dt_route_error_json(bool messages, int status, const char *code, const char *msg)
{
	const char *type = type_of(status, messages);
	size_t n;
	char *clean = dt_utf8_clean(msg, strlen(msg), &n); /* it may quote input cut within a character */
	json_t *text = json_string(clean ? clean : "out of memory");

	free(clean);

	if (messages)
		return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
				 text);
	return json_pack("{s:{s:o,s:s,s:s?,s:s}}", "error", "message", text, "type", type, "param",
			 strcmp(code, "model_not_found") != 0 ? NULL : "model", "code", code);
}
/* SPDX-License-Identifier: Apache-2.0 */
