/* The grammars used last. */
#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 64 };

struct dt_grammars {
	pthread_mutex_t mu;
	size_t limit; /* bytes */
	uint64_t clock;
	struct kept {
		char *key; /* NULL: free */
		struct dt_grammar *g;
		uint64_t used; /* clock at its last use */
	} at[KEPT];
};

struct dt_grammars *dt_grammars_new(size_t bytes)
{
	struct dt_grammars *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	pthread_mutex_init(&c->mu, NULL);
	c->limit = bytes;
	return c;
}

static void forget(struct kept *k)
{
	free(k->key);
	dt_grammar_drop(k->g);
	*k = (struct kept){0};
}

void dt_grammars_free(struct dt_grammars *c)
{
	if (!c)
		return;
	for (int i = 0; i < KEPT; i++)
		forget(&c->at[i]);
	pthread_mutex_destroy(&c->mu);
	free(c);
}

static struct kept *find(struct dt_grammars *c, const char *key)
{
	for (int i = 0; i < KEPT; i++)
		if (c->at[i].key && !strcmp(c->at[i].key, key))
			return &c->at[i];
	return NULL;
}

/* The one to forget first; NULL: there is none. */
static struct kept *oldest(struct dt_grammars *c)
{
	struct kept *old = NULL;

	for (int i = 0; i < KEPT; i++)
		if (c->at[i].key && (!old || c->at[i].used < old->used))
			old = &c->at[i];
	return old;
}

static struct kept *free_slot(struct dt_grammars *c)
{
	for (int i = 0; i < KEPT; i++)
		if (!c->at[i].key)
			return &c->at[i];
	return NULL;
}

static size_t bytes_of(struct dt_grammars *c)
{
	size_t sum = 0;

	for (int i = 0; i < KEPT; i++)
		if (c->at[i].key)
			sum += strlen(c->at[i].key) + dt_grammar_bytes(c->at[i].g);
	return sum;
}

struct dt_grammar *dt_grammars_find(struct dt_grammars *c, const char *key)
{
	struct dt_grammar *g = NULL;
	struct kept *k;

	if (!c)
		return NULL;
	pthread_mutex_lock(&c->mu);
	k = find(c, key);
	if (k) {
		k->used = ++c->clock;
		g = dt_grammar_ref(k->g);
	}
	pthread_mutex_unlock(&c->mu);
	return g;
}

void dt_grammars_add(struct dt_grammars *c, const char *key, struct dt_grammar *g)
{
	struct kept *k;
	char *own;

	if (!c)
		return;
	pthread_mutex_lock(&c->mu);
	while (!free_slot(c) || (oldest(c) && bytes_of(c) > c->limit))
		forget(oldest(c));
	k = find(c, key) ? NULL : free_slot(c); /* another thread may have been faster */
	own = k ? strdup(key) : NULL;
	if (own)
		*k = (struct kept){own, dt_grammar_ref(g), ++c->clock};
	pthread_mutex_unlock(&c->mu);
}
/* SPDX-License-Identifier: Apache-2.0 */
