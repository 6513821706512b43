/* Base64 (RFC 4648, section 4), padded, without line breaks. */
#ifndef DT_BASE_BASE64_H
#define DT_BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Characters of n bytes. */
static inline size_t dt_base64_chars(size_t n)
{
	return (n + 2) / 3 * 4;
}

/* out: room for dt_base64_chars(n); it is not terminated. */
void dt_base64_encode(const void *bytes, size_t n, char *out);
/* out: room for n / 4 * 3 bytes. Returns how many there are; -1: it is not base64. */
int64_t dt_base64_decode(const char *s, size_t n, uint8_t *out);

/*
 * The bytes of base64 in the standard or the URL-safe alphabet, malloc'd; NULL: it is not valid, or out of
 * memory. White space is skipped, and padding may be left out.
 */
unsigned char *dt_base64_bytes(const char *s, size_t n, size_t *ret_n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
