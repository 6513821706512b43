#include "route/http1.h"

#include "base/http.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#define MAX_EXTRA 8192 /* max bytes of chunk extensions, and of trailers */

bool dt_route_is(struct dt_route_text t, const char *s)
{
	return t.s && strlen(s) == t.n && !strncasecmp(t.s, s, t.n);
}

struct dt_route_text dt_route_header(const struct dt_route_head *h, const char *name)
{
	for (int i = 0; i < h->n; i++)
		if (dt_route_is(h->header[i].name, name))
			return h->header[i].value;
	return (struct dt_route_text){0};
}

/* Whether word is in a comma-separated list such as "close, TE". */
static bool has_word(struct dt_route_text list, struct dt_route_text word)
{
	for (size_t at = 0; at < list.n;) {
		const char *s = list.s + at, *comma = memchr(s, ',', list.n - at);
		size_t n = comma ? (size_t)(comma - s) : list.n - at;

		at += n + 1;
		while (n > 0 && (*s == ' ' || *s == '\t'))
			s++, n--;
		while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'))
			n--;
		if (n == word.n && !strncasecmp(s, word.s, n))
			return true;
	}
	return false;
}

bool dt_route_hop_by_hop(const struct dt_route_head *h, struct dt_route_text name)
{
	static const char *const hop[] = {"connection",
					  "keep-alive",
					  "proxy-connection",
					  "proxy-authenticate",
					  "proxy-authorization",
					  "te",
					  "trailer",
					  "transfer-encoding",
					  "upgrade"};

	for (size_t i = 0; i < sizeof(hop) / sizeof(*hop); i++)
		if (dt_route_is(name, hop[i]))
			return true;
	for (int i = 0; i < h->n; i++)
		if (dt_route_is(h->header[i].name, "connection") && has_word(h->header[i].value, name))
			return true;
	return false;
}

/* ---- lines ---- */

static bool is_version(const char *s, size_t n, int *minor)
{
	if (n != 8 || memcmp(s, "HTTP/1.", 7) || (s[7] != '0' && s[7] != '1'))
		return false;
	*minor = s[7] - '0';
	return true;
}

static const char *request_line(const char *s, size_t n, struct dt_route_head *h)
{
	const char *a = memchr(s, ' ', n), *b;

	if (!a || !dt_http_is_token(s, (size_t)(a - s)))
		return "the request line has no method";
	h->method = (struct dt_route_text){s, (size_t)(a - s)};
	a++;
	b = memchr(a, ' ', n - (size_t)(a - s));
	a += b ? dt_http_before_path(a, (size_t)(b - a)) : 0;
	if (!b || b == a || *a != '/')
		return "the request line has no path";
	h->target = (struct dt_route_text){a, (size_t)(b - a)};
	for (const char *c = a; c < b; c++)
		if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
			return "the path contains an invalid character";
	b++;
	return is_version(b, n - (size_t)(b - s), &h->minor) ? NULL
							     : "the version is not HTTP/1.1 or HTTP/1.0";
}

static const char *status_line(const char *s, size_t n, struct dt_route_head *h)
{
	if (n < 12 || !is_version(s, 8, &h->minor) || s[8] != ' ' || (n > 12 && s[12] != ' '))
		return "this is not an HTTP response";
	for (int i = 9; i < 12; i++)
		if (!isdigit((unsigned char)s[i]))
			return "the status is not a number";
	h->status = (s[9] - '0') * 100 + (s[10] - '0') * 10 + (s[11] - '0');
	return h->status >= 100 && dt_http_is_text(s + 12, n - 12) ? NULL : "the status line is wrong";
}

static const char too_many[] = "there are too many headers";

static const char *header_line(const char *s, size_t n, struct dt_route_head *h)
{
	const char *colon = memchr(s, ':', n), *v;
	size_t left;

	if (!colon || !dt_http_is_token(s, (size_t)(colon - s)))
		return "a header contains an invalid character";
	if (h->n == DT_ROUTE_MAX_HEADERS)
		return too_many;
	v = colon + 1;
	left = n - (size_t)(v - s);
	while (left > 0 && (*v == ' ' || *v == '\t'))
		v++, left--;
	while (left > 0 && (v[left - 1] == ' ' || v[left - 1] == '\t'))
		left--;
	if (!dt_http_is_text(v, left))
		return "a header contains an invalid character";
	h->header[h->n++] = (struct dt_route_header){{s, (size_t)(colon - s)}, {v, left}};
	return NULL;
}

/* ---- framing ---- */

static const char *length_of(struct dt_route_text v, uint64_t *ret)
{
	*ret = 0;
	if (v.n == 0 || v.n > 18)
		return "Content-Length is not a number";
	for (size_t i = 0; i < v.n; i++) {
		if (!isdigit((unsigned char)v.s[i]))
			return "Content-Length is not a number";
		*ret = *ret * 10 + (uint64_t)(v.s[i] - '0');
	}
	return NULL;
}

