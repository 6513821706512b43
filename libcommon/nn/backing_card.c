#include "nn/backing_card.h"

#include "base/progress.h"
#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PART ((uint64_t)1 << 30) /* bytes of pinned memory per allocation: larger ones are refused first */

/* Allocates pinned memory for the whole file, zeroed. */
static int pin_all(struct dt_backing *b, uint64_t bytes)
{
	int rc = 0;

	b->host = calloc((size_t)(bytes / PART) + 1, sizeof(*b->host));
	if (!b->host)
		return -ENOMEM;
	for (uint64_t at = 0; at < bytes && rc == 0; at += PART) {
		size_t n = (size_t)(bytes - at < PART ? bytes - at : PART);
		void *p;

		rc = dt_dev_host_alloc(b->dev, &p, n);
		if (rc == 0) {
			memset(p, 0, n);
			b->host[b->nhost++] = p;
		}
	}
	return rc;
}

int dt_backing_card_open(struct dt_backing *b, uint64_t bytes, struct dt_err *err)
{
	char size[32];
	int rc = dt_queue_open(b->dev, &b->in);

	if (rc == 0)
		rc = dt_queue_open(b->dev, &b->out);
	if (rc == 0)
		rc = dt_event_open(&b->here, b->dev);
	for (int k = 0; k < DT_SCRATCH_SLOTS && rc == 0; k++)
		rc = dt_event_open(&b->slot[k].moved, b->dev);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot set up transfers beside the GPU");
	rc = b->file ? 0 : pin_all(b, bytes);
	return rc < 0 ? dt_err_sys(err, rc, "cannot pin %s of the host's memory for %s",
				   dt_format_size(bytes, size, sizeof(size)), b->what)
		      : 0;
}

void dt_backing_card_drain(struct dt_backing *b)
{
	void *const queue[] = {b->in, b->out};

	for (int i = 0; i < 2 && b->here; i++)
		if (queue[i] && dt_event_record_on(b->here, b->dev, queue[i]) == 0)
			dt_event_sync(b->here);
	if (b->here && dt_event_record(b->here, b->dev) == 0) /* copies on the queue of ops */
		dt_event_sync(b->here);
}

void dt_backing_card_close(struct dt_backing *b)
{
	for (int k = 0; k < DT_SCRATCH_SLOTS; k++) {
		if (b->slot[k].moved)
			dt_event_close(b->slot[k].moved);
		dt_dev_host_free(b->dev, b->slot[k].all);
	}
	for (int i = 0; i < b->nhost; i++)
		dt_dev_host_free(b->dev, b->host[i]);
	free(b->host);
	if (b->here)
		dt_event_close(b->here);
	dt_queue_close(b->dev, b->in);
	dt_queue_close(b->dev, b->out);
}

static int queue(struct dt_backing *b, char *pinned, char *card, size_t n, bool out)
{
	void *q = out ? b->out : b->in;

	return dt_queue_copy(b->dev, q, out ? pinned : card, out ? card : pinned, n);
}

/*
 * Queues copies of a slot's bytes between the device and the host's memory, or the slot's own pinned memory,
 * after everything queued on the device before.
 */
static int move(struct dt_backing *b, struct backing_slot *s, bool out)
{
	void *q = out ? b->out : b->in;
	int rc = dt_event_record(b->here, b->dev);

	if (rc == 0)
		rc = dt_event_wait_on(b->here, b->dev, q);
	if (b->file && rc == 0)
		rc = queue(b, s->pinned, s->memory, s->n, out);
	for (size_t done = 0, n; !b->file && done < s->n && rc == 0; done += n) {
		const uint64_t at = s->at + done, left = PART - at % PART;

		n = s->n - done < left ? s->n - done : (size_t)left;
		rc = queue(b, b->host[at / PART] + at % PART, s->memory + done, n, out);
	}
	return rc < 0 ? rc : dt_event_record_on(s->moved, b->dev, q);
}

/* Makes a slot's own pinned memory large enough; first waits for transfers that use it. */
static int need_room(struct dt_backing *b, struct backing_slot *s)
{
	int rc;

	if (s->room >= s->n)
		return s->pinned ? dt_event_sync(s->moved) : 0; /* the device has the previous data */
	if (s->pinned)
		dt_event_sync(s->moved);
	dt_dev_host_free(b->dev, s->all);
	s->all = s->pinned = NULL;
	s->room = 0;
	rc = dt_dev_host_alloc(b->dev, &s->all, s->n + DT_SCRATCH_ALIGN);
	if (rc < 0)
		return rc;
	s->pinned =
		(char *)(((uintptr_t)s->all + DT_SCRATCH_ALIGN - 1) / DT_SCRATCH_ALIGN * DT_SCRATCH_ALIGN);
	s->room = s->n;
	return 0;
}

