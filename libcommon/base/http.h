/* Checks of HTTP syntax (RFC 9110, 5.5, 5.6.2 and 7.2) and URL escapes (RFC 3986, 2.1). */
#ifndef DT_BASE_HTTP_H
#define DT_BASE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

/* Whether s is a valid header name or method: one or more token characters, no NUL. */
bool dt_http_is_token(const char *s, size_t n);
/* Whether s is a valid header value: no control character but tab. */
bool dt_http_is_text(const char *s, size_t n);
/*
 * Bytes before the path in a request target: scheme and host in the absolute form that proxies receive (RFC
 * 9112, 3.2.2), otherwise 0.
 */
size_t dt_http_before_path(const char *s, size_t n);
/*
 * Whether a Host header can only name this machine: "localhost", a name below .localhost, a literal IP
 * address, or `own` (NULL: none), each with or without a port. This blocks DNS rebinding: a page of another
 * site whose name resolves to this machine sends that site's name, which is none of these.
 */
bool dt_http_is_own_name(const char *host, size_t n, const char *own);
/* Decodes %XX in place, except %00. */
void dt_http_unescape(char *s);
/* s with %XX for all but letters, digits and "-._~", for a query or a path; malloc'd. NULL: out of memory. */
char *dt_http_escape(const char *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
