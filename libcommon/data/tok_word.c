/* Encodes a word: from a cache of short words, as a whole token, by merging symbols, or as its model does. */
#include "data/tok_word.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_tok_flush(struct dt_tok_enc *e)
{
	int rc;

	if (e->at >= e->text && e->at < e->text + e->text_n)
		e->done = (size_t)(e->at - e->text);
	rc = e->n ? e->sink(e->ctx, e->ids, e->n, e->done, e->err) : 0;
	e->n = 0;
	return rc;
}

int dt_tok_push(struct dt_tok_enc *e, const int32_t *ids, size_t n)
{
	int rc;

	while (n) {
		size_t part = DT_TOK_IDS_MAX - e->n < n ? DT_TOK_IDS_MAX - e->n : n;

		memcpy(e->ids + e->n, ids, part * sizeof(*ids));
		e->n += part;
		ids += part;
		n -= part;
		if (e->n == DT_TOK_IDS_MAX && (rc = dt_tok_flush(e)) < 0)
			return rc;
	}
	return 0;
}

static int to_symbols(const struct dt_tok_enc *e, const char *s, size_t n, int32_t *sym)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		sym[i] = e->t->bpe.byte_id[c];
		if (sym[i] < 0) {
			char shown[16] = "";

			if (c > 32 && c < 127)
				snprintf(shown, sizeof(shown), " ('%c')", c);
			return dt_err_set(e->err, -EINVAL, "byte 0x%02x%s is not in the vocabulary", c,
					  shown);
		}
	}
	return 0;
}

/* Converts a word to its initial symbols; returns their number or a negative errno. */
static int64_t symbols(const struct dt_tok_enc *e, const char *s, size_t n, int32_t *sym)
{
	int rc;

	if (e->t->sp.on)
		return dt_sp_symbols(e->t, s, n, sym, e->err);
	rc = to_symbols(e, s, n, sym);
	return rc < 0 ? rc : (int64_t)n;
}

/* Converts a word to ids, of which there are at most n; returns their number or a negative errno. */
static int64_t word_ids(const struct dt_tok_enc *e, const char *s, size_t n, int32_t *ids)
{
	int64_t count;

	if (e->t->ug.on)
		return dt_ug_ids(e->t, s, n, ids, e->err);
	if (e->t->wp.on)
		return dt_wp_ids(&e->t->wp, s, n, ids);
	count = symbols(e, s, n, ids);
	if (count < 0)
		return count;
	if (n <= DT_BPE_SHORT)
		return (int64_t)dt_bpe_short(&e->t->bpe, ids, (size_t)count);
	count = dt_bpe_long(&e->t->bpe, ids, (size_t)count);
	return count < 0 ? dt_err_sys(e->err, (int)count, "cannot encode a word of %zu bytes", n) : count;
}

static int long_word(struct dt_tok_enc *e, const char *s, size_t n)
{
	int32_t *sym = malloc(n * sizeof(*sym));
	int64_t len;
	int rc;

	if (!sym)
		return dt_err_sys(e->err, -ENOMEM, "cannot encode a word of %zu bytes", n);
	len = word_ids(e, s, n, sym);
	rc = len < 0 ? (int)len : dt_tok_push(e, sym, (size_t)len);
	free(sym);
	return rc;
}

/* Encodes a word of at most DT_BPE_SHORT bytes. */
static int short_word(struct dt_tok_enc *e, const char *s, size_t n, struct dt_tok_cached *c)
{
	int32_t sym[DT_BPE_SHORT];
	int64_t count = word_ids(e, s, n, sym);

	if (count < 0)
		return (int)count;
	n = (size_t)count;
	if (c && n <= DT_TOK_CACHE_IDS) {
		c->ids = (uint8_t)n;
		memcpy(c->id, sym, n * sizeof(*sym));
	} else if (c) {
		c->ids = 0;
	}
	return dt_tok_push(e, sym, n);
}

int dt_tok_word(struct dt_tok_enc *e, const char *s, size_t n)
{
	const struct dt_bpe *b = &e->t->bpe;
	struct dt_tok_cached *c = NULL;
	int64_t at;

	if (n == 0)
		return 0;
	if (e->word)
		return e->word(e->ctx, s, n, e->err);
	e->at = s;
	if (e->cache && n <= DT_TOK_CACHE_KEY) {
		c = &e->cache[dt_bytes_hash(s, n) & e->cache_mask];
		if (c->ids && c->n == n && !memcmp(c->key, s, n))
			return dt_tok_push(e, c->id, c->ids);
		c->n = (uint8_t)n;
		c->ids = 0;
		memcpy(c->key, s, n);
	}
	if (b->word_id && (at = dt_bytemap_find(&b->words, s, n)) >= 0)
		return dt_tok_push(e, &b->word_id[at], 1);
	return n <= DT_BPE_SHORT ? short_word(e, s, n, c) : long_word(e, s, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
