#include "train/pace.h"

#include "train/trainer.h"

#include <unistd.h>

#define LOOK_US 50 /* microseconds between two polls of the queue */

static int of_queue(int rc, struct dt_err *err)
{
	return rc < 0 ? dt_err_sys(err, rc, "cannot follow the GPU's queue") : 0;
}

int pace_open(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	if (dt_dev_is_host(t->dev) || (!t->backup.a && !t->servers.mail))
		return 0;
	for (int i = 0; i < 2 && rc == 0; i++)
		rc = dt_event_open(&t->pace.unit[i], t->dev);
	return of_queue(rc, err);
}

void pace_release(struct trainer *t)
{
	for (int i = 0; i < 2; i++)
		dt_event_close(t->pace.unit[i]);
}

void pace_begin(struct trainer *t)
{
	t->pace.units = 0;
}

/* Waits until the device has reached this event, or the rank is dropped. */
static int follow(struct trainer *t, struct dt_event *e, struct dt_err *err)
{
	int rc;

	while ((rc = dt_event_done(e)) == 0 && backup_look(t) == 0) {
		dt_comm_poll(t->world, NULL);
		usleep(LOOK_US);
	}
	return of_queue(rc, err);
}

int pace_unit(struct trainer *t, struct dt_err *err)
{
	struct pace *p = &t->pace;
	int rc = 0;

	if (p->unit[0]) {
		rc = of_queue(dt_event_record(p->unit[p->units % 2], t->dev), err);
		if (rc == 0 && p->units++)
			rc = follow(t, p->unit[p->units % 2], err);
	}
	return rc < 0 ? rc : backup_look(t);
}

int pace_end(struct trainer *t, struct dt_err *err)
{
	struct pace *p = &t->pace;
	int rc = p->unit[0] && p->units ? follow(t, p->unit[(p->units - 1) % 2], err) : 0;

	return rc < 0 || !p->unit[0] ? rc : of_queue(dt_dev_sync(t->dev), err);
}
/* SPDX-License-Identifier: Apache-2.0 */
