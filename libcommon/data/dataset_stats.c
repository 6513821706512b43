#include "data/dataset_stats.h"

#include "base/order.h"
#include "data/clean.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK	65536 /* tokens read at a time */
#define SIMILAR 0.8

/* The document being collected, and where its statistics go. */
struct gather {
	const struct dt_dataset *d;
	const struct dt_tokenizer *t;
	struct dt_dataset_stats *s;
	struct dt_clean *seen;
	bool bounded;  /* ends of documents are known */
	int64_t row;   /* tokens a sample of the set; 0: none */
	int64_t start; /* offset of the document in the set */
	int32_t *ids;
	size_t n, cap, lengths; /* tokens collected and their capacity; capacity of s->length */
};

static int grow(void **p, size_t *cap, size_t need, size_t size, struct dt_err *err)
{
	const size_t want = need > *cap * 2 ? need : *cap * 2;
	void *more;

	if (need <= *cap)
		return 0;
	more = reallocarray(*p, want, size);
	if (!more)
		return dt_err_sys(err, -ENOMEM, "cannot look at the documents");
	*p = more;
	*cap = want;
	return 0;
}

/* Counts the document's text and whether it is a duplicate. */
static int look_at_text(struct gather *g, bool whole, struct dt_err *err)
{
	char *text;
	size_t n;
	enum dt_clean_reason why;
	int64_t like;
	int rc = dt_tokenizer_decode(g->t, g->ids, g->n, false, &text, &n, err);

	if (rc < 0)
		return rc;
	g->s->bytes += (int64_t)n;
	if (whole) {
		rc = dt_clean_take(g->seen, text, n, &why, &like, err);
		g->s->exact += rc == 0 && why == DT_CLEAN_EXACT;
		g->s->near += rc == 0 && why == DT_CLEAN_NEAR;
	}
	free(text);
	return rc;
}

static int end_document(struct gather *g, struct dt_err *err)
{
	struct dt_dataset_stats *s = g->s;
	bool filler = g->row > 0 && dt_dataset_targets(g->d, g->start, (int64_t)g->n) == 0;
	void *lengths = s->length;
	int rc;

	if (g->n == 0)
		return 0;
	rc = look_at_text(g, g->bounded && !filler, err);
	if (rc == 0 && g->bounded && !filler) {
		rc = grow(&lengths, &g->lengths, (size_t)s->documents + 1, sizeof(*s->length), err);
		s->length = lengths;
		if (rc == 0)
			s->length[s->documents++] = (int64_t)g->n;
	}
	g->start += (int64_t)g->n;
	g->n = 0;
	return rc;
}

static int take(struct gather *g, int32_t id, struct dt_err *err)
{
	void *ids = g->ids;
	const int rc = grow(&ids, &g->cap, g->n + 1, sizeof(*g->ids), err);

	g->ids = ids;
	if (rc < 0)
		return rc;
	g->ids[g->n++] = id;
	g->s->used[id]++;
	return 0;
}

/* Adds tokens [at, at + n). first: from dt_dataset_first, if documents are kept apart. */
static int gather_chunk(struct gather *g, int64_t at, int64_t n, const int32_t *ids, const int32_t *first,
			bool apart, struct dt_err *err)
{
	const int32_t eot = dt_tokenizer_eot(g->t);
	int rc = 0;

	for (int64_t i = 0; i < n && rc == 0; i++) {
		if (apart && (i ? first[i] == i : dt_dataset_starts(g->d, at, 1) > 0))
			rc = end_document(g, err);
		if (rc == 0)
			rc = take(g, ids[i], err);
		/* without document ends, text is handled in pieces */
		if (rc == 0 && !apart && (g->bounded ? ids[i] == eot : g->n == CHUNK))
			rc = end_document(g, err);
	}
	return rc;
}

static int gather_all(struct gather *g, const struct dt_dataset_info *info, struct dt_err *err)
{
	int32_t *ids = malloc(2 * CHUNK * sizeof(*ids)), *first = ids + CHUNK;
	int rc = ids ? 0 : dt_err_sys(err, -ENOMEM, "cannot look at the documents");

	for (int64_t at = 0; at < info->tokens && rc == 0; at += CHUNK) {
		const int64_t n = info->tokens - at < CHUNK ? info->tokens - at : CHUNK;

		rc = dt_dataset_read(g->d, at, n, ids, err);
		if (rc == 0 && info->apart)
			dt_dataset_first(g->d, at, n, first);
		if (rc == 0)
			rc = gather_chunk(g, at, n, ids, first, info->apart, err);
	}
	if (rc == 0)
		rc = end_document(g, err);
	free(ids);
	return rc;
}

static void finish(struct dt_dataset_stats *s, bool bounded)
{
	for (int32_t id = 0; id < s->vocab; id++) {
		const double p = s->tokens ? (double)s->used[id] / (double)s->tokens : 0;

		s->entropy -= p > 0 ? p * log2(p) : 0;
	}
	if (!bounded)
		s->documents = -1;
	else if (s->documents)
		qsort(s->length, (size_t)s->documents, sizeof(*s->length), dt_order_i64);
}

int dt_dataset_stats(const struct dt_dataset *d, const struct dt_tokenizer *t, bool near,
		     struct dt_dataset_stats *ret, struct dt_err *err)
{
	const struct dt_clean_options same = {.exact = true,
					      .near = near ? SIMILAR : 0,
					      .max_symbols = 1,
					      .max_repeats = 1,
					      .max_ngrams = 1};
	struct gather g = {.d = d, .t = t, .s = ret};
	struct dt_dataset_info info;
	int rc;

	dt_dataset_info(d, &info);
	g.bounded = info.apart || dt_tokenizer_eot(t) >= 0;
	g.row = info.row;
	*ret = (struct dt_dataset_stats){.tokens = info.tokens, .vocab = info.vocab};
	ret->used = calloc((size_t)info.vocab, sizeof(*ret->used));
	rc = ret->used ? dt_clean_open(&same, &g.seen, err)
		       : dt_err_sys(err, -ENOMEM, "cannot look at the documents");
	if (rc == 0)
		rc = gather_all(&g, &info, err);
	if (rc == 0)
		finish(ret, g.bounded);
	if (rc == 0 && !near)
		ret->near = -1;
	if (rc < 0)
		dt_dataset_stats_release(ret);
	dt_clean_close(g.seen);
	free(g.ids);
	return rc;
}

void dt_dataset_stats_release(struct dt_dataset_stats *s)
{
	free(s->length);
	free(s->used);
	*s = (struct dt_dataset_stats){0};
}

int64_t dt_dataset_stats_quantile(const struct dt_dataset_stats *s, double share)
{
	const int64_t rank = (int64_t)ceil(share * (double)s->documents);

	return s->documents > 0 ? s->length[rank > 0 ? rank - 1 : 0] : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