static const char *frame(struct dt_route_head *h, bool response)
{
	const struct dt_route_text close = {"close", 5}, keep = {"keep-alive", 10};
	int lengths = 0, encodings = 0, hosts = 0;
	bool closes = false, keeps = false;
	const char *why = NULL;

	for (int i = 0; i < h->n && !why; i++) {
		struct dt_route_text name = h->header[i].name, v = h->header[i].value;

		if (dt_route_is(name, "content-length")) {
			why = lengths++ ? "Content-Length occurs twice" : length_of(v, &h->length);
		} else if (dt_route_is(name, "transfer-encoding")) {
			why = encodings++ || !dt_route_is(v, "chunked") ? "Transfer-Encoding is not chunked"
									: NULL;
		} else if (dt_route_is(name, "host")) {
			hosts++;
		} else if (dt_route_is(name, "connection")) {
			closes |= has_word(v, close);
			keeps |= has_word(v, keep);
		} else if (dt_route_is(name, "expect") && dt_route_is(v, "100-continue")) {
			h->expects = h->minor == 1; /* HTTP/1.0 has none: RFC 9110, section 10.1.1 */
		}
	}
	if (why)
		return why;
	if (lengths && encodings)
		return "Content-Length and Transfer-Encoding cannot be combined";
	if (encodings && h->minor == 0)
		return "HTTP/1.0 has no Transfer-Encoding";
	if (!response && (hosts > 1 || (hosts == 0 && h->minor == 1)))
		return "a request must have exactly one Host header";
	h->keep_alive = h->minor == 1 ? !closes : keeps && !closes;
	if (encodings)
		h->framing = DT_ROUTE_CHUNKED;
	else if (lengths)
		h->framing = DT_ROUTE_LENGTH;
	else
		h->framing = response ? DT_ROUTE_TO_CLOSE : DT_ROUTE_NO_BODY;
	if (response && (h->status < 200 || h->status == 204 || h->status == 304))
		h->framing = DT_ROUTE_NO_BODY;
	return NULL;
}

ssize_t dt_route_head_parse(const char *s, size_t n, bool response, size_t *scanned,
			    struct dt_route_head *ret, const char **why)
{
	size_t from = *scanned > 3 ? *scanned - 3 : 0;
	const char *end = n > from ? memmem(s + from, n - from, "\r\n\r\n", 4) : NULL;
	struct dt_route_head *h = ret;
	size_t size, at = 0;

	*scanned = n;
	if (!end && n <= DT_ROUTE_MAX_HEAD)
		return 0;
	if (!end || end - s > DT_ROUTE_MAX_HEAD) {
		*why = "the headers are too large";
		return -E2BIG;
	}
	size = (size_t)(end - s) + 4;
	h->n = 0;
	h->method = h->target = (struct dt_route_text){0};
	h->status = 0;
	h->length = 0;
	h->expects = false;
	*why = NULL;
	while (at + 2 < size && !*why) { /* the empty line is left */
		const char *line = s + at, *eol = memmem(line, size - at, "\r\n", 2);
		size_t len = (size_t)(eol - line);

		*why = at > 0	  ? header_line(line, len, h)
		       : response ? status_line(line, len, h)
				  : request_line(line, len, h);
		at += len + 2;
	}
	if (!*why)
		*why = frame(h, response);
	return *why == too_many ? -E2BIG : *why ? -EINVAL : (ssize_t)size;
}

/* ---- chunks ---- */

enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LINE, TRAILER_LF, LAST_LF };

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* Processes one byte outside of content; returns the next state, or -1. */
static int step(struct dt_route_chunks *c, char b)
{
	switch (c->state) {
	case SIZE:
		if (digit(b) >= 0) {
			c->left = c->left * 16 + (uint64_t)digit(b);
			return ++c->digits > 15 ? -1 : SIZE;
		}
		if (c->digits == 0)
			return -1;
		return b == '\r' ? SIZE_LF : b == ';' ? EXTENSION : -1;
	case EXTENSION:
		if (b == '\r')
			return SIZE_LF;
		return dt_http_is_text(&b, 1) && ++c->extra <= MAX_EXTRA ? EXTENSION : -1;
	case SIZE_LF:
		c->digits = 0;
		return b != '\n' ? -1 : c->left ? DATA : TRAILER;
	case DATA_CR:
		return b == '\r' ? DATA_LF : -1;
	case DATA_LF:
		return b == '\n' ? SIZE : -1;
	case TRAILER:
		if (b == '\r')
			return LAST_LF;
		return dt_http_is_text(&b, 1) && ++c->extra <= MAX_EXTRA ? TRAILER_LINE : -1;
	case TRAILER_LINE:
		if (b == '\r')
			return TRAILER_LF;
		return dt_http_is_text(&b, 1) && ++c->extra <= MAX_EXTRA ? TRAILER_LINE : -1;
	case TRAILER_LF:
		return b == '\n' ? TRAILER : -1;
	default: /* LAST_LF */
		c->done = b == '\n';
		return c->done ? LAST_LF : -1;
	}
}

ssize_t dt_route_chunks_next(struct dt_route_chunks *c, const char *s, size_t n, size_t *ret_body)
{
	size_t at = 0;

	*ret_body = 0;
	while (at < n && !c->done) {
		if (c->state == DATA) {
			size_t take = n - at < c->left ? n - at : (size_t)c->left;

			c->left -= take;
			c->state = c->left ? DATA : DATA_CR;
			*ret_body = take;
			return (ssize_t)(at + take);
		}
		c->state = step(c, s[at++]);
		if (c->state < 0)
			return -EINVAL;
	}
	return (ssize_t)at;
}

/* ---- events ---- */

size_t dt_route_event_size(const char *s, size_t n, size_t from)
{
	for (size_t i = from; i + 1 < n; i++) {
		const bool pair = s[i] == '\r' && s[i + 1] == '\n';
		const size_t next = i + 1 + pair;

		if ((s[i] != '\n' && s[i] != '\r') || next >= n)
			continue;
		if (s[next] == '\n')
			return next + 1;
		if (s[next] == '\r' && next + 1 < n)
			return next + 1 + (s[next + 1] == '\n');
		if (s[next] == '\r' && s[i] == '\r' && !pair)
			return next + 1; /* no LF has followed a CR before */
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
