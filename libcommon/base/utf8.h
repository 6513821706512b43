/*
 * UTF-8 (Unicode 15, table 3-7) that arrives in pieces, since a token may end inside a character. utf8proc
 * does not report the length of an ill-formed maximal subpart, which is what U+FFFD replaces.
 */
#ifndef DT_SERVE_UTF8_H
#define DT_SERVE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes at the end of s that are the incomplete beginning of a character: 0 to 3. */
size_t dt_utf8_tail(const char *s, size_t n);

/*
 * A copy of s with each ill-formed maximal subpart replaced by U+FFFD; malloc'd and NUL-terminated, NULL when
 * out of memory. A text may be cleaned in two parts if dt_utf8_tail of the first is 0.
 */
char *dt_utf8_clean(const char *s, size_t n, size_t *ret_n);

/* Decodes the first character of well-formed text of n > 0 bytes; returns its length in bytes. */
size_t dt_utf8_decode(const char *s, size_t n, uint32_t *ret);

/* Number of characters of well-formed text. */
size_t dt_utf8_count(const char *s, size_t n);

bool dt_utf8_is_space(uint32_t cp); /* White_Space */
/* Length in bytes of well-formed text without trailing white space. */
size_t dt_utf8_trimmed(const char *s, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
