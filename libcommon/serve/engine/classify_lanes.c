/*
 * Distribution of images over ranks, one lane for each. A message to a rank is the number of images and then
 * their pixels; it answers with logits. Number 0 is a heartbeat, -1 the end.
 */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/engine/classify_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_HEAD = 1, TAG_PIXELS, TAG_LOGITS };
enum { BEAT = 0, END = -1 };

#define POLL_US 100 /* between polls of running passes */

/* ---- call with the lock held ---- */

static void record(struct dt_classify *c, double seconds)
{
	const double at = seconds > 1e-5 ? log(seconds / 1e-5) / log(1.02) : 0;

	c->bucket[at < DT_CLASSIFY_BUCKETS - 1 ? (int)at : DT_CLASSIFY_BUCKETS - 1]++;
}

/* Answers an image. After the last image of a job the job may be freed. */
static void answer(struct dt_classify *c, struct dt_classify_image *i, int rc)
{
	struct dt_classify_job *j = i->job;

	c->waiting--;
	if (rc < 0)
		j->status = rc;
	else
		c->images++;
	if (--j->left > 0)
		return;
	if (j->status == 0) {
		c->requests++;
		record(c, dt_now() - j->since);
	}
	if (j->done)
		j->done(j->arg);
	pthread_cond_broadcast(&c->done);
}

static void answer_all(struct dt_classify *c, struct dt_classify_images *list, int rc)
{
	struct dt_classify_image *i;

	while ((i = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, i, in_list);
		answer(c, i, rc);
	}
}

/* Marks the classifier as failed: nothing more is computed, and all waiting requests fail. */
static void fail(struct dt_classify *c, int rc, const struct dt_err *why)
{
	if (!c->failed)
		c->why = *why;
	c->failed = true;
	for (int r = 0; r < c->ranks; r++)
		answer_all(c, &c->lane[r].list, rc);
	answer_all(c, &c->central, rc);
	pthread_cond_broadcast(&c->work);
}

static void give(struct dt_classify_lane *l, struct dt_classify_image *i)
{
	TAILQ_INSERT_TAIL(&l->list, i, in_list);
	l->load++;
}

/* Assigns whole requests to the rank with the least load, the lowest rank of equal ones. */
static void deal_requests(struct dt_classify *c)
{
	struct dt_classify_image *i;

	while ((i = TAILQ_FIRST(&c->central))) {
		const struct dt_classify_job *j = i->job;
		struct dt_classify_lane *least = &c->lane[0];

		for (int r = 1; r < c->ranks; r++)
			if (c->lane[r].load < least->load)
				least = &c->lane[r];
		for (; i && i->job == j; i = TAILQ_FIRST(&c->central)) {
			TAILQ_REMOVE(&c->central, i, in_list);
			give(least, i);
		}
	}
}

/* Splits a batch of waiting images evenly over all ranks, when all of them are idle. */
static void deal_data(struct dt_classify *c)
{
	struct dt_classify_image *i;
	int64_t n = 0, each;

	for (int r = 0; r < c->ranks; r++)
		if (c->lane[r].load)
			return;
	TAILQ_FOREACH (i, &c->central, in_list)
		if (++n == c->p.batch)
			break;
	each = (n + c->ranks - 1) / c->ranks;
	for (int64_t k = 0; k < n; k++) {
		i = TAILQ_FIRST(&c->central);
		TAILQ_REMOVE(&c->central, i, in_list);
		give(&c->lane[k / each], i);
	}
}

void dt_classify_deal(struct dt_classify *c)
{
	if (c->p.split == DT_SPLIT_DATA)
		deal_data(c);
	else
		deal_requests(c);
	pthread_cond_broadcast(&c->work);
}

/* Takes the images of the lane's next pass. */
static void take(struct dt_classify *c, struct dt_classify_lane *l)
{
	struct dt_classify_image *i;

	for (l->n = 0; l->n < c->p.batch && (i = TAILQ_FIRST(&l->list)); l->n++) {
		TAILQ_REMOVE(&l->list, i, in_list);
		l->under[l->n] = i;
	}
}

