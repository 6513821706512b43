#include "data/clean.h"

#include "base/rng.h"
#include "data/clean_rules.h"

#include <errno.h>
#include <string.h>

#define HASHES DT_CLEAN_HASHES
#define BANDS  21
#define ROWS   6
#define SLACK  0.07 /* two standard deviations of an estimate of 0.8 from 128 hashes */

struct dt_clean {
	struct clean_rules rules;
	struct dt_clean_counts counts;
	int64_t seen;
	struct hash_map exact, bands;
	uint32_t *signature; /* HASHES hashes of each kept document */
	int64_t *document;   /* [kept document] its number */
	size_t kept, room;
};

int dt_clean_open(const struct dt_clean_options *o, struct dt_clean **ret, struct dt_err *err)
{
	struct dt_rng r = dt_rng_make(CLEAN_SEED, DT_RNG_SAMPLE, 0);
	struct dt_clean *c;

	if (o->near < 0 || o->near > 1 || o->max_symbols < 0 || o->max_repeats < 0 ||
	    (o->max_chars && o->max_chars < o->min_chars))
		return dt_err_set(err, -EINVAL, "invalid limits: --min-chars %lld, --max-chars %lld",
				  (long long)o->min_chars, (long long)o->max_chars);
	c = calloc(1, sizeof(*c));
	if (!c)
		return dt_err_sys(err, -ENOMEM, "cannot look for duplicates");
	c->rules.o = *o;
	for (uint64_t i = 0; i < HASHES; i++) {
		c->rules.multiply[i] = dt_rng_u32(&r, 2 * i) | 1;
		c->rules.add[i] = dt_rng_u32(&r, 2 * i + 1);
	}
	if (o->script && dt_script_open(&c->rules.script, o->script, err) < 0) {
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
	hash_map_free(&c->rules.excluded);
	dt_script_close(c->rules.script);
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

	return hash_map_has(&c->rules.excluded, hash) ? 0 : hash_map_add(&c->rules.excluded, hash, 0);
}

int dt_clean_exclude(struct dt_clean *c, const char *text, size_t n, struct dt_err *err)
{
	return clean_each_run(text, n, CLEAN_EXCLUDED, add_excluded, c) < 0 ? no_memory(err) : 0;
}

static uint64_t band(const uint32_t *sig, int b)
{
	uint64_t h = clean_mix(CLEAN_SEED, (uint64_t)b + 1);

	for (int i = 0; i < ROWS; i++)
		h = clean_mix(h, sig[b * ROWS + i]);
	return h;
}

static bool similar(const struct dt_clean *c, const uint32_t *a, const uint32_t *b)
{
	int equal = 0;

	for (int i = 0; i < HASHES; i++)
		equal += a[i] == b[i];
	return equal >= (c->rules.o.near - SLACK) * HASHES;
}

/* The document of which sig is a near duplicate; -1: none. */
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

int dt_clean_look(const struct dt_clean *c, const char *text, size_t n, struct dt_clean_look *ret)
{
	return clean_look(&c->rules, text, n, ret);
}

int dt_clean_judge(struct dt_clean *c, const struct dt_clean_look *l, enum dt_clean_reason *ret,
		   int64_t *ret_like, struct dt_err *err)
{
	enum dt_clean_reason why = l->why;
	int64_t like = -1;
	size_t at = SIZE_MAX;
	uint32_t of;
	int rc = 0;

	if (why == DT_CLEAN_KEPT && c->rules.o.exact) {
		if (hash_map_next(&c->exact, l->hash, &at, &of)) {
			why = DT_CLEAN_EXACT;
			like = of;
		} else {
			rc = hash_map_add(&c->exact, l->hash, (uint32_t)c->seen);
		}
	}
	if (rc == 0 && why == DT_CLEAN_KEPT && c->rules.o.near > 0) {
		like = find_near(c, l->signature);
		why = like >= 0 ? DT_CLEAN_NEAR : DT_CLEAN_KEPT;
		if (why == DT_CLEAN_KEPT)
			rc = remember(c, l->signature);
	}
	if (rc < 0)
		return no_memory(err);
	c->seen++;
	c->counts.documents[why]++;
	c->counts.bytes[why] += (int64_t)l->bytes;
	*ret = why;
	*ret_like = like;
	return 0;
}

int dt_clean_take(struct dt_clean *c, const char *text, size_t n, enum dt_clean_reason *ret,
		  int64_t *ret_like, struct dt_err *err)
{
	struct dt_clean_look l;

	return dt_clean_look(c, text, n, &l) < 0 ? no_memory(err) : dt_clean_judge(c, &l, ret, ret_like, err);
}

void dt_clean_counts(const struct dt_clean *c, struct dt_clean_counts *ret)
{
	*ret = c->counts;
}

int64_t dt_clean_seen(const struct dt_clean *c)
{
	return c->seen;
}
/* SPDX-License-Identifier: Apache-2.0 */
