#include "base/keyfile.h"

#include "base/json.h"
#include "base/room.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_FILE (64 << 20) /* bytes */
#define WORDS	 16	    /* of a line */
#define TENANT	 "tenant="

struct reader {
	struct dt_keyfile *f;
	const char *path;
	int line;
	struct dt_err *err;
};

/* ---- tables ---- */

/* Seeded at random, so that clients cannot construct colliding keys. */
static uint64_t hash(const char *s, size_t n)
{
	static uint64_t seed;
	uint64_t h;

	while (seed == 0)
		if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
			seed = (uintptr_t)&seed | 1;
	h = seed;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ (unsigned char)s[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return h;
}

static bool equal(const char *a, const char *b, size_t n)
{
	unsigned diff = 0;

	for (size_t i = 0; i < n; i++)
		diff |= (unsigned char)(a[i] ^ b[i]);
	return diff == 0;
}

static const char *name_at(const struct dt_keyfile *f, bool keys, uint32_t i)
{
	return keys ? f->key[i].key : f->tenant[i].name;
}

static int find(const struct dt_keyfile *f, bool keys, const char *s, size_t n)
{
	const uint32_t *table = keys ? f->by_key : f->by_name;
	size_t cap = keys ? f->cap_by_key : f->cap_by_name;

	for (size_t i = hash(s, n); cap > 0; i++) {
		uint32_t at = table[i % cap];
		const char *have;

		if (at == 0)
			break;
		have = name_at(f, keys, at - 1);
		if (strlen(have) == n && equal(have, s, n))
			return (int)at - 1;
	}
	return -1;
}

static void enter(uint32_t *table, size_t cap, const char *s, uint32_t at)
{
	size_t i = hash(s, strlen(s)) % cap;

	while (table[i])
		i = (i + 1) % cap;
	table[i] = at + 1;
}

/* Inserts the last entry, index n - 1, into a hash table, which is kept at most half full. -ENOMEM. */
static int index_last(struct dt_keyfile *f, bool keys, int n)
{
	uint32_t **table = keys ? &f->by_key : &f->by_name;
	size_t *cap = keys ? &f->cap_by_key : &f->cap_by_name;

	if ((size_t)n * 2 > *cap) {
		size_t larger = *cap ? *cap * 2 : 64;
		uint32_t *p = calloc(larger, sizeof(*p));

		if (!p)
			return -ENOMEM;
		for (uint32_t i = 0; i + 1 < (uint32_t)n; i++)
			enter(p, larger, name_at(f, keys, i), i);
		free(*table);
		*table = p;
		*cap = larger;
	}
	enter(*table, *cap, name_at(f, keys, (uint32_t)n - 1), (uint32_t)n - 1);
	return 0;
}

/* Index of the tenant of this name, which is created if needed; -ENOMEM. */
static int tenant_of(struct dt_keyfile *f, const char *name)
{
	int at = find(f, false, name, strlen(name));
	struct dt_key_tenant *p;

	if (at >= 0)
		return at;
	if (!DT_ROOM(f->tenant, f->ntenants, f->cap_tenants, 16))
		return -ENOMEM;
	p = &f->tenant[f->ntenants++];
	*p = (struct dt_key_tenant){.weight = 1};
	snprintf(p->name, sizeof(p->name), "%s", name);
	return index_last(f, false, f->ntenants) < 0 ? -ENOMEM : f->ntenants - 1;
}

static int add_key(struct dt_keyfile *f, const char *key, int tenant, bool admin)
{
	if (!DT_ROOM(f->key, f->nkeys, f->cap_keys, 16))
		return -ENOMEM;
	f->key[f->nkeys++] = (struct dt_key){.key = key, .tenant = tenant, .admin = admin};
	return index_last(f, true, f->nkeys);
}

/* ---- lines ---- */

static int number(struct reader *r, const char *word, const char *value, double min, double max, double *ret)
{
	char *end;
	double v = strtod(value, &end);

	if (!*value || *end || !isfinite(v) || v < min || v > max)
		return dt_err_set(r->err, -EINVAL, "'%s' line %d: '%.60s' is not within %g and %g", r->path,
				  r->line, word, min, max);
	*ret = v;
	return 0;
}

/* Parses NAME=VALUE after a key. */
static int option(struct reader *r, char *word, struct dt_key_tenant *to, bool *admin)
{
	char *value = strchr(word, '=');
	double v = 0;
	int rc;

	if (!value)
		return dt_err_set(r->err, -EINVAL, "'%s' line %d: '%.60s' is not NAME=VALUE", r->path,
				  r->line, word);
	value++;
	if (!strncmp(word, TENANT, strlen(TENANT))) {
		if (!*value || strlen(value) >= sizeof(to->name))
			return dt_err_set(r->err, -EINVAL, "'%s' line %d: a tenant's name has 1 to %zu bytes",
					  r->path, r->line, sizeof(to->name) - 1);
		return 0; /* read_line has read it */
	}
	if (!strcmp(word, "admin=yes")) {
		*admin = true;
		return 0;
	}
	if (!strncmp(word, "weight=", 7))
		return number(r, word, value, 1e-3, 1e6, &to->weight);
	if (!strncmp(word, "tokens-per-minute=", 18))
		return number(r, word, value, 1, 1e15, &to->tokens);
	if (!strncmp(word, "requests-per-minute=", 20))
		return number(r, word, value, 1, 1e15, &to->requests);
	if (!strncmp(word, "priority=", 9)) {
		rc = number(r, word, value, -1000, 1000, &v);
		to->priority = (int)v;
		return rc;
	}
	return dt_err_set(r->err, -EINVAL,
			  "'%s' line %d: '%.60s' is not tenant, weight, priority, tokens-per-minute, "
			  "requests-per-minute or admin=yes",
			  r->path, r->line, word);
}

/* Name of the tenant that a key is if it names none: no other key's. */
static void name_own(const struct dt_keyfile *f, char *name, size_t size)
{
	int n = f->nkeys;

	do
		snprintf(name, size, "key-%d", ++n);
	while (find(f, false, name, strlen(name)) >= 0);
}

/* Index of the tenant that the words after a key name, or of a new one; -ENOMEM. */
static int tenant_in(struct dt_keyfile *f, char *const *word, int n)
{
	char name[sizeof(f->tenant->name)];

	name_own(f, name, sizeof(name));
	for (int i = 0; i < n; i++)
		if (!strncmp(word[i], TENANT, strlen(TENANT)))
			snprintf(name, sizeof(name), "%s", word[i] + strlen(TENANT));
	return tenant_of(f, name);
}

/* Lines of the same tenant add up: what a line does not say stays as it was. */
static int read_line(struct reader *r, char *line)
{
	struct dt_keyfile *f = r->f;
	char *save = NULL, *word[WORDS], *key = strtok_r(line, " \t\r", &save);
	bool admin = false;
	int n = 0, at;

	if (!key || *key == '#')
		return 0;
	if (find(f, true, key, strlen(key)) >= 0) /* do not print the key itself */
		return dt_err_set(r->err, -EINVAL, "'%s' line %d: this key is repeated", r->path, r->line);
	while (n < WORDS && (word[n] = strtok_r(NULL, " \t\r", &save)))
		n++;
	if (n == WORDS)
		return dt_err_set(r->err, -EINVAL, "'%s' line %d: more than %d words follow the key", r->path,
				  r->line, WORDS - 1);
	at = tenant_in(f, word, n);
	if (at < 0 || add_key(f, key, at, false) < 0)
		return dt_err_sys(r->err, -ENOMEM, "cannot read '%s'", r->path);
	for (int i = 0; i < n; i++)
		if (option(r, word[i], &f->tenant[at], &admin) < 0)
			return -EINVAL;
	f->key[f->nkeys - 1].admin = admin;
	return 0;
}

int dt_keyfile_read(const char *path, struct dt_keyfile *ret, struct dt_err *err)
{
	struct dt_keyfile f = {0};
	struct reader r = {.f = &f, .path = path, .err = err};
	char *save = NULL, *line;
	size_t n;
	int rc = dt_read_file(path, MAX_FILE, &f.text, &n, err);

	for (line = rc < 0 ? NULL : f.text; line && rc == 0; line = save) {
		save = strchr(line, '\n');
		if (save)
			*save++ = '\0';
		r.line++;
		rc = read_line(&r, line);
	}
	if (rc == 0 && f.nkeys == 0)
		rc = dt_err_set(err, -EINVAL, "'%s' holds no key", path);
	if (rc < 0)
		dt_keyfile_release(&f);
	else
		*ret = f;
	return rc;
}

int dt_keyfile_add(struct dt_keyfile *f, const char *key, struct dt_err *err)
{
	char name[32];
	int at;

	if (!*key || key[strcspn(key, " \t\r\n")])
		return dt_err_set(err, -EINVAL, "a key has no white space and at least one character");
	name_own(f, name, sizeof(name));
	at = tenant_of(f, name);
	if (at < 0 || add_key(f, key, at, false) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot take a key");
	return 0;
}

int dt_keyfile_find(const struct dt_keyfile *f, const char *key, size_t n)
{
	return find(f, true, key, n);
}

void dt_keyfile_release(struct dt_keyfile *f)
{
	free(f->key);
	free(f->tenant);
	free(f->text);
	free(f->by_key);
	free(f->by_name);
	*f = (struct dt_keyfile){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