/* Writes data that has arrived from the device to the file. */
static void go_on(struct dt_backing *b, int k)
{
	struct backing_slot *s = &b->slot[k];

	s->leaving = false;
	dt_backing_file_write(b, k, s->pinned, s->n, s->at, (struct backing_beside){0});
}

static void look_around(struct dt_backing *b)
{
	for (int k = 0; k < DT_SCRATCH_SLOTS; k++)
		if (b->slot[k].leaving && dt_event_done(b->slot[k].moved))
			go_on(b, k);
}

void dt_backing_card_read(struct dt_backing *b, int k)
{
	struct backing_slot *s = &b->slot[k];

	if (!b->file) {
		b->use->read_bytes += s->n;
		s->rc = move(b, s, false);
		return;
	}
	look_around(b);
	if (!dt_backing_any_written(b, s->n, s->at)) {
		s->rc = dt_dev_clear(b->dev, s->memory, s->n);
		s->n = 0;
		return;
	}
	b->use->read_bytes += s->n;
	s->rc = need_room(b, s);
	if (s->rc == 0)
		dt_scratch_read(b->file, k, s->pinned, s->n, s->at);
}

void dt_backing_card_write(struct dt_backing *b, int k)
{
	struct backing_slot *s = &b->slot[k];

	if (b->file) {
		look_around(b);
		s->rc = need_room(b, s);
	}
	if (s->rc == 0)
		s->rc = move(b, s, true);
	s->leaving = b->file && s->rc == 0;
}

/* Makes ops wait for the transfer. If they would have to, the host waits first, and measures it. */
static int order(struct dt_backing *b, struct backing_slot *s, bool write)
{
	double t0;
	int rc = 0;

	if (!dt_event_done(s->moved)) {
		rc = dt_event_record(b->here, b->dev);
		rc = rc < 0 ? rc : dt_event_sync(b->here);
		t0 = dt_now();
		rc = rc < 0 ? rc : dt_event_sync(s->moved);
		dt_backing_waited(b, t0, write);
	}
	return rc < 0 ? rc : dt_event_wait(s->moved, b->dev);
}

/* Waits for the file, or queues the copy from pinned memory to the device before its ops. */
static int wait_file(struct dt_backing *b, int k, enum backing_does does, struct dt_err *err)
{
	struct backing_slot *s = &b->slot[k];
	double t0 = dt_now();
	int rc = 0;

	look_around(b);
	if (s->leaving) {
		s->rc = dt_event_sync(s->moved);
		if (s->rc < 0)
			return 0; /* the caller reports it */
		go_on(b, k);
	}
	if (s->n)
		rc = dt_scratch_wait(b->file, k, err);
	dt_backing_waited(b, t0, does == WRITES);
	if (rc < 0 || does == WRITES || !s->n)
		return rc;
	rc = dt_backing_look(b, s->pinned, s->n, s->at, (struct backing_beside){0}, err);
	if (rc < 0)
		return rc;
	s->rc = dt_dev_copy(b->dev, s->memory, s->pinned, s->n);
	if (s->rc == 0)
		s->rc = dt_event_record(s->moved, b->dev);
	return 0;
}

int dt_backing_card_wait(struct dt_backing *b, int k, enum backing_does does, struct dt_err *err)
{
	struct backing_slot *s = &b->slot[k];
	int rc = 0;

	if (s->rc == 0 && b->file)
		rc = wait_file(b, k, does, err);
	else if (s->rc == 0)
		s->rc = order(b, s, does == WRITES);
	return s->rc < 0 ? dt_err_sys(err, s->rc, "cannot move %s between the GPU and its host", b->what)
			 : rc;
}

bool dt_backing_card_done(struct dt_backing *b, int k)
{
	struct backing_slot *s = &b->slot[k];

	if (!b->file)
		return s->rc < 0 || dt_event_done(s->moved);
	look_around(b);
	return s->rc < 0 || !s->n || (!s->leaving && dt_scratch_done(b->file, k));
}
/* SPDX-License-Identifier: Apache-2.0 */