/* Ends a pass. */
static void put(struct dt_classify *c, struct dt_classify_lane *l, int rc)
{
	for (int k = 0; k < l->n; k++)
		answer(c, l->under[k], rc);
	l->load -= l->n;
	l->images += rc < 0 ? 0 : l->n;
	l->passes += rc == 0;
	l->n = 0;
	if (!c->failed)
		dt_classify_deal(c);
}

static bool empty(const struct dt_classify *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->lane[r].load)
			return false;
	return TAILQ_EMPTY(&c->central);
}

/* ---- call without the lock ---- */

/* Copies the pixels of the pass's images into one buffer. */
static void gather(struct dt_classify *c, struct dt_classify_lane *l)
{
	const size_t row = c->info.row;

	for (int k = 0; k < l->n; k++) {
		const struct dt_classify_image *i = l->under[k];

		memcpy(l->pixels + (size_t)k * row, i->job->pixels + (size_t)(i - i->job->image) * row,
		       row * sizeof(float));
	}
}

static void spread(struct dt_classify *c, struct dt_classify_lane *l)
{
	const size_t classes = (size_t)c->info.classes;

	for (int k = 0; k < l->n; k++) {
		const struct dt_classify_image *i = l->under[k];

		memcpy(i->job->logits + (size_t)(i - i->job->image) * classes,
		       l->logits + (size_t)k * classes, classes * sizeof(float));
	}
}

static void *computer_main(void *arg)
{
	struct dt_classify *c = arg;
	struct dt_classify_lane *l = &c->lane[0];

	pthread_mutex_lock(&c->mu);
	while (!c->failed) {
		struct dt_err err = {0};
		int rc;

		take(c, l);
		if (l->n == 0) {
			if (c->stop && empty(c))
				break;
			pthread_cond_wait(&c->work, &c->mu);
			continue;
		}
		pthread_mutex_unlock(&c->mu);
		gather(c, l);
		rc = dt_classifier_run(c->net, l->pixels, l->n, l->logits, &err);
		if (rc == 0)
			spread(c, l);
		pthread_mutex_lock(&c->mu);
		if (rc < 0)
			fail(c, rc, &err);
		put(c, l, rc);
	}
	pthread_mutex_unlock(&c->mu);
	return NULL;
}

static int begin(struct dt_classify *c, int r, struct dt_err *err)
{
	struct dt_classify_lane *l = &c->lane[r];
	const size_t n = (size_t)l->n;
	int rc;

	gather(c, l);
	l->head = l->n;
	l->since = l->spoke = dt_now();
	rc = dt_isend(c->all, &l->head, 1, DT_I64, r, TAG_HEAD, "images", &l->req[0], err);
	if (rc == 0)
		rc = dt_isend(c->all, l->pixels, n * c->info.row, DT_F32, r, TAG_PIXELS, "pixels", &l->req[1],
			      err);
	if (rc == 0)
		rc = dt_irecv(c->all, l->logits, n * (size_t)c->info.classes, DT_F32, r, TAG_LOGITS, "logits",
			      &l->req[2], err);
	return rc;
}

/* Polls the pass of rank r. 1: done; 0: still running; negative errno: it failed. */
static int look(struct dt_classify *c, int r, struct dt_err *err)
{
	struct dt_classify_lane *l = &c->lane[r];
	int rc = 0;

	if (!dt_comm_done(l->req[2]) && !dt_world_broken(c->p.world) && dt_now() - l->since < c->p.patience_s)
		return 0;
	for (int i = 0; i < 3; i++) {
		const int one = dt_wait(&l->req[i], NULL, rc < 0 ? NULL : err);

		rc = rc < 0 ? rc : one;
	}
	l->spoke = dt_now();
	return rc < 0 ? rc : 1;
}

static int say(struct dt_classify *c, int r, int64_t head, struct dt_err *err)
{
	c->lane[r].spoke = dt_now();
	return dt_send(c->all, &head, 1, DT_I64, r, TAG_HEAD, head == END ? "end" : "beat", err);
}

static bool under_way(const struct dt_classify *c)
{
	for (int r = 1; r < c->ranks; r++)
		if (c->lane[r].n)
			return true;
	return false;
}

