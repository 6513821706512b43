/* Answers that follow a grammar: from their first token, or from a trigger on. */
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LEAD 4 /* max white-space tokens between a trigger and the constrained text */

static const char *token_bytes(const void *tok, int32_t id, size_t *ret_n)
{
	return dt_tokenizer_piece(tok, id, false, ret_n);
}

static bool is_space(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!memchr(" \t\r\n", s[i], 4))
			return false;
	return true;
}

void dt_engine_mask_release(struct dt_engine_mask *k)
{
	free(k->allow);
	free(k->space);
	dt_vocab_order_release(&k->order);
	*k = (struct dt_engine_mask){0};
}

/* Prepares for the first request with a grammar. -ENOMEM. */
static int masks_open(struct dt_engine_mask *k, const struct dt_engine_params *p)
{
	const size_t words = ((size_t)p->model.vocab + 31) / 32;
	int rc = dt_vocab_order_init(&k->order, p->model.vocab, token_bytes, p->tok);

	if (rc < 0)
		return rc;
	k->allow = malloc(words * sizeof(*k->allow));
	k->space = calloc(words, sizeof(*k->space));
	if (!k->allow || !k->space) {
		dt_engine_mask_release(k);
		return -ENOMEM;
	}
	for (int i = 0; i < k->order.n; i++) {
		const struct dt_vocab_token *t = &k->order.token[i];

		if (is_space(t->s, (size_t)t->len))
			k->space[t->id / 32] |= 1u << t->id % 32;
	}
	return 0;
}

const uint32_t *dt_constrain_mask(struct dt_engine *e, const struct dt_serve_req *r)
{
	const size_t words = ((size_t)e->p.model.vocab + 31) / 32;

	for (size_t i = 0; i < words; i++)
		e->mask.allow[i] = r->allow[i] | (r->lead > 0 ? e->mask.space[i] : 0);
	for (int i = 0; i < r->ask->nstop_ids && dt_matcher_complete(r->matcher); i++)
		e->mask.allow[r->ask->stop_ids[i] / 32] |= 1u << r->ask->stop_ids[i] % 32;
	return e->mask.allow;
}

/* Prepares e->mask, once. A thread of constrain_jobs.c calls it. -ENOMEM. */
static int masks_need(struct dt_engine *e)
{
	int rc = 0;

	pthread_mutex_lock(&e->jobs.order_mu);
	if (!atomic_load(&e->mask.open)) {
		rc = masks_open(&e->mask, &e->p);
		if (rc == 0)
			atomic_store(&e->mask.open, true);
	}
	pthread_mutex_unlock(&e->jobs.order_mu);
	return rc;
}

/* Sets r->allow. now: -EAGAIN where that takes work. */
static int set_mask(struct dt_engine *e, struct dt_serve_req *r, bool now)
{
	const size_t words = ((size_t)e->p.model.vocab + 31) / 32;
	int rc = 0;

	if (!atomic_load(&e->mask.open))
		rc = now ? -EAGAIN : masks_need(e);
	if (rc == 0 && !r->allow && !(r->allow = malloc(words * sizeof(*r->allow))))
		rc = -ENOMEM;
	if (rc < 0)
		return rc;
	if (now)
		return dt_matcher_copy_mask_now(r->matcher, &e->mask.order, r->allow);
	return dt_matcher_copy_mask(r->matcher, &e->mask.order, r->allow) ? 0 : -ENOMEM;
}

/* Reads r->unread; the next stage depends on where that leads. -EAGAIN as above. */
static int read_bytes(struct dt_serve_req *r, bool now)
{
	const bool again = r->ask->trigger && *r->ask->trigger[0] && !r->ask->once;
	const int rc = now ? dt_matcher_push_now(r->matcher, r->unread_id, r->unread, r->nunread)
			   : dt_matcher_push_token(r->matcher, r->unread_id, r->unread, r->nunread);

	if (rc < 0)
		return rc;
	r->dormant = r->waking && !rc;
	r->stage = r->dormant ? DT_CONSTRAIN_READY : DT_CONSTRAIN_MASK;
	if (!r->waking && again && dt_matcher_complete(r->matcher)) {
		r->stage = DT_CONSTRAIN_RESTART; /* free text until the next trigger */
	} else if (!r->waking && dt_matcher_done(r->matcher)) {
		r->over = true;
		r->stage = DT_CONSTRAIN_READY;
	}
	return 0;
}

