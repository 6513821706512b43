#include "data/clean.h"

#include "base/rng.h"
#include "data/hash_map.h"
#include "data/script.h"

#include <errno.h>
#include <string.h>

#define HASHES	 128
#define BANDS	 21
#define ROWS	 6
#define SHINGLE	 5
#define EXCLUDED 13
#define SLACK	 0.07 /* two deviations of the estimate of 0.8 by 128 hashes */
#define SEED	 0x64742d636c65616eu

struct dt_clean {
	struct dt_clean_options o;
	struct dt_clean_counts counts;
	int64_t seen;
	struct hash_map exact, bands, excluded, before; /* before: of the document under way */
	struct dt_script *script;
	uint32_t multiply[HASHES], add[HASHES];
	uint32_t *signature; /* HASHES of each document that is kept */
	int64_t *document;   /* its number */
	size_t kept, room;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdu;
	return h ^ h >> 32;
}

static uint64_t hash_bytes(const char *s, size_t n, uint64_t h)
{
	uint64_t w;

	h = mix(h, n);
	for (; n >= 8; n -= 8, s += 8) {
		memcpy(&w, s, 8);
		h = mix(h, w);
	}
	w = 0;
	memcpy(&w, s, n);
	h = mix(mix(h, w), 0xc4ceb9fe1a85ec53u);
	return h ? h : 1;
}

/* Hashes of the words of a text, one after another. */
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

/*
 * Calls fn with the hash of every n words in a row; a text of fewer is one. fn returns other than 0 to
 * stop.
 */
static int each_run(const char *text, size_t bytes, int n, int (*fn)(void *ctx, uint64_t hash), void *ctx)
{
	struct words w = {(const unsigned char *)text, (const unsigned char *)text + bytes};
	uint64_t ring[16], word;
	int64_t count = 0;
	int rc = 0;

	while (rc == 0 && next_word(&w, &word)) {
		uint64_t h = SEED;

		ring[count++ % 16] = word;
		for (int64_t i = count - n; count >= n && i < count; i++)
			h = mix(h, ring[i % 16]);
		if (count >= n)
			rc = fn(ctx, h);
	}
	if (rc == 0 && count > 0 && count < n) {
		uint64_t h = SEED;

		for (int64_t i = 0; i < count; i++)
			h = mix(h, ring[i]);
		rc = fn(ctx, h);
	}
	return rc;
}

int dt_clean_open(const struct dt_clean_options *o, struct dt_clean **ret, struct dt_err *err)
{
	struct dt_rng r = dt_rng_make(SEED, DT_RNG_SAMPLE, 0);
	struct dt_clean *c;

	if (o->near < 0 || o->near > 1 || o->max_symbols < 0 || o->max_repeats < 0 ||
	    (o->max_chars && o->max_chars < o->min_chars))
		return dt_err_set(err, -EINVAL, "documents of %lld to %lld characters cannot be kept",
				  (long long)o->min_chars, (long long)o->max_chars);
	c = calloc(1, sizeof(*c));
	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot look for duplicates");
	c->o = *o;
	for (uint64_t i = 0; i < HASHES; i++) {
		c->multiply[i] = dt_rng_u32(&r, 2 * i) | 1;
		c->add[i] = dt_rng_u32(&r, 2 * i + 1);
	}
	if (o->script && dt_script_open(&c->script, o->script, err) < 0) {
		dt_clean_close(c);
		return err->code;
	}
	*ret = c;
	return 0;
}

void dt_clean_close(struct dt_clean *c)
{
	if (!c)
		return;
	hash_map_free(&c->exact);
	hash_map_free(&c->bands);
	hash_map_free(&c->excluded);
	hash_map_free(&c->before);
	dt_script_close(c->script);
	free(c->signature);
	free(c->document);
	free(c);
}

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot remember more documents");
}

static int add_excluded(void *ctx, uint64_t hash)
{
	struct dt_clean *c = ctx;

	return hash_map_has(&c->excluded, hash) ? 0 : hash_map_add(&c->excluded, hash, 0);
}

int dt_clean_exclude(struct dt_clean *c, const char *text, size_t n, struct dt_err *err)
{
	return each_run(text, n, EXCLUDED, add_excluded, c) < 0 ? no_memory(err) : 0;
}

static int is_excluded(void *ctx, uint64_t hash)
{
	const struct dt_clean *c = ctx;

	return hash_map_has(&c->excluded, hash);
}

static bool has_symbols(const struct dt_clean *c, const char *s, size_t n)
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

/* 1, 0, or -1 without memory. */
static int has_repeats(struct dt_clean *c, const char *s, size_t n)
{
	size_t repeated = 0;
	int rc = 0;

	for (const char *end = s + n, *line = s; line < end && rc == 0;) {
		const char *nl = memchr(line, '\n', (size_t)(end - line));
		size_t length = nl ? (size_t)(nl - line) + 1 : (size_t)(end - line);
		uint64_t h = hash_bytes(line, nl ? length - 1 : length, SEED);

		if (hash_map_has(&c->before, h))
			repeated += length;
		else
			rc = hash_map_add(&c->before, h, 0);
		line += length;
	}
	hash_map_free(&c->before);
	return rc < 0 ? rc : (double)repeated > c->o.max_repeats * (double)n;
}

struct runs {
	struct dt_clean *c;
	int64_t all, repeated;
};

static int add_run(void *ctx, uint64_t hash)
{
	struct runs *r = ctx;

	r->all++;
	if (!hash_map_has(&r->c->before, hash))
		return hash_map_add(&r->c->before, hash, 0);
	r->repeated++;
	return 0;
}

