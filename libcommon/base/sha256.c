#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const uint32_t roots[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

/* Section 6.2.2: one block of 64 bytes. */
static void take(uint32_t h[8], const uint8_t *b)
{
	uint32_t w[64], s[8];

	for (int i = 0; i < 16; i++, b += 4)
		w[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(s, h, sizeof(s));
	for (int i = 0; i < 64; i++) {
		const uint32_t a = s[0], e = s[4],
			       one = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
				     ((e & s[5]) ^ (~e & s[6])) + roots[i] + w[i],
			       two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
				     ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, 7 * sizeof(*s));
		s[4] += one;
		s[0] = one + two;
	}
	for (int i = 0; i < 8; i++)
		h[i] += s[i];
}

void dt_sha256(const void *bytes, size_t n, uint32_t ret[8])
{
	/* the same of the square roots of the first 8 primes */
	static const uint32_t begin[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
					  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	const uint8_t *b = bytes;
	const size_t whole = n / 64 * 64, rest = n - whole, end = rest < 56 ? 64 : 128;
	uint8_t last[128] = {0};

	memcpy(ret, begin, sizeof(begin));
	for (size_t at = 0; at < whole; at += 64)
		take(ret, b + at);
	if (rest)
		memcpy(last, b + whole, rest);
	last[rest] = 0x80;
	for (int i = 0; i < 8; i++)
		last[end - 1 - (size_t)i] = (uint8_t)((uint64_t)n * 8 >> 8 * i);
	for (size_t at = 0; at < end; at += 64)
		take(ret, last + at);
}
/* SPDX-License-Identifier: Apache-2.0 */
