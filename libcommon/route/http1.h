/*
 * Heads and bodies of HTTP/1.1 (RFC 9112), read strictly: what two readers could frame differently is refused
 * (request smuggling, section 11.2). Nothing is copied: pointers are into the bytes that were given.
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
	DT_ROUTE_TO_CLOSE, /* of a response: the body ends with the connection */
};

struct dt_route_head {
	struct dt_route_text method, target; /* of a request */
	int status;			     /* of a response */
	int minor;			     /* HTTP/1.minor */
	struct dt_route_header {
		struct dt_route_text name, value;
	} header[DT_ROUTE_MAX_HEADERS];
	int n;
	enum dt_route_framing framing;
	uint64_t length; /* with DT_ROUTE_LENGTH */
	bool keep_alive; /* the sender does not close behind this message */
	bool expects;	 /* "Expect: 100-continue" */
};

/*
 * The head of a request, or with response of a response to a method that has a body. Returns its bytes with
 * the empty line; 0: it is not whole yet (of *scanned bytes that is known); -EINVAL with *why; -E2BIG: too
 * large. *scanned is 0 at the start of a head and carried from call to call.
 */
ssize_t dt_route_head_parse(const char *s, size_t n, bool response, size_t *scanned,
			    struct dt_route_head *ret, const char **why);

/* The value of a header by its name; s NULL: it is not there. The first of several. */
struct dt_route_text dt_route_header(const struct dt_route_head *h, const char *name);
bool dt_route_is(struct dt_route_text t, const char *s); /* equal but for upper and lower case */
/* Headers that belong to one connection and are not passed on, those that Connection names among them. */
bool dt_route_hop_by_hop(const struct dt_route_head *h, struct dt_route_text name);

struct dt_route_chunks { /* zeroed at the start of a body */
	int state;
	uint64_t left; /* of the chunk */
	size_t digits, extra;
	bool done;
};

/*
 * The next bytes of a chunked body: returns how many of n were read; the last *ret_body of them are content.
 * Ends early behind content, and at the end of the body (done). -EINVAL: this is no chunked body.
 */
ssize_t dt_route_chunks_next(struct dt_route_chunks *c, const char *s, size_t n, size_t *ret_body);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
