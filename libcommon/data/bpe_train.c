#include "data/bpe_train.h"

#include "data/bpe_pairs.h"
#include "data/tok_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct word {
	size_t at; /* start of its symbols in sym */
	uint32_t n;
	int64_t count;
};

struct dt_bpe_trainer {
	struct dt_bpe_train_options o;
	struct dt_tokenizer *cutter; /* splits text into words by this pattern */
	struct dt_bytemap words, tokens;
	int64_t *count; /* [word] occurrences */
	uint32_t count_cap;
	struct word *word;
	int32_t *sym;
	struct bpe_pairs pairs;
	int32_t (*merge)[2];
	size_t merges;
};

static const char char_pattern[] = "\\n|[^\\n]";

/* The pre-tokenizer's pattern. NULL: GPT-2's, which a ByteLevel step contains. */
static const char *pattern_of(const struct dt_bpe_train_options *o)
{
	if (o->chars)
		return char_pattern;
	return o->pattern == DT_BPE_GPT2 ? NULL : dt_tok_pattern[o->pattern];
}

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot train the tokenizer");
}

/* Adds all 256 bytes in the order of GPT-2's byte-level alphabet. */
static int add_bytes(struct dt_bytemap *m)
{
	for (uint32_t c = 0; c < 256 + 68; c++)
		for (int b = 0; b < 256; b++) {
			char byte = (char)b;

			if (dt_byte_char((uint8_t)b) == c && dt_bytemap_add(m, &byte, 1) < 0)
				return -ENOMEM;
		}
	return 0;
}

int dt_bpe_trainer_new(const struct dt_bpe_train_options *o, struct dt_bpe_trainer **ret, struct dt_err *err)
{
	struct dt_bpe_trainer *t = calloc(1, sizeof(*t));
	struct dt_tok_write w = {0};
	char *text = NULL;
	size_t n;
	int rc = 0;

	if (!t || add_bytes(&t->tokens) < 0) {
		rc = no_memory(err);
		goto fail;
	}
	t->o = *o;
	w.tokens = &t->tokens;
	w.special = o->special;
	w.pattern = pattern_of(o);
	rc = dt_tok_write_json(&w, &text, &n, err);
	if (rc == 0)
		rc = dt_tokenizer_from_text(text, n, &t->cutter, err);
	if (rc == 0 && !o->chars && o->vocab < dt_tokenizer_vocab(t->cutter))
		rc = dt_err_set(err, -EINVAL,
				"a vocabulary of %d is too small: bytes and special tokens need %d", o->vocab,
				dt_tokenizer_vocab(t->cutter));
	free(text);
	if (rc < 0)
		goto fail;
	*ret = t;
	return 0;
fail:
	dt_bpe_trainer_free(t);
	return rc;
}

void dt_bpe_trainer_free(struct dt_bpe_trainer *t)
{
	if (!t)
		return;
	bpe_pairs_release(&t->pairs);
	dt_tokenizer_close(t->cutter);
	dt_bytemap_release(&t->words);
	dt_bytemap_release(&t->tokens);
	free(t->count);
	free(t->word);
	free(t->sym);
	free(t->merge);
	free(t);
}

static int count_word(void *ctx, const char *s, size_t n, struct dt_err *err)
{
	struct dt_bpe_trainer *t = ctx;
	int64_t i = dt_bytemap_add(&t->words, s, n);

	if (i < 0)
		return no_memory(err);
	if ((uint32_t)i >= t->count_cap) {
		uint32_t cap = t->count_cap ? 2 * t->count_cap : 4096;
		int64_t *count = realloc(t->count, (size_t)cap * sizeof(*count));

		if (!count)
			return no_memory(err);
		memset(count + t->count_cap, 0, (size_t)(cap - t->count_cap) * sizeof(*count));
		t->count = count;
		t->count_cap = cap;
	}
	t->count[i]++;
	return 0;
}

int dt_bpe_trainer_add(struct dt_bpe_trainer *t, const char *text, size_t n, struct dt_err *err)
{
	return dt_tok_words(t->cutter, text, n, count_word, t, err);
}

/* Converts words to symbols: indices of their bytes in the alphabet. */
static int make_words(struct dt_bpe_trainer *t)
{
	size_t at = 0, n;

	t->word = malloc(((size_t)t->words.n + 1) * sizeof(*t->word));
	t->sym = malloc((t->words.blob_n + 1) * sizeof(*t->sym));
	if (!t->word || !t->sym)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->words.n; i++) {
		const char *s = dt_bytemap_key(&t->words, i, &n);

		t->word[i] = (struct word){.at = at, .n = (uint32_t)n, .count = t->count[i]};
		for (size_t k = 0; k < n; k++)
			t->sym[at++] = (int32_t)dt_bytemap_find(&t->tokens, s + k, 1);
	}
	return 0;
}

/* Replaces (left, right) by id in word w and updates the counts of neighbouring pairs. */
static int merge_word(struct dt_bpe_trainer *t, uint32_t w, int32_t left, int32_t right, int32_t id)
{
	int32_t *s = t->sym + t->word[w].at;
	uint32_t n = t->word[w].n, out = 0;
	int64_t count = t->word[w].count;
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; out++) {
		if (i + 1 >= n || s[i] != left || s[i + 1] != right) {
			s[out] = s[i++];
			continue;
		}
		if (out > 0) {
			rc = bpe_pairs_change(&t->pairs, s[out - 1], left, w, -count);
			if (rc == 0)
				rc = bpe_pairs_change(&t->pairs, s[out - 1], id, w, count);
		}
		if (rc == 0 && i + 2 < n) {
			rc = bpe_pairs_change(&t->pairs, right, s[i + 2], w, -count);
			if (rc == 0)
				rc = bpe_pairs_change(&t->pairs, id, s[i + 2], w, count);
		}
		s[out] = id;
		i += 2;
	}
	t->word[w].n = out;
	return rc;
}