static int begin_again(struct dt_serve_req *r, bool now)
{
	const int rc = now ? dt_matcher_restart_now(r->matcher) : 0;

	if (rc < 0)
		return rc;
	if (!now)
		dt_matcher_restart(r->matcher);
	r->dormant = true;
	r->woken = r->looked = r->detok.n;
	r->stage = DT_CONSTRAIN_READY;
	return 0;
}

/* Does what is to be done before r's next token. now: -EAGAIN when it meets what takes work. */
static int go_on(struct dt_engine *e, struct dt_serve_req *r, bool now)
{
	int rc = 0;

	if (r->stage == DT_CONSTRAIN_READ)
		rc = read_bytes(r, now);
	if (r->stage == DT_CONSTRAIN_RESTART && rc == 0)
		rc = begin_again(r, now);
	if (r->stage == DT_CONSTRAIN_MASK && rc == 0)
		rc = set_mask(e, r, now);
	if (rc != -EAGAIN) {
		r->stage = DT_CONSTRAIN_READY;
		r->unmasked = rc;
	}
	return rc;
}

void dt_constrain_work(struct dt_engine *e, struct dt_serve_req *r)
{
	go_on(e, r, false);
}

static void start(struct dt_engine *e, struct dt_serve_req *r)
{
	if (go_on(e, r, true) == -EAGAIN)
		dt_constrain_give(e, r);
}

void dt_constrain_begin(struct dt_engine *e, struct dt_serve_req *r)
{
	if (!r->matcher || r->dormant)
		return;
	r->stage = DT_CONSTRAIN_MASK;
	start(e, r);
}

/* Number of bytes after the next `trigger`, which is not empty; -1: it has not occurred. */
static ssize_t behind(const struct dt_serve_req *r, const char *trigger)
{
	size_t n = strlen(trigger), from = r->looked > n ? r->looked - n + 1 : 0;
	const char *at;

	from = from < r->woken ? r->woken : from;
	at = from < r->detok.n ? memmem(r->detok.text + from, r->detok.n - from, trigger, n) : NULL;
	return at ? (ssize_t)(r->detok.n - (size_t)(at - r->detok.text) - n) : -1;
}

/* The same of all triggers. */
static ssize_t behind_any(struct dt_serve_req *r)
{
	const char *first = r->ask->first;
	const size_t n = first ? strlen(first) : 0;
	ssize_t ret = -1;

	for (const char *const *t = r->ask->trigger; *t && ret < 0; t++)
		ret = behind(r, *t);
	if (ret < 0 && r->looked < n && r->detok.n >= n && !memcmp(r->detok.text, first, n))
		ret = (ssize_t)(r->detok.n - n);
	r->looked = r->detok.n;
	return ret;
}

/* Number of bytes after the next trigger; -1: there is no trigger yet. */
static ssize_t behind_trigger(struct dt_serve_req *r)
{
	if (*r->ask->trigger[0])
		return behind_any(r);
	while (r->looked < r->detok.n && is_space(r->detok.text + r->looked, 1))
		r->looked++;
	if (r->looked == r->detok.n)
		return -1;
	if (r->detok.text[r->looked] == '{')
		return (ssize_t)(r->detok.n - r->looked);
	dt_matcher_free(r->matcher); /* the answer is not of that form */
	r->matcher = NULL;
	return -1;
}

/* Searches for the trigger; from there on the grammar applies. */
static void wake_matcher(struct dt_engine *e, struct dt_serve_req *r)
{
	ssize_t n = behind_trigger(r);
	const char *s = dt_detok_from(&r->detok, r->detok.n - (n > 0 ? (size_t)n : 0));

	if (n < 0)
		return;
	while (n > 0 && is_space(s, 1))
		s++, n--;
	r->lead = n == 0 ? MAX_LEAD : 0;
	r->unread = s;
	r->nunread = (size_t)n;
	r->unread_id = -1;
	r->waking = true;
	r->stage = DT_CONSTRAIN_READ;
	start(e, r);
}

bool dt_constrain_tell(struct dt_engine *e, struct dt_serve_req *r, int32_t id)
{
	size_t n = 0;
	const char *s = dt_tokenizer_piece(e->p.tok, id, false, &n);

	if (!r->matcher)
		return false;
	if (r->dormant) {
		wake_matcher(e, r);
		return false;
	}
	if (r->lead > 0 && is_space(s ? s : "", s ? n : 0)) {
		r->lead--;
		return false;
	}
	r->lead = 0;
	r->unread = s ? s : "";
	r->nunread = s ? n : 0;
	r->unread_id = id;
	r->waking = false;
	r->stage = DT_CONSTRAIN_READ;
	start(e, r);
	return !r->waiting && r->over;
}
/* SPDX-License-Identifier: Apache-2.0 */
