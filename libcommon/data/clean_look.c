/*
 * Checks that depend on one document alone, by fixed rules: threads examine documents in parallel
 * (data/clean.h).
 */
#include "base/clones.h"
#include "data/clean_rules.h"

#include <errno.h>
#include <string.h>

#define SHINGLE 5

static uint64_t hash_bytes(const char *s, size_t n, uint64_t h)
{
	uint64_t w;

	h = clean_mix(h, n);
	for (; n >= 8; n -= 8, s += 8) {
		memcpy(&w, s, 8);
		h = clean_mix(h, w);
	}
	w = 0;
	memcpy(&w, s, n);
	h = clean_mix(clean_mix(h, w), 0xc4ceb9fe1a85ec53u);
	return h ? h : 1;
}

/* Iterates over the hashes of a text's words. */
struct words {
	const unsigned char *p, *end;
};

static bool is_word(unsigned char c)
{
	return c >= 128 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool next_word(struct words *w, uint64_t *ret)
{
	uint64_t h = 14695981039346656037u;

	while (w->p < w->end && !is_word(*w->p))
		w->p++;
	if (w->p == w->end)
		return false;
	for (; w->p < w->end && is_word(*w->p); w->p++)
		h = (h ^ (*w->p >= 'A' && *w->p <= 'Z' ? *w->p | 32u : *w->p)) * 1099511628211u;
	*ret = h ^ h >> 29;
	return true;
}

int clean_each_run(const char *text, size_t bytes, int n, int (*fn)(void *ctx, uint64_t hash), void *ctx)
{
	struct words w = {(const unsigned char *)text, (const unsigned char *)text + bytes};
	uint64_t ring[16], word;
	int64_t count = 0;
	int rc = 0;

	while (rc == 0 && next_word(&w, &word)) {
		uint64_t h = CLEAN_SEED;

		ring[count++ % 16] = word;
		for (int64_t i = count - n; count >= n && i < count; i++)
			h = clean_mix(h, ring[i % 16]);
		if (count >= n)
			rc = fn(ctx, h);
	}
	if (rc == 0 && count > 0 && count < n) {
		uint64_t h = CLEAN_SEED;

		for (int64_t i = 0; i < count; i++)
			h = clean_mix(h, ring[i]);
		rc = fn(ctx, h);
	}
	return rc;
}

static int is_excluded(void *ctx, uint64_t hash)
{
	const struct clean_rules *c = ctx;

	return hash_map_has(&c->excluded, hash);
}

static bool has_symbols(const struct clean_rules *c, const char *s, size_t n)
{
	int64_t all = 0, symbols = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char b = (unsigned char)s[i];

		if (b <= ' ' || (b & 0xc0) == 0x80)
			continue;
		all++;
		symbols += !is_word(b);
	}
	return (double)symbols > c->o.max_symbols * (double)all;
}

/* Returns 1, 0, or -1 when out of memory. */
static int has_repeats(const struct clean_rules *c, const char *s, size_t n)
{
	struct hash_map before = {0};
	size_t repeated = 0;
	int rc = 0;

	for (const char *end = s + n, *line = s; line < end && rc == 0;) {
		const char *nl = memchr(line, '\n', (size_t)(end - line));
		size_t length = nl ? (size_t)(nl - line) + 1 : (size_t)(end - line);
		uint64_t h = hash_bytes(line, nl ? length - 1 : length, CLEAN_SEED);

		if (hash_map_has(&before, h))
			repeated += length;
		else
			rc = hash_map_add(&before, h, 0);
		line += length;
	}
	hash_map_free(&before);
	return rc < 0 ? rc : (double)repeated > c->o.max_repeats * (double)n;
}

struct runs {
	struct hash_map before;
	int64_t all, repeated;
};

static int add_run(void *ctx, uint64_t hash)
{
	struct runs *r = ctx;

	r->all++;
	if (!hash_map_has(&r->before, hash))
		return hash_map_add(&r->before, hash, 0);
	r->repeated++;
	return 0;
}