/* Id of the token left + right, which another pair may have created before. */
static int64_t join(struct dt_bpe_trainer *t, int32_t left, int32_t right)
{
	size_t a, b;
	const char *s = dt_bytemap_key(&t->tokens, (uint32_t)left, &a);
	char *both;
	int64_t id;

	dt_bytemap_key(&t->tokens, (uint32_t)right, &b);
	both = malloc(a + b);
	if (!both)
		return -ENOMEM;
	memcpy(both, s, a);
	memcpy(both + a, dt_bytemap_key(&t->tokens, (uint32_t)right, &b), b);
	id = dt_bytemap_add(&t->tokens, both, a + b);
	free(both);
	return id;
}

static int add_merge(struct dt_bpe_trainer *t, int32_t left, int32_t right)
{
	if ((t->merges & (t->merges - 1)) == 0) {
		void *v = realloc(t->merge, (t->merges ? 2 * t->merges : 1) * sizeof(*t->merge));

		if (!v)
			return -ENOMEM;
		t->merge = v;
	}
	t->merge[t->merges][0] = left;
	t->merge[t->merges++][1] = right;
	return 0;
}

static int merge_pair(struct dt_bpe_trainer *t, struct bpe_pair *p)
{
	int32_t left = (int32_t)(p->key >> 32), right = (int32_t)(uint32_t)p->key;
	int64_t id = join(t, left, right);
	uint32_t *word = p->word, n = p->n;
	int rc = id < 0 ? (int)id : add_merge(t, left, right);

	p->word = NULL; /* p moves when pairs are added */
	p->n = p->cap = 0;
	p->count = 0;
	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = merge_word(t, word[i], left, right, (int32_t)id);
	free(word);
	return rc < 0 ? rc : bpe_pairs_queue(&t->pairs);
}

static int train(struct dt_bpe_trainer *t, uint32_t want, void (*progress)(void *, int64_t, int64_t),
		 void *ctx)
{
	int rc = make_words(t);

	for (uint32_t w = 0; w < t->words.n && rc == 0; w++)
		for (uint32_t i = 0; i + 1 < t->word[w].n && rc == 0; i++) {
			const int32_t *s = t->sym + t->word[w].at + i;

			rc = bpe_pairs_change(&t->pairs, s[0], s[1], w, t->word[w].count);
		}
	if (rc == 0)
		rc = bpe_pairs_queue(&t->pairs);
	while (rc == 0 && t->tokens.n < want) {
		struct bpe_pair *p;

		rc = bpe_pairs_most(&t->pairs, &p);
		if (rc < 0 || !p || p->count < (t->o.min_count > 1 ? t->o.min_count : 1))
			break;
		rc = merge_pair(t, p);
		if (progress)
			progress(ctx, t->tokens.n, want);
	}
	return rc;
}

struct span {
	const char *s;
	size_t n;
};

static int by_bytes(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);

	return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/*
 * Adds the merges that combine one character's bytes from the left. Characters are distinct, so the last
 * merge is always new; an earlier one is skipped if its result, a partial character, is already a token.
 */
static int chain_bytes(struct dt_bpe_trainer *t, const struct span *c)
{
	int64_t left = dt_bytemap_add(&t->tokens, c->s, 1), right, both = 0;

	for (size_t k = 1; k < c->n; k++, left = both) {
		bool known = k + 1 < c->n && dt_bytemap_find(&t->tokens, c->s, k + 1) >= 0;

		right = dt_bytemap_add(&t->tokens, c->s + k, 1);
		both = dt_bytemap_add(&t->tokens, c->s, k + 1);
		if (left < 0 || right < 0 || both < 0)
			return -ENOMEM;
		if (!known && add_merge(t, (int32_t)left, (int32_t)right) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Byte order of UTF-8 is code point order. */
static int make_chars(struct dt_bpe_trainer *t)
{
	struct span *c = malloc(((size_t)t->words.n + 1) * sizeof(*c));
	int rc = c ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < t->words.n && rc == 0; i++)
		c[i].s = dt_bytemap_key(&t->words, i, &c[i].n);
	if (rc == 0)
		qsort(c, t->words.n, sizeof(*c), by_bytes);
	dt_bytemap_release(&t->tokens);
	for (uint32_t i = 0; i < t->words.n && rc == 0; i++)
		rc = dt_bytemap_add(&t->tokens, c[i].s, c[i].n) < 0 ? -ENOMEM : 0;
	for (uint32_t i = 0; i < t->words.n && rc == 0; i++)
		rc = chain_bytes(t, &c[i]);
	free(c);
	return rc;
}

int dt_bpe_trainer_run(struct dt_bpe_trainer *t, void (*progress)(void *ctx, int64_t done, int64_t total),
		       void *ctx, char **ret, size_t *ret_n, struct dt_err *err)
{
	struct dt_tok_write w = {.tokens = &t->tokens, .special = t->o.special};
	int32_t specials = 0;
	int rc;

	while (w.special && w.special[specials])
		specials++;
	if (!t->words.n)
		return dt_err_set(err, -EINVAL, "there is no text to train on");
	rc = t->o.chars ? make_chars(t) : train(t, (uint32_t)(t->o.vocab - specials), progress, ctx);
	if (rc < 0)
		return no_memory(err);
	w.merge = (const int32_t(*)[2])t->merge;
	w.merges = t->merges;
	w.pattern = pattern_of(&t->o);
	return dt_tok_write_json(&w, ret, ret_n, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
