/* What may stand in the lines of HTTP (RFC 9110, 5.5, 5.6.2 and 7.2), and in addresses (RFC 3986, 2.1). */
#ifndef DT_BASE_HTTP_H
#define DT_BASE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

/* A name of a header or a method: one character of a token and more; no NUL. */
bool dt_http_is_token(const char *s, size_t n);
/* A value of a header: no control character but the tab. */
bool dt_http_is_text(const char *s, size_t n);
/*
 * Bytes in front of the path of a request's target: of the absolute form that proxies are sent, scheme and
 * host (RFC 9112, 3.2.2); else none.
 */
size_t dt_http_before_path(const char *s, size_t n);
/*
 * Whether a header Host can only mean the machine that was reached: "localhost", a name below .localhost, an
 * address as it is written in full, or `own` (NULL: none), with a port or without. A page of another site
 * whose name resolves to this machine (DNS rebinding) comes under its site's name, which is none of these;
 * an address is none that a resolver gives.
 */
bool dt_http_is_own_name(const char *host, size_t n, const char *own);
/* %XX become their bytes, in place; %00 stays as it is. */
void dt_http_unescape(char *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
