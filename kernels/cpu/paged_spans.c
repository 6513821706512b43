/* Partial softmax results per span of keys (paged.h): storage and merging. */
#include "kernels/cpu/paged.h"
#include "kernels/cpu/vec.h"

/* Skips a part in which the row sees no key: adding its zeros would turn -0 into 0. */
static DT_SIMD void join_rows(const struct dt_paged_sums *to, const struct dt_paged_sums *part, int64_t rows,
			      int64_t pad)
{
	for (int64_t i = 0; i < rows; i++) {
		struct dt_attn_row *a = &to->row[i];
		const struct dt_attn_row *b = &part->row[i];
		const float max = a->max > b->max ? a->max : b->max, *add = part->o + i * pad;
		float *o = to->o + i * pad, fa, fb;

		if (b->max == -INFINITY)
			continue;
		if (a->max == -INFINITY) {
			*a = *b;
			memcpy(o, add, (size_t)pad * 4);
			continue;
		}
		fa = dt_expf_bounded(a->max - max);
		fb = dt_expf_bounded(b->max - max);
#pragma omp simd
		for (int64_t j = 0; j < pad; j++)
			o[j] = fa * o[j] + fb * add[j];
#pragma omp simd
		for (int k = 0; k < 16; k++)
			a->sum[k] = fa * a->sum[k] + fb * b->sum[k];
		a->max = max;
	}
}

void dt_paged_join(const struct dt_paged_sums *to, const struct dt_paged_sums *part, int64_t rows,
		   int64_t pad)
{
	join_rows(to, part, rows, pad);
}

/* Spans of all tokens of a sequence; 0 if it has none. */
static int64_t spans_of(const struct dt_paged_run *a, int seq)
{
	const int64_t count = a->g->q_start[seq + 1] - a->g->q_start[seq];
	int64_t from, end;

	dt_paged_keys(a, seq, 0, count, &from, &end);
	return count > 0 ? dt_paged_spans(from, end) : 0;
}

void dt_paged_count_spans(const struct dt_paged_run *a, struct dt_paged_size *size)
{
	size->longest = 1;
	size->spans = 0;
	for (int i = 0; i < a->g->nseq; i++) {
		const int64_t n = spans_of(a, i);

		size->longest = n > size->longest ? n : size->longest;
		size->spans += n;
	}
}

static int64_t tasks_of_sequence(const struct dt_paged_run *a)
{
	return a->p->kv_heads * a->shares;
}

void dt_paged_parts_lay(struct dt_paged_run *a, void *memory)
{
	struct dt_paged_parts *p = &a->parts;
	int64_t all = 0;

	p->first = memory;
	p->there = (atomic_int *)(p->first + a->g->nseq);
	p->sums = (float *)((char *)memory + dt_paged_head_bytes(a, a->g->nseq));
	for (int i = 0; i < a->g->nseq; i++) {
		p->first[i] = all;
		all += spans_of(a, i);
	}
	for (int64_t i = 0; i < a->g->nseq * tasks_of_sequence(a); i++)
		atomic_init(&p->there[i], 0);
}

static struct dt_paged_sums part_of(const struct dt_paged_run *a, const struct dt_paged_place *at,
				    int64_t span, int64_t rows, int64_t pad)
{
	const int64_t all = (a->parts.first[at->seq] + span) * tasks_of_sequence(a);
	float *o = a->parts.sums + (all + at->kv * a->shares + at->share) * a->parts.words;

	return (struct dt_paged_sums){o, (struct dt_attn_row *)(o + rows * pad)};
}

bool dt_paged_part(const struct dt_paged_run *a, const struct dt_paged_place *at,
		   const struct dt_paged_sums *to, const struct dt_paged_sums *sums, int64_t rows,
		   int64_t pad)
{
	const int64_t task = at->seq * tasks_of_sequence(a) + at->kv * a->shares + at->share;
	struct dt_paged_sums part = part_of(a, at, at->span, rows, pad);

	memcpy(part.o, sums->o, (size_t)(rows * pad) * 4);
	memcpy(part.row, sums->row, (size_t)rows * sizeof *part.row);
	if (atomic_fetch_add_explicit(&a->parts.there[task], 1, memory_order_acq_rel) + 1 < at->spans)
		return false;
	for (int64_t i = 0; i < at->spans; i++) {
		part = part_of(a, at, i, rows, pad);
		dt_paged_join(to, &part, rows, pad);
	}
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