/*
 * Ends finished passes, starts new ones, sends heartbeats to idle ranks. 1: something was done. Called with
 * the lock held; releases it in between.
 */
static int turn(struct dt_classify *c, struct dt_err *err)
{
	int moved = 0, rc;

	for (int r = 1; r < c->ranks; r++) {
		struct dt_classify_lane *l = &c->lane[r];
		const bool runs = l->n > 0;

		if (!runs)
			take(c, l);
		pthread_mutex_unlock(&c->mu);
		rc = runs				 ? look(c, r, err)
		     : l->n				 ? begin(c, r, err)
		     : dt_now() - l->spoke > c->p.beat_s ? say(c, r, BEAT, err)
							 : 0;
		if (rc > 0)
			spread(c, l);
		pthread_mutex_lock(&c->mu);
		if (rc < 0)
			return rc;
		if (rc > 0)
			put(c, l, 0);
		moved |= rc > 0 || (!runs && l->n);
	}
	return moved;
}

static void *speaker_main(void *arg)
{
	struct dt_classify *c = arg;
	struct dt_err err = {0};
	int rc = 0;

	pthread_mutex_lock(&c->mu);
	while (!c->failed && !(c->stop && empty(c))) {
		rc = turn(c, &err);
		if (rc < 0)
			break;
		if (rc > 0)
			continue;
		if (under_way(c)) {
			pthread_mutex_unlock(&c->mu);
			usleep(POLL_US);
			dt_comm_poll(c->p.world, NULL);
			pthread_mutex_lock(&c->mu);
		} else {
			dt_cond_wait_s(&c->work, &c->mu, c->p.beat_s / 2);
		}
	}
	if (rc < 0)
		fail(c, rc, &err);
	for (int r = 1; r < c->ranks && c->failed; r++) /* running passes get no answer */
		put(c, &c->lane[r], rc < 0 ? rc : -EIO);
	pthread_mutex_unlock(&c->mu);
	for (int r = 1; r < c->ranks && rc >= 0 && !c->failed && !dt_world_broken(c->p.world); r++)
		rc = say(c, r, END, NULL);
	return NULL;
}

int dt_classify_start(struct dt_classify *c, struct dt_err *err)
{
	int rc = -pthread_create(&c->computer, NULL, computer_main, c);

	c->computes = rc == 0;
	if (rc == 0 && c->all)
		rc = -pthread_create(&c->speaker, NULL, speaker_main, c);
	c->speaks = rc == 0 && c->all;
	return rc < 0 ? dt_err_sys(err, rc, "cannot start to classify") : 0;
}

void dt_classify_stop(struct dt_classify *c)
{
	pthread_mutex_lock(&c->mu);
	c->stop = true;
	pthread_cond_broadcast(&c->work);
	pthread_mutex_unlock(&c->mu);
	if (c->computes)
		pthread_join(c->computer, NULL);
	if (c->speaks)
		pthread_join(c->speaker, NULL);
	c->computes = c->speaks = false;
}

int dt_classify_follow(struct dt_classify *c, struct dt_err *err)
{
	struct dt_classify_lane *l = &c->lane[0];

	for (;;) {
		int64_t n = 0;
		int rc = dt_recv(c->all, &n, 1, DT_I64, 0, TAG_HEAD, "images", err);

		if (rc < 0 || n == END)
			return rc;
		if (n == BEAT)
			continue;
		if (n < 0 || n > c->p.batch)
			return dt_err_set(err, -EPROTO, "rank 0 sent an invalid number of images, %lld",
					  (long long)n);
		rc = dt_recv(c->all, l->pixels, (size_t)n * c->info.row, DT_F32, 0, TAG_PIXELS, "pixels",
			     err);
		if (rc == 0)
			rc = dt_classifier_run(c->net, l->pixels, (int)n, l->logits, err);
		if (rc == 0)
			rc = dt_send(c->all, l->logits, (size_t)(n * c->info.classes), DT_F32, 0, TAG_LOGITS,
				     "logits", err);
		if (rc < 0)
			return rc;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
