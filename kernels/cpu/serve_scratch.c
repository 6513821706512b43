/* The scratch of ops of serving: products with packed weights, paged attention, sampling. */
#include "kernels/cpu/paged.h"
#include "kernels/cpu/quant_job.h"
#include "kernels/sample.h"

/* ---- packed weights ---- */

size_t dt_packed_matmul_scratch(const struct dt_scratch_on *on, const struct dt_packed_kind *w, int64_t m)
{
	return dt_quant_room(on->threads, on->amx_int8, w, 0, m).bytes;
}

size_t dt_packed_set_matmul_scratch(const struct dt_scratch_on *on, const struct dt_packed_kind *w, int n,
				    int64_t m)
{
	return dt_quant_room(on->threads, on->amx_int8, w, n, m).bytes;
}

size_t dt_packed_embed_scratch(const struct dt_scratch_on *on, int64_t k)
{
	return (size_t)(on->threads * dt_ceil_div(k, DT_QK) * DT_QK) * 4;
}

/* ---- sampling ---- */

size_t dt_sample_room(int64_t vocab)
{
	return (size_t)(vocab + 15) / 16 * 16 * DT_SAMPLE_ROOM;
}

size_t dt_sample_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t vocab)
{
	return dt_lines(dt_sample_room(vocab)) *
	       (size_t)dt_min64(rows, dt_min64(on->threads, DT_SAMPLE_WORKERS));
}

/* ---- paged attention ---- */

/*
 * Whether spans become separate tasks. Yes if a sequence's rows are one task per key head and few, so that
 * the tasks of a span read all heads of the same blocks one after another. With many rows, whose partial
 * results are slow to store and merge, only if threads would be idle otherwise.
 */
static bool apart(const struct dt_paged_run *a, const struct dt_paged_size *s, int threads)
{
	const int64_t tasks = s->nseq * a->p->kv_heads * a->shares;

	return a->chunks == 1 && (a->heads * s->most <= DT_BAND || (tasks < 4 * threads && tasks % threads));
}

size_t dt_paged_head_bytes(const struct dt_paged_run *a, int64_t nseq)
{
	return dt_lines((size_t)nseq * (sizeof *a->parts.first +
					(size_t)(a->p->kv_heads * a->shares) * sizeof *a->parts.there));
}

size_t dt_paged_parts_bytes(struct dt_paged_run *a, const struct dt_paged_size *s, int threads)
{
	const int64_t row = dt_attn_value_pad(a->p) + (int64_t)sizeof(struct dt_attn_row) / 4;

	a->spans = apart(a, s, threads) ? s->longest : 1;
	if (a->spans == 1)
		return 0;
	a->parts.words = dt_ceil_div(a->heads * s->most * row, 16) * 16;
	return dt_paged_head_bytes(a, s->nseq) +
	       (size_t)(s->spans * a->p->kv_heads * a->shares * a->parts.words) * 4;
}

struct search { /* for the batch that takes most */
	struct dt_paged_run run;
	const struct dt_paged_most *most;
	int threads;
	size_t bytes;
};

/* Spans of a sequence, of which `rows` are new, at most; and of n of them. */
static int64_t spans_of_one(const struct search *s, int64_t rows)
{
	const int64_t window = s->run.p->window > 0 ? s->run.p->window + rows - 1 : s->most->keys;

	/* the first key that a window sees is anywhere in a span */
	return dt_min64(dt_paged_spans(0, s->most->keys),
			dt_paged_spans(DT_PAGED_SPAN - 1, DT_PAGED_SPAN - 1 + window));
}

static int64_t spans_of_all(const struct search *s, int64_t n, int64_t each)
{
	return dt_min64(n * each, n + (s->most->all_keys - n) / DT_PAGED_SPAN);
}

static void consider(struct search *s, int64_t n, int64_t most, int64_t rows, int64_t longest)
{
	const struct dt_paged_size size = {.nseq = n,
					   .rows = rows,
					   .most = most,
					   .longest = longest,
					   .spans = spans_of_all(s, n, longest)};
	size_t bytes;

	dt_paged_share(&s->run, s->run.p->value_dim ? &size : NULL, most, s->threads);
	bytes = dt_paged_parts_bytes(&s->run, &size, s->threads);
	s->bytes = bytes > s->bytes ? bytes : s->bytes;
}

/* n sequences, of which one has `most` rows and none more; of latents all that changes shares of heads. */
static void consider_rows(struct search *s, int64_t n, int64_t most)
{
	const struct dt_attn *p = s->run.p;
	const int64_t each = spans_of_one(s, most), shares = dt_ceil_div(p->heads / p->kv_heads, DT_TILE),
		      end = dt_min64(n * most, s->most->rows);

	if (each < 2)
		return;
	consider(s, n, most, n - 1 + most, each);
	if (!p->value_dim)
		return;
	if (most == 1)
		for (int64_t l = 2; l < each && n * p->kv_heads * l * shares < s->threads; l++)
			consider(s, n, 1, n, l);
	for (int64_t rows = n + most; rows <= end && rows * p->kv_heads * shares < s->threads; rows++)
		consider(s, n, most, rows, each);
}

/* All numbers of sequences for which threads would be idle, and the largest. */
static size_t most_parts(struct search *s)
{
	const int64_t seqs = dt_min64(s->most->seqs, s->most->rows);

	for (int64_t n = 1; n <= seqs; n = n < 4 * s->threads || n == seqs ? n + 1 : seqs) {
		const int64_t rows = dt_min64(dt_min64(s->most->rows - n + 1, s->most->keys), DT_TILE);

		for (int64_t most = 1; most <= rows; most++)
			consider_rows(s, n, most);
	}
	return s->bytes;
}

size_t dt_attention_paged_scratch(const struct dt_scratch_on *on, enum dt_dtype t, enum dt_dtype cache,
				  const struct dt_attn *p, const struct dt_paged_most *most)
{
	/* what the sizes depend on of dt_tile_with_amx */
	const struct dt_tile tile = {.pairs = (cache == DT_I8 ? t : cache) == DT_BF16 && on->pairs};
	struct search s = {.run = {.t = &tile, .p = p}, .most = most, .threads = on->threads};

	return (size_t)(on->threads * dt_paged_words(&tile, p)) * 4 + most_parts(&s);
}
/* SPDX-License-Identifier: Apache-2.0 */
