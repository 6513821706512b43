#include "eval/prune.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The magnitude as an integer of the same order; NaN is the largest. */
static uint32_t counts(const float *x, const float *scale, int64_t i)
{
	const float v = fabsf(x[i]) * (scale ? scale[i] : 1);
	uint32_t bits;

	if (isnan(v))
		return UINT32_MAX;
	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

/* The magnitude of rank `rank` in ascending order; *ret_below: elements smaller than it. */
static uint32_t select_rank(const float *x, int64_t n, const float *scale, int64_t rank, int64_t *ret_below)
{
	static const int shifts[] = {21, 10, 0}, widths[] = {11, 11, 10};
	uint32_t found = 0, known = 0;
	int64_t below = 0;

	for (int p = 0; p < 3; p++) {
		const uint32_t mask = (1u << widths[p]) - 1;
		int64_t count[2048] = {0};
		uint32_t digit = 0;

		for (int64_t i = 0; i < n; i++) {
			const uint32_t c = counts(x, scale, i);

			if ((c & known) == found)
				count[c >> shifts[p] & mask]++;
		}
		while (below + count[digit] <= rank)
			below += count[digit++];
		found |= digit << shifts[p];
		known |= mask << shifts[p];
	}
	*ret_below = below;
	return found;
}

void dt_prune_least(float *x, int64_t n, const float *scale, int64_t zeros)
{
	int64_t below, equal;
	uint32_t border;

	if (zeros <= 0 || n <= 0)
		return;
	if (zeros >= n) {
		memset(x, 0, (size_t)n * sizeof(*x));
		return;
	}
	border = select_rank(x, n, scale, zeros - 1, &below);
	equal = zeros - below; /* elements to prune among those equal to it */
	for (int64_t i = 0; i < n; i++) {
		const uint32_t c = counts(x, scale, i);

		if (c < border || (c == border && equal-- > 0))
			x[i] = 0;
	}
}

void dt_prune_pattern(float *x, int64_t n, const float *scale, int keep, int of)
{
	for (; n > 0; n -= of, x += of, scale += scale ? of : 0) {
		bool gone[32] = {false};

		for (int z = keep; z < of; z++) {
			int least = -1;

			for (int i = 0; i < of; i++)
				if (!gone[i] && (least < 0 || counts(x, scale, i) < counts(x, scale, least)))
					least = i;
			gone[least] = true;
		}
		for (int i = 0; i < of; i++)
			x[i] = gone[i] ? 0 : x[i];
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
