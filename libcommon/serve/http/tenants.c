#include "serve/http/tenants.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (1 << 20) /* bytes */

struct reader {
	struct dt_tenants *t;
	const char *path;
	int line;
	struct dt_err *err;
};

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

/* The tenant of this name, a new one when there is none; -ENOMEM. */
static int tenant_of(struct reader *r, const char *name)
{
	struct dt_tenants *t = r->t;
	struct dt_tenant *p;

	for (int i = 0; i < t->ntenants; i++)
		if (!strcmp(t->tenant[i].name, name))
			return i;
	p = realloc(t->tenant, ((size_t)t->ntenants + 1) * sizeof(*p));
	if (!p)
		return dt_err_sys(r->err, -ENOMEM, "cannot read '%s'", r->path);
	t->tenant = p;
	p[t->ntenants] = (struct dt_tenant){.share = {.weight = 1}};
	snprintf(p[t->ntenants].name, sizeof(p->name), "%s", name);
	return t->ntenants++;
}

/* NAME=VALUE behind a key. */
static int option(struct reader *r, char *word, struct dt_tenant *to)
{
	char *value = strchr(word, '=');
	double v = 0;
	int rc;

	if (!value)
		return dt_err_set(r->err, -EINVAL, "'%s' line %d: '%.60s' is not NAME=VALUE", r->path,
				  r->line, word);
	value++;
	if (!strncmp(word, "tenant=", 7)) {
		if (!*value || strlen(value) >= sizeof(to->name))
			return dt_err_set(r->err, -EINVAL, "'%s' line %d: a tenant's name has 1 to %zu bytes",
					  r->path, r->line, sizeof(to->name) - 1);
		snprintf(to->name, sizeof(to->name), "%s", value);
		return 0;
	}
	if (!strncmp(word, "weight=", 7))
		return number(r, word, value, 1e-3, 1e6, &to->share.weight);
	if (!strncmp(word, "tokens-per-minute=", 18))
		return number(r, word, value, 1, 1e15, &to->quota);
	if (!strncmp(word, "priority=", 9)) {
		rc = number(r, word, value, -1000, 1000, &v);
		to->share.priority = (int)v;
		return rc;
	}
	return dt_err_set(r->err, -EINVAL,
			  "'%s' line %d: '%.60s' is not tenant, weight, priority or "
			  "tokens-per-minute",
			  r->path, r->line, word);
}

static int read_line(struct reader *r, char *line)
{
	struct dt_tenants *t = r->t;
	struct dt_tenant own = {.share = {.weight = 1}};
	struct dt_api_key *k;
	bool says = false;
	char *save = NULL, *word = strtok_r(line, " \t\r", &save);
	int at;

	if (!word || *word == '#')
		return 0;
	k = realloc(t->key, ((size_t)t->nkeys + 1) * sizeof(*k));
	if (!k)
		return dt_err_sys(r->err, -ENOMEM, "cannot read '%s'", r->path);
	t->key = k;
	k += t->nkeys;
	k->key = word;
	snprintf(own.name, sizeof(own.name), "key-%d", t->nkeys + 1);
	while ((word = strtok_r(NULL, " \t\r", &save))) {
		if (option(r, word, &own) < 0)
			return -EINVAL;
		says |= strncmp(word, "tenant=", 7) != 0;
	}
	at = tenant_of(r, own.name);
	if (at < 0)
		return at;
	if (says) /* of several lines of one tenant the last that says something counts */
		t->tenant[at] = own;
	k->tenant = at;
	t->nkeys++;
	return 0;
}

int dt_tenants_read(const char *path, struct dt_tenants *ret, struct dt_err *err)
{
	struct dt_tenants t = {0};
	struct reader r = {.t = &t, .path = path, .err = err};
	char *save = NULL, *line;
	size_t n;
	int rc = dt_read_file(path, MAX_FILE, &t.text, &n, err);

	for (line = rc < 0 ? NULL : t.text; line && rc == 0; line = save) {
		save = strchr(line, '\n');
		if (save)
			*save++ = '\0';
		r.line++;
		rc = read_line(&r, line);
	}
	if (rc == 0 && t.nkeys == 0)
		rc = dt_err_set(err, -EINVAL, "'%s' holds no key", path);
	if (rc < 0)
		dt_tenants_release(&t);
	else
		*ret = t;
	return rc;
}

int dt_tenants_add(struct dt_tenants *t, const char *key, struct dt_err *err)
{
	struct reader r = {.t = t, .path = "--api-key", .err = err};
	struct dt_api_key *k;
	char name[32];
	int at;

	if (!*key || key[strcspn(key, " \t\r\n")])
		return dt_err_set(err, -EINVAL, "a key has no white space and at least one character");
	k = realloc(t->key, ((size_t)t->nkeys + 1) * sizeof(*k));
	if (!k)
		return dt_err_sys(err, -ENOMEM, "cannot take a key");
	t->key = k;
	snprintf(name, sizeof(name), "key-%d", t->nkeys + 1);
	at = tenant_of(&r, name);
	if (at < 0)
		return at;
	t->key[t->nkeys++] = (struct dt_api_key){.key = key, .tenant = at};
	return 0;
}

void dt_tenants_release(struct dt_tenants *t)
{
	free(t->key);
	free(t->tenant);
	free(t->text);
	*t = (struct dt_tenants){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