/* Returns 1, 0, or -1 when out of memory. */
static int has_ngrams(const struct clean_rules *c, const char *s, size_t n)
{
	struct runs r = {0};
	const int rc = clean_each_run(s, n, SHINGLE, add_run, &r);

	hash_map_free(&r.before);
	return rc < 0 ? rc : (double)r.repeated > c->o.max_ngrams * (double)r.all;
}

/*
 * The minimum of each hash over all word runs (MinHash). Runs are buffered in blocks, so that the minima stay
 * in registers for a block.
 */
#define SIGN_RUNS 64

struct signing {
	const struct clean_rules *c;
	uint32_t *signature;
	int n;
	uint32_t run[SIGN_RUNS];
};

DT_CLONES static void sign_block(const uint32_t *restrict m, const uint32_t *restrict a, const uint32_t *run,
				 int n, uint32_t *restrict sig)
{
	for (int b = 0; b < DT_CLEAN_HASHES; b += 16) {
		uint32_t least[16];

		memcpy(least, sig + b, sizeof(least));
		for (int k = 0; k < n; k++)
			for (int i = 0; i < 16; i++) {
				uint32_t v = m[b + i] * run[k] + a[b + i];

				least[i] = v < least[i] ? v : least[i];
			}
		memcpy(sig + b, least, sizeof(least));
	}
}

static void sign_rest(struct signing *s)
{
	sign_block(s->c->multiply, s->c->add, s->run, s->n, s->signature);
	s->n = 0;
}

static int sign(void *ctx, uint64_t hash)
{
	struct signing *s = ctx;

	s->run[s->n++] = (uint32_t)(hash >> 32) ^ (uint32_t)hash;
	if (s->n == SIGN_RUNS)
		sign_rest(s);
	return 0;
}

static int64_t characters(const char *s, size_t n)
{
	int64_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xc0) != 0x80;
	return count;
}

/* Applies the filters to a text. -1: out of memory. */
static int filter(const struct clean_rules *c, const char *text, size_t n, enum dt_clean_reason *ret)
{
	int64_t chars = c->o.min_chars || c->o.max_chars ? characters(text, n) : 0;
	int rc = 0;

	if (c->o.min_chars && chars < c->o.min_chars)
		*ret = DT_CLEAN_SHORT;
	else if (c->o.max_chars && chars > c->o.max_chars)
		*ret = DT_CLEAN_LONG;
	else if (c->o.max_symbols < 1 && has_symbols(c, text, n))
		*ret = DT_CLEAN_SYMBOLS;
	else if (c->o.max_repeats < 1 && (rc = has_repeats(c, text, n)) != 0)
		*ret = DT_CLEAN_REPEATS;
	else if (c->o.max_ngrams < 1 && (rc = has_ngrams(c, text, n)) != 0)
		*ret = DT_CLEAN_NGRAMS;
	else if (c->script && (rc = dt_script_fits(c->script, text, n)) <= 0)
		*ret = DT_CLEAN_SCRIPT;
	else if (c->excluded.n && clean_each_run(text, n, CLEAN_EXCLUDED, is_excluded, (void *)c))
		*ret = DT_CLEAN_EXCLUDED;
	return rc < 0 ? -1 : 0;
}

int clean_look(const struct clean_rules *c, const char *text, size_t n, struct dt_clean_look *ret)
{
	struct signing s = {.c = c, .signature = ret->signature};
	int rc;

	ret->why = DT_CLEAN_KEPT;
	ret->bytes = n;
	rc = filter(c, text, n, &ret->why);
	if (rc < 0 || ret->why != DT_CLEAN_KEPT)
		return rc < 0 ? -ENOMEM : 0;
	ret->hash = c->o.exact ? hash_bytes(text, n, CLEAN_SEED) : 0;
	if (c->o.near > 0) {
		memset(ret->signature, 0xff, sizeof(ret->signature));
		clean_each_run(text, n, SHINGLE, sign, &s);
		sign_rest(&s);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
