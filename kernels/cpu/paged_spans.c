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

int64_t dt_paged_longest(const struct dt_paged_run *a)
{
	int64_t most = 1;

	for (int i = 0; i < a->g->nseq; i++) {
		const int64_t n = spans_of(a, i);

		most = n > most ? n : most;
	}
	return most;
}

int64_t dt_paged_all_spans(const struct dt_paged_run *a)
{
	int64_t all = 0;

	for (int i = 0; i < a->g->nseq; i++)
		all += spans_of(a, i);
	return all;
}

static int64_t tasks_of_sequence(const struct dt_paged_run *a)
{
	return a->p->kv_heads * a->shares;
}

/*
 * Whether spans become separate tasks. Yes if a sequence's rows are one task per key head and few, so that
 * the tasks of a span read all heads of the same blocks one after another. With many rows, whose partial
 * results are slow to store and merge, only if threads would be idle otherwise.
 */
static bool apart(const struct dt_paged_run *a, int64_t rows, int threads)
{
	const int64_t tasks = a->g->nseq * tasks_of_sequence(a);

	return a->chunks == 1 && (rows <= DT_BAND || (tasks < 4 * threads && tasks % threads));
}

/* Bytes in front of the sums. */
static size_t head_bytes(const struct dt_paged_run *a)
{
	const size_t n = (size_t)a->g->nseq *
			 (sizeof *a->parts.first + (size_t)tasks_of_sequence(a) * sizeof *a->parts.there);

	return (n + 63) / 64 * 64;
}

size_t dt_paged_parts_bytes(struct dt_paged_run *a, int64_t tokens, int threads)
{
	const int64_t row = dt_attn_value_pad(a->p) + (int64_t)sizeof(struct dt_attn_row) / 4;

	a->spans = apart(a, a->heads * tokens, threads) ? dt_paged_longest(a) : 1;
	if (a->spans == 1)
		return 0;
	a->parts.words = dt_ceil_div(a->heads * tokens * row, 16) * 16;
	return head_bytes(a) + (size_t)(dt_paged_all_spans(a) * tasks_of_sequence(a) * a->parts.words) * 4;
}

void dt_paged_parts_lay(struct dt_paged_run *a, void *memory)
{
	struct dt_paged_parts *p = &a->parts;
	int64_t all = 0;

	p->first = memory;
	p->there = (atomic_int *)(p->first + a->g->nseq);
	p->sums = (float *)((char *)memory + head_bytes(a));
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
