#include "serve/engine/speculate.h"

#include <string.h>

#define LONGEST	 4 /* longest suffix, in tokens, that is searched for */
#define SHORTEST 2
#define WINDOW	 4096 /* tokens searched, back from the end */
#define AGAIN	 64   /* steps between two trials of the slower alternative */
#define TRIES	 4
#define SMOOTH	 0.2

int dt_spec_lookup(const int32_t *ids, int n, int max, int32_t *out)
{
	int from = n > WINDOW ? n - WINDOW : 0;

	for (int len = LONGEST; len >= SHORTEST; len--) {
		const int32_t *end = ids + n - len;

		for (int at = n - len - 1; at >= from; at--) {
			int have = n - at - len, k = have < max ? have : max;

			if (ids[at] != *end || memcmp(ids + at, end, (size_t)len * sizeof(*ids)))
				continue;
			memcpy(out, ids + at + len, (size_t)k * sizeof(*ids));
			for (int i = k; i < max; i++) /* the text repeats itself, and so does the draft */
				out[i] = out[i - have];
			return max;
		}
	}
	return 0;
}

static struct dt_spec_arm *arm_of(struct dt_spec *s, int nseq)
{
	int i = 0;

	while (nseq > 1 && i < DT_SPEC_SIZES - 1) {
		nseq /= 2;
		i++;
	}
	return &s->arm[i];
}

bool dt_spec_on(struct dt_spec *s, int nseq)
{
	struct dt_spec_arm *a = arm_of(s, nseq);
	bool better = a->rate[1] >= a->rate[0];

	if (s->max == 0)
		return false;
	if (a->rate[1] == 0)
		return true;
	if (a->rate[0] == 0)
		return false;
	return a->turn < TRIES ? !better : better;
}

void dt_spec_measured(struct dt_spec *s, int nseq, bool guessed, int tokens, double seconds)
{
	struct dt_spec_arm *a = arm_of(s, nseq);
	double rate = seconds > 0 ? tokens / seconds : 0;
	double *r = &a->rate[guessed];

	*r = *r == 0 ? rate : *r + SMOOTH * (rate - *r);
	a->turn = (a->turn + 1) % AGAIN;
}
/* SPDX-License-Identifier: Apache-2.0 */
