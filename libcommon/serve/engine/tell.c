/*
 * Wakes the threads that wait for tokens. Each wake is a system call, and a woken thread may take the
 * engine's processor while another is idle. So a separate thread wakes the waiters of a whole step.
 */
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>

static void tell(struct dt_call *c)
{
	pthread_cond_broadcast(&c->cond);
	dt_call_drop(c);
}

static void *teller_main(void *arg)
{
	struct dt_teller *t = arg;

	pthread_mutex_lock(&t->mu);
	for (;;) {
		struct dt_call **call = t->given;
		int n = t->ngiven;

		if (n == 0 && t->stop)
			break;
		if (n == 0) {
			pthread_cond_wait(&t->cond, &t->mu);
			continue;
		}
		t->given = t->telling;
		t->ngiven = 0;
		t->telling = call;
		pthread_mutex_unlock(&t->mu);
		for (int i = 0; i < n; i++)
			tell(call[i]);
		pthread_mutex_lock(&t->mu);
	}
	pthread_mutex_unlock(&t->mu);
	return NULL;
}

int dt_teller_open(struct dt_teller *t, int cap)
{
	int rc;

	t->cap = cap;
	t->own = calloc((size_t)cap, sizeof(*t->own));
	t->given = calloc((size_t)cap, sizeof(*t->given));
	t->telling = calloc((size_t)cap, sizeof(*t->telling));
	pthread_mutex_init(&t->mu, NULL);
	pthread_cond_init(&t->cond, NULL);
	rc = t->own && t->given && t->telling ? -pthread_create(&t->thread, NULL, teller_main, t) : -ENOMEM;
	t->open = rc == 0;
	if (rc < 0)
		dt_teller_close(t);
	return rc;
}

void dt_teller_close(struct dt_teller *t)
{
	if (t->open) {
		pthread_mutex_lock(&t->mu);
		t->stop = true;
		pthread_cond_signal(&t->cond);
		pthread_mutex_unlock(&t->mu);
		pthread_join(t->thread, NULL);
	}
	if (t->cap > 0) {
		pthread_cond_destroy(&t->cond);
		pthread_mutex_destroy(&t->mu);
	}
	free(t->own);
	free(t->given);
	free(t->telling);
	*t = (struct dt_teller){0};
}

void dt_teller_add(struct dt_teller *t, struct dt_call *c)
{
	if (t->nown > 0 && t->own[t->nown - 1] == c)
		return;
	dt_call_ref(c);
	if (t->nown == t->cap)
		tell(c);
	else
		t->own[t->nown++] = c;
}

void dt_teller_go(struct dt_teller *t)
{
	int n = 0;

	if (t->nown > 1) { /* waking a single waiter costs no more than waking the thread */
		pthread_mutex_lock(&t->mu);
		while (n < t->nown && t->ngiven < t->cap)
			t->given[t->ngiven++] = t->own[n++];
		pthread_cond_signal(&t->cond);
		pthread_mutex_unlock(&t->mu);
	}
	for (; n < t->nown; n++)
		tell(t->own[n]);
	t->nown = 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
