/* SHA-256 (FIPS 180-4), of bytes in memory. */
#ifndef DT_BASE_SHA256_H
#define DT_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* ret: the digest as eight words, the first one first. */
void dt_sha256(const void *bytes, size_t n, uint32_t ret[8]);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
