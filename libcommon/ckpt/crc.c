/*
 * CRC-32 as zlib has it, several times faster where the processor multiplies without carries: 64 or 256 bytes
 * at a time are folded onto the next as many (Gopal et al., Fast CRC Computation Using PCLMULQDQ, Intel
 * 2009). What is left, 16 bytes with the same remainder as all that went before, is zlib's to finish.
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

/* The checksum of the 16 bytes of x, which carry the state, and then of p. */
FOLD static uint32_t finish(__m128i x, const unsigned char *p, size_t n)
{
	const __m128i by1 = _mm_set_epi64x(0xccaa009e, 0x1751997d0);
	unsigned char rest[16];

	for (; n >= 16; p += 16, n -= 16)
		x = fold(x, by1, load(p));
	_mm_storeu_si128((__m128i *)(void *)rest, x);
	/* the state is in rest already: zlib starts from none, which it writes inverted */
	return (uint32_t)crc32_z(crc32_z(0xffffffffu, rest, 16), p, n);
}

/*
 * The constants are x^(d + 32) and x^(d - 32) mod P for a distance of d bits, bits reversed and moved up by
 * one; by1 is for 128 bits, by4 for 512, by16 for 2048. n >= 64
 */
FOLD static uint32_t crc_fold(uint32_t crc, const unsigned char *p, size_t n)
{
	const __m128i by4 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4),
		      by1 = _mm_set_epi64x(0xccaa009e, 0x1751997d0);
	__m128i a = load(p), b = load(p + 16), c = load(p + 32), d = load(p + 48);

	a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)~crc));
	for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
		a = fold(a, by4, load(p));
		b = fold(b, by4, load(p + 16));
		c = fold(c, by4, load(p + 32));
		d = fold(d, by4, load(p + 48));
	}
	return finish(fold(fold(fold(a, by1, b), by1, c), by1, d), p, n);
}

#define FOLD4 __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

FOLD4 static inline __m512i fold4(__m512i x, __m512i k, __m512i next)
{
	__m512i lo = _mm512_clmulepi64_epi128(x, k, 0x00), hi = _mm512_clmulepi64_epi128(x, k, 0x11);

	return _mm512_ternarylogic_epi64(lo, hi, next, 0x96); /* xor of three */
}

/* The same on four times the width. n >= 256 */
FOLD4 static uint32_t crc_fold4(uint32_t crc, const unsigned char *p, size_t n)
{
	const __m512i by16 = _mm512_set4_epi64(0x1322d1430, 0x11542778a, 0x1322d1430, 0x11542778a),
		      by4 = _mm512_set4_epi64(0x1c6e41596, 0x154442bd4, 0x1c6e41596, 0x154442bd4);
	const __m128i by1 = _mm_set_epi64x(0xccaa009e, 0x1751997d0);
	__m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128),
		d = _mm512_loadu_si512(p + 192);
	__m128i x;

	a = _mm512_xor_si512(a, _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)~crc), 0));
	for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
		a = fold4(a, by16, _mm512_loadu_si512(p));
		b = fold4(b, by16, _mm512_loadu_si512(p + 64));
		c = fold4(c, by16, _mm512_loadu_si512(p + 128));
		d = fold4(d, by16, _mm512_loadu_si512(p + 192));
	}
	a = fold4(fold4(fold4(a, by4, b), by4, c), by4, d);
	for (; n >= 64; p += 64, n -= 64)
		a = fold4(a, by4, _mm512_loadu_si512(p));
	x = fold(_mm512_extracti32x4_epi32(a, 0), by1, _mm512_extracti32x4_epi32(a, 1));
	x = fold(fold(x, by1, _mm512_extracti32x4_epi32(a, 2)), by1, _mm512_extracti32x4_epi32(a, 3));
	return finish(x, p, n);
}

uint32_t ck_crc32(uint32_t crc, const void *data, size_t n)
{
	if (n >= 256 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
		return crc_fold4(crc, data, n);
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