/* 1, 0, or -1 without memory. */
static int has_ngrams(struct dt_clean *c, const char *s, size_t n)
{
	struct runs r = {.c = c};
	const int rc = each_run(s, n, SHINGLE, add_run, &r);

	hash_map_free(&c->before);
	return rc < 0 ? rc : (double)r.repeated > c->o.max_ngrams * (double)r.all;
}

struct signing {
	const struct dt_clean *c;
	uint32_t *signature;
};

static int sign(void *ctx, uint64_t hash)
{
	struct signing *s = ctx;
	const uint32_t *m = s->c->multiply, *a = s->c->add, x = (uint32_t)(hash >> 32) ^ (uint32_t)hash;
	uint32_t *sig = s->signature;

	for (int i = 0; i < HASHES; i++) {
		uint32_t v = m[i] * x + a[i];

		sig[i] = v < sig[i] ? v : sig[i];
	}
	return 0;
}

static uint64_t band(const uint32_t *sig, int b)
{
	uint64_t h = mix(SEED, (uint64_t)b + 1);

	for (int i = 0; i < ROWS; i++)
		h = mix(h, sig[b * ROWS + i]);
	return h;
}

static bool similar(const struct dt_clean *c, const uint32_t *a, const uint32_t *b)
{
	int equal = 0;

	for (int i = 0; i < HASHES; i++)
		equal += a[i] == b[i];
	return equal >= (c->o.near - SLACK) * HASHES;
}

/* Document of which sig is a near duplicate, or -1. */
static int64_t find_near(const struct dt_clean *c, const uint32_t *sig)
{
	for (int b = 0; b < BANDS; b++) {
		uint64_t key = band(sig, b);
		size_t at = SIZE_MAX;
		uint32_t i;

		for (int tries = 0; tries < 64 && hash_map_next(&c->bands, key, &at, &i); tries++)
			if (similar(c, sig, c->signature + (size_t)i * HASHES))
				return c->document[i];
	}
	return -1;
}

static int remember(struct dt_clean *c, const uint32_t *sig)
{
	if (c->kept == c->room) {
		size_t room = c->room ? c->room * 2 : 256;
		uint32_t *s = realloc(c->signature, room * HASHES * sizeof(*s));
		int64_t *d;

		if (s)
			c->signature = s;
		d = s ? realloc(c->document, room * sizeof(*d)) : NULL;
		if (!d)
			return -1;
		c->document = d;
		c->room = room;
	}
	memcpy(c->signature + c->kept * HASHES, sig, HASHES * sizeof(*sig));
	c->document[c->kept] = c->seen;
	for (int b = 0; b < BANDS; b++)
		if (hash_map_add(&c->bands, band(sig, b), (uint32_t)c->kept) < 0)
			return -1;
	c->kept++;
	return 0;
}

static int64_t characters(const char *s, size_t n)
{
	int64_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xc0) != 0x80;
	return count;
}

/* What a document alone says; -1: no memory. */
static int filter(struct dt_clean *c, const char *text, size_t n, enum dt_clean_reason *ret)
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
	else if (c->script && !dt_script_fits(c->script, text, n))
		*ret = DT_CLEAN_SCRIPT;
	else if (c->excluded.n && each_run(text, n, EXCLUDED, is_excluded, c))
		*ret = DT_CLEAN_EXCLUDED;
	return rc < 0 ? -1 : 0;
}

int dt_clean_take(struct dt_clean *c, const char *text, size_t n, enum dt_clean_reason *ret,
		  int64_t *ret_like, struct dt_err *err)
{
	enum dt_clean_reason why = DT_CLEAN_KEPT;
	uint32_t sig[HASHES];
	struct signing s = {c, sig};
	int64_t like = -1;
	int rc = filter(c, text, n, &why);

	if (rc == 0 && why == DT_CLEAN_KEPT && c->o.exact) {
		uint64_t h = hash_bytes(text, n, SEED);
		size_t at = SIZE_MAX;
		uint32_t of;

		if (hash_map_next(&c->exact, h, &at, &of)) {
			why = DT_CLEAN_EXACT;
			like = of;
		} else {
			rc = hash_map_add(&c->exact, h, (uint32_t)c->seen);
		}
	}
	if (rc == 0 && why == DT_CLEAN_KEPT && c->o.near > 0) {
		memset(sig, 0xff, sizeof(sig));
		each_run(text, n, SHINGLE, sign, &s);
		like = find_near(c, sig);
		why = like >= 0 ? DT_CLEAN_NEAR : DT_CLEAN_KEPT;
		if (why == DT_CLEAN_KEPT)
			rc = remember(c, sig);
	}
	if (rc < 0)
		return no_memory(err);
	c->seen++;
	c->counts.documents[why]++;
	c->counts.bytes[why] += (int64_t)n;
	*ret = why;
	*ret_like = like;
	return 0;
}

void dt_clean_counts(const struct dt_clean *c, struct dt_clean_counts *ret)
{
	*ret = c->counts;
}

size_t dt_clean_memory(const struct dt_clean *c)
{
	return (c->exact.slots + c->bands.slots + c->excluded.slots) * 12 +
	       c->room * (HASHES * sizeof(uint32_t) + sizeof(int64_t));
}
int64_t dt_clean_seen(const struct dt_clean *c)
{
	return c->seen;
}
/* SPDX-License-Identifier: Apache-2.0 */
