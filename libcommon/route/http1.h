/*
 * Strict parser of HTTP/1.1 heads and bodies (RFC 9112): messages that two parsers could frame differently
 * are refused (request smuggling, section 11.2). Nothing is copied: results point into the input.
 */
#ifndef DT_ROUTE_HTTP1_H
#define DT_ROUTE_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DT_ROUTE_MAX_HEAD    (64 * 1024) /* bytes */
#define DT_ROUTE_MAX_HEADERS 100

struct dt_route_text {
	const char *s;
	size_t n;
};

enum dt_route_framing {
	DT_ROUTE_NO_BODY,
	DT_ROUTE_LENGTH,
	DT_ROUTE_CHUNKED,
	DT_ROUTE_TO_CLOSE, /* response only: the body ends when the connection is closed */
};

struct dt_route_head {
	struct dt_route_text method, target; /* request only */
	int status;			     /* response only */
	int minor;			     /* HTTP/1.minor */
	struct dt_route_header {
		struct dt_route_text name, value;
	} header[DT_ROUTE_MAX_HEADERS];
	int n;
	enum dt_route_framing framing;
	uint64_t length; /* with DT_ROUTE_LENGTH */
	bool keep_alive; /* the sender keeps the connection open after this message */
	bool expects;	 /* "Expect: 100-continue" */
};

/*
 * Parses the head of a request or, with `response`, of a response to a method that has a body. Returns its
 * bytes, including the empty line; 0: incomplete (*scanned bytes are already searched); with *why -EINVAL,
 * or -E2BIG: too large, or too many headers. *scanned must be 0 at the start of a head and is kept between
 * calls.
 */
ssize_t dt_route_head_parse(const char *s, size_t n, bool response, size_t *scanned,
			    struct dt_route_head *ret, const char **why);

/* The first value of a header by name; s NULL: there is none. */
struct dt_route_text dt_route_header(const struct dt_route_head *h, const char *name);
bool dt_route_is(struct dt_route_text t, const char *s); /* case-insensitive comparison */
/* Hop-by-hop headers, including those named by Connection: they are not forwarded. */
bool dt_route_hop_by_hop(const struct dt_route_head *h, struct dt_route_text name);

struct dt_route_chunks { /* zero-initialise at the start of a body */
	int state;
	uint64_t left; /* bytes left of the chunk */
	size_t digits, extra;
	bool done;
};

/*
 * Parses the next bytes of a chunked body. Returns how many of n were consumed; the last *ret_body of them
 * are content. Stops after each piece of content and at the end of the body (done). -EINVAL: invalid chunked
 * body.
 */
ssize_t dt_route_chunks_next(struct dt_route_chunks *c, const char *s, size_t n, size_t *ret_body);

/*
 * Bytes of the first event of a stream (server-sent events), with the empty line that ends it; 0: it is not
 * complete. Lines end with LF, CR LF or CR. The first `from` bytes are known to contain no end of an event.
 */
size_t dt_route_event_size(const char *s, size_t n, size_t from);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
