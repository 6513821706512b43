#include "rl/pack.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPEN 64 /* open rows checked for room */

void dt_pack_release(struct dt_pack *p)
{
	free(p->ids);
	free(p->targets);
	free(p->first);
	free(p->placed);
	free(p->row);
	*p = (struct dt_pack){0};
}

static int by_row(const void *a, const void *b)
{
	const struct dt_placed *x = a, *y = b;

	return x->row != y->row ? (x->row > y->row) - (x->row < y->row) : (x->at > y->at) - (x->at < y->at);
}

/* Assigns each answer to a row; used [answers] is scratch. A document's last token is not an input. */
static int place(struct dt_pack *p, const struct dt_group *g, int64_t n, int64_t *used, struct dt_err *err)
{
	int64_t number = 0;

	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < g[i].n; k++, number++) {
			const struct dt_answer *a = &g[i].answer[k];
			const int64_t need = g[i].nprompt + a->n - 1;
			int64_t r = p->rows > OPEN ? p->rows - OPEN : 0;

			if (!isfinite(a->reward))
				continue;
			if (need > p->seq) {
				dt_err_set(err, -E2BIG,
					   "prompt %lld with its answer takes %lld tokens, but --seq is %lld",
					   (long long)g[i].index, (long long)need, (long long)p->seq);
				dt_err_hint(err, "--seq %lld holds it", (long long)need);
				return -E2BIG;
			}
			while (r < p->rows && used[r] + need > p->seq)
				r++;
			if (r == p->rows)
				used[p->rows++] = 0;
			p->placed[p->n++] = (struct dt_placed){.row = r,
							       .at = used[r] + g[i].nprompt - 1,
							       .group = (int)i,
							       .answer = k,
							       .number = number};
			used[r] += need;
			p->tokens += a->n;
		}
	qsort(p->placed, (size_t)p->n, sizeof(p->placed[0]), by_row);
	return 0;
}

/* Writes a document's tokens to its row, from its first position. */
static void write_document(struct dt_pack *p, const struct dt_group *g, const struct dt_placed *d)
{
	const struct dt_answer *a = &g->answer[d->answer];
	const int64_t first = d->at - (g->nprompt - 1), end = d->at + a->n;
	int32_t *ids = p->ids + d->row * p->seq, *targets = p->targets + d->row * p->seq;

	memcpy(ids + first, g->prompt_ids, (size_t)g->nprompt * sizeof(*ids));
	memcpy(ids + first + g->nprompt, a->ids, (size_t)(a->n - 1) * sizeof(*ids));
	memcpy(targets + d->at, a->ids, (size_t)a->n * sizeof(*ids));
	for (int64_t i = first; i < end; i++)
		p->first[d->row * p->seq + i] = (int32_t)first;
	if (end < p->seq) /* the rest is a document of its own, until overwritten */
		for (int64_t i = end; i < p->seq; i++)
			p->first[d->row * p->seq + i] = (int32_t)end;
}

static int write_rows(struct dt_pack *p, const struct dt_group *g, struct dt_err *err)
{
	const size_t n = (size_t)(p->rows * p->seq) + 1;
	int64_t at = 0;

	p->ids = calloc(n, sizeof(*p->ids));
	p->targets = malloc(n * sizeof(*p->targets));
	p->first = calloc(n, sizeof(*p->first));
	p->row = calloc((size_t)p->rows + 1, sizeof(*p->row));
	if (!p->ids || !p->targets || !p->first || !p->row)
		return dt_err_sys(err, -ENOMEM, "cannot pack rollouts");
	memset(p->targets, 0xff, n * sizeof(*p->targets)); /* -1 */
	for (int64_t r = 0; r < p->rows; r++) {
		p->row[r] = at;
		for (; at < p->n && p->placed[at].row == r; at++)
			write_document(p, &g[p->placed[at].group], &p->placed[at]);
	}
	p->row[p->rows] = p->n;
	return 0;
}

int dt_pack_make(struct dt_pack *p, const struct dt_group *g, int64_t n, int64_t seq, struct dt_err *err)
{
	int64_t answers = 0, *used;
	int rc;

	*p = (struct dt_pack){.seq = seq};
	for (int64_t i = 0; i < n; i++)
		answers += g[i].n;
	used = malloc((size_t)(answers + 1) * sizeof(*used));
	p->placed = calloc((size_t)answers + 1, sizeof(*p->placed));
	rc = used && p->placed ? place(p, g, n, used, err) : dt_err_sys(err, -ENOMEM, "cannot pack rollouts");
	if (rc == 0)
		rc = write_rows(p, g, err);
	free(used);
	if (rc < 0)
		dt_pack_release(p);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
