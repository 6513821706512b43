/*
 * UTF-8 that arrives in pieces (Unicode 15, table 3-7): tokens may end inside a character. utf8proc does not
 * report the length of an ill-formed maximal subpart, which is what U+FFFD replaces.
 */
#ifndef DT_SERVE_UTF8_H
#define DT_SERVE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes at the end of s that begin a character and may still be completed: 0 to 3. */
size_t dt_utf8_tail(const char *s, size_t n);

/*
 * s with every ill-formed part replaced by U+FFFD, one a maximal subpart; malloc'd and NUL-terminated, NULL
 * when out of memory. Cleaning two halves gives the cleaned whole when the first half's tail is 0.
 */
char *dt_utf8_clean(const char *s, size_t n, size_t *ret_n);

/* The character at the beginning of well-formed text of n > 0 bytes; returns its bytes. */
size_t dt_utf8_decode(const char *s, size_t n, uint32_t *ret);

/* Characters of well-formed text. */
size_t dt_utf8_count(const char *s, size_t n);

bool dt_utf8_is_space(uint32_t cp); /* White_Space */
/* Bytes of well-formed text without the white space at its end. */
size_t dt_utf8_trimmed(const char *s, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
