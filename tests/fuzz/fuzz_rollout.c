/*
 * Lines of rollouts, as dt-train reads them from a file: what is taken is written again, read back, and
 * packed into samples, each of its tokens once.
 */
#include "rl/pack.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300, SEQ = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void same(const struct dt_group *a, const struct dt_group *b)
{
	if (a->n != b->n || a->nprompt != b->nprompt || a->index != b->index || a->step != b->step ||
	    strcmp(a->prompt, b->prompt) != 0)
		abort();
	for (int k = 0; k < a->n; k++) {
		const struct dt_answer *x = &a->answer[k], *y = &b->answer[k];

		if (x->n != y->n || memcmp(x->ids, y->ids, (size_t)x->n * sizeof(*x->ids)) != 0 ||
		    !x->logprob != !y->logprob || isnan(x->reward) != isnan(y->reward))
			abort();
	}
}

static void pack(const struct dt_group *g)
{
	struct dt_pack p;
	int64_t tokens = 0, targets = 0;
	struct dt_err err = {0};
	int rc = dt_pack_make(&p, g, 1, SEQ, &err);

	if (rc == -E2BIG)
		return;
	if (rc < 0)
		abort();
	for (int k = 0; k < g->n; k++)
		tokens += isfinite(g->answer[k].reward) ? g->answer[k].n : 0;
	for (int64_t i = 0; i < p.rows * SEQ; i++)
		targets += p.targets[i] >= 0;
	if (tokens != targets || tokens != p.tokens)
		abort();
	dt_pack_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct dt_group g = {0}, again = {0};
	json_t *o = NULL, *written;
	struct dt_err err = {0};

	if (dt_json_parse((const char *)data, n, "rollout", &o, &err) < 0)
		return 0;
	if (dt_group_parse(o, VOCAB, &g, &err) == 0) {
		written = dt_group_json(&g);
		if (!written || dt_group_parse(written, VOCAB, &again, &err) < 0)
			abort();
		same(&g, &again);
		pack(&g);
		json_decref(written);
		dt_group_release(&again);
	} else if (!err.msg[0]) {
		abort();
	}
	dt_group_release(&g);
	json_decref(o);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
