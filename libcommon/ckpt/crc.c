/*
 * CRC-32 as zlib has it, several times faster where the processor multiplies without carries: 64 bytes at a
 * time are folded onto the next 64 (Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel 2009). What is
 * left, 16 bytes with the same remainder as all that went before, is zlib's to finish.
 */
#include "ckpt/internal.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

#define FOLD __attribute__((target("pclmul,sse4.1")))

/* x moved on by the distance k is made for, onto next. */
FOLD static inline __m128i fold(__m128i x, __m128i k, __m128i next)
{
	__m128i lo = _mm_clmulepi64_si128(x, k, 0x00), hi = _mm_clmulepi64_si128(x, k, 0x11);

	return _mm_xor_si128(_mm_xor_si128(lo, hi), next);
}

FOLD static inline __m128i load(const unsigned char *p)
{
	return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* n >= 64 */
FOLD static uint32_t crc_fold(uint32_t crc, const unsigned char *p, size_t n)
{
	/* x^(d + 32) and x^(d - 32) mod P, bits reversed and moved up by one; d = 512 and 128 bits */
	const __m128i by4 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4),
		      by1 = _mm_set_epi64x(0xccaa009e, 0x1751997d0);
	__m128i a = load(p), b = load(p + 16), c = load(p + 32), d = load(p + 48);
	unsigned char rest[16];

	a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)~crc));
	for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
		a = fold(a, by4, load(p));
		b = fold(b, by4, load(p + 16));
		c = fold(c, by4, load(p + 32));
		d = fold(d, by4, load(p + 48));
	}
	a = fold(fold(fold(a, by1, b), by1, c), by1, d);
	for (; n >= 16; p += 16, n -= 16)
		a = fold(a, by1, load(p));
	_mm_storeu_si128((__m128i *)(void *)rest, a);
	/* the state is in rest already: zlib starts from none, which it writes inverted */
	return (uint32_t)crc32_z(crc32_z(0xffffffffu, rest, 16), p, n);
}

uint32_t ck_crc32(uint32_t crc, const void *data, size_t n)
{
	if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
		return crc_fold(crc, data, n);
	return n ? (uint32_t)crc32_z(crc, data, n) : crc;
}
#else
uint32_t ck_crc32(uint32_t crc, const void *data, size_t n)
{
	return n ? (uint32_t)crc32_z(crc, data, n) : crc;
}
#endif
