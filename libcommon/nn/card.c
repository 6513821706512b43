/* The functions of a CUDA device that comm/ needs, implemented with kernels/device.h. */
#include "nn/card.h"

static int use(void *dev)
{
	return dt_dev_use(dev);
}

static int take(void *dev, void **ret, size_t n)
{
	return dt_dev_alloc(dev, ret, n);
}

static void give(void *dev, void *p)
{
	dt_dev_free(dev, p);
}

static int queue_open(void *dev, void **ret)
{
	return dt_queue_open(dev, ret);
}

static void queue_close(void *dev, void *queue)
{
	dt_queue_close(dev, queue);
}

static int queue_copy(void *dev, void *queue, void *to, const void *from, size_t n)
{
	return dt_queue_copy(dev, queue, to, from, n);
}

static int event_open(void *dev, void **ret)
{
	struct dt_event *e;
	int rc = dt_event_open(&e, dev);

	if (rc == 0)
		*ret = e;
	return rc;
}

static void event_close(void *dev, void *event)
{
	dt_event_close(event);
}

static int event_record(void *dev, void *event, void *queue)
{
	return dt_event_record_on(event, dev, queue);
}

static int event_wait(void *dev, void *event, void *queue)
{
	return dt_event_wait_on(event, dev, queue);
}

static int event_done(void *dev, void *event)
{
	return dt_event_done(event);
}

static int copy(void *dev, void *to, const void *from, size_t n)
{
	return dt_dev_copy(dev, to, from, n);
}

static int sync(void *dev)
{
	return dt_dev_sync(dev);
}

struct dt_comm_device dt_card_device(struct dt_dev *dev, struct dt_comm_card *card, const void *base,
				     size_t bytes)
{
	*card = (struct dt_comm_card){.use = use,
				      .alloc = take,
				      .free = give,
				      .queue_open = queue_open,
				      .queue_close = queue_close,
				      .copy = queue_copy,
				      .event_open = event_open,
				      .event_close = event_close,
				      .event_record = event_record,
				      .event_wait = event_wait,
				      .event_done = event_done};
	return (struct dt_comm_device){base, bytes, dev,
				       copy, sync,  dt_dev_card(dev, card->id) < 0 ? NULL : card};
}
/* SPDX-License-Identifier: Apache-2.0 */
