/* Code points as sequences of bytes (UTF-8; Unicode 15, table 3-7). */
#include "grammar/priv.h"

int dt_gr_encode(uint32_t c, uint8_t out[4])
{
	if (c < 0x80) {
		out[0] = (uint8_t)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (uint8_t)(0xc0 | c >> 6);
		out[1] = (uint8_t)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (uint8_t)(0xe0 | c >> 12);
		out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		out[2] = (uint8_t)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (uint8_t)(0xf0 | c >> 18);
	out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	out[3] = (uint8_t)(0x80 | (c & 0x3f));
	return 4;
}

void dt_gr_wide(struct dt_grammar *g, int r, uint32_t lo, uint32_t hi)
{
	static const uint32_t cut[] = {0x7ff, 0xd7ff, 0xdfff,
				       0xffff}; /* the encoded length changes here; surrogates are excluded */
	uint8_t a[4], z[4];
	struct dt_elem e[4];
	int n;

	if (lo >= 0xd800 && lo <= 0xdfff)
		lo = 0xe000;
	if (lo > hi)
		return;
	for (int i = 0; i < 4; i++)
		if (lo <= cut[i] && cut[i] < hi) {
			dt_gr_wide(g, r, lo, cut[i]);
			dt_gr_wide(g, r, cut[i] + 1, hi);
			return;
		}
	if (lo >= 0xd800 && hi <= 0xdfff)
		return;
	n = dt_gr_encode(lo, a);
	dt_gr_encode(hi, z);
	for (int i = 1; i < n; i++) {
		uint32_t m = (1u << 6 * i) - 1;

		if ((lo & ~m) == (hi & ~m))
			continue;
		if (lo & m) {
			dt_gr_wide(g, r, lo, lo | m);
			dt_gr_wide(g, r, (lo | m) + 1, hi);
			return;
		}
		if ((hi & m) != m) {
			dt_gr_wide(g, r, lo, (hi & ~m) - 1);
			dt_gr_wide(g, r, hi & ~m, hi);
			return;
		}
	}
	for (int i = 0; i < n; i++)
		e[i] = dt_gr_range(g, a[i], z[i]);
	dt_gr_alt(g, r, e, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
