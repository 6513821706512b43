/*
 * Addresses of shards, gradients and weights for servers. If ranks compute on CUDA devices, all of these are
 * in host memory, and the CPU computes the updates (train/servers.h).
 */
#include "base/progress.h"
#include "nn/device.h"
#include "train/servers_give.h"
#include "train/trainer.h"

#include <errno.h>

/* The buffers that other ranks map, and those that are private to this rank. */
static const enum dt_buf_id mapped[] = {DT_B_CLOCKS, DT_B_MASTER, DT_B_OPTIM1, DT_B_OPTIM2, DT_B_SUMS},
			    own[] = {DT_B_GIVEN, DT_B_ASKED, DT_B_ON_HOST, DT_B_TO_CARD};

/* Allocates a buffer that other ranks on the node can map; servers_open reports it if they cannot. */
static int bind_mapped(struct trainer *t, enum dt_buf_id id, struct dt_err *err)
{
	const struct dt_buf *b = dt_memory_find(&t->plan, id, -1);
	void *at;
	int rc = host_buffer(t, id, &at, err);

	if (rc < 0 || !at || dt_run_served_by_messages(&t->run))
		return rc;
	rc = dt_buffer_share(t->world, at, b->bytes, err);
	return rc == -ENOSPC ? 0 : rc;
}

int servers_bind(struct trainer *t, struct dt_err *err)
{
	struct servers *s = &t->servers;
	int rc = 0;

	if (!dt_run_served(&t->run) || dt_dev_is_host(t->dev))
		return 0;
	for (size_t i = 0; i < sizeof(mapped) / sizeof(mapped[0]) && rc == 0; i++)
		rc = bind_mapped(t, mapped[i], err);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]) && rc == 0; i++) {
		void *at;

		rc = host_buffer(t, own[i], &at, err);
	}
	if (rc < 0)
		return rc;
	s->grads = buffer_at(t, DT_B_ON_HOST);
	s->weights = flat_bind(t, DT_B_TO_CARD, t->run.compute, 3);
	return dt_nn_device_open(&s->dev, "cpu", 0, t->dev->nthreads, err);
}

int64_t servers_share(const struct trainer *t, int k, int u, int64_t *ret_first, int64_t *ret_at)
{
	const struct dt_local_unit *of = &t->local.unit[u];
	const int64_t first = k * of->share, left = of->numel - first;

	*ret_first = first;
	*ret_at = of->share_trained;
	return of->frozen || left <= 0 ? 0 : left < of->share ? left : of->share;
}

struct dt_dev *servers_dev(const struct trainer *t)
{
	return t->servers.dev ? t->servers.dev : t->dev;
}

float *servers_grads_at(const struct trainer *t, int u, int64_t first)
{
	return t->servers.dev ? t->servers.grads + t->local.unit[u].trained + first
			      : t->grads.unit_g[u] + first;
}

void *servers_weights_at(const struct trainer *t, int u, int64_t first)
{
	return flat_at(t, t->servers.dev ? &t->servers.weights : &t->store.weights, u, first);
}

int servers_bring(struct trainer *t, struct dt_err *err)
{
	return t->servers.dev ? device_get(t, t->servers.grads, t->grads.flat.p,
					   (size_t)t->local.trained * sizeof(float), err)
			      : 0;
}

static size_t bytes(const struct trainer *t, int64_t n)
{
	return (size_t)(n * dt_dtype_size(t->run.compute));
}

int servers_remember(struct trainer *t, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && t->servers.dev && t->run.sync.compensation > 0; u++)
		if (!t->local.unit[u].frozen)
			rc = device_get(t, servers_weights_at(t, u, 0), flat_at(t, &t->store.weights, u, 0),
					bytes(t, t->local.unit[u].numel), err);
	return rc;
}

static int to_card(struct trainer *t, int u, int64_t first, int64_t n, struct dt_err *err)
{
	return device_put(t, flat_at(t, &t->store.weights, u, first), servers_weights_at(t, u, first),
			  bytes(t, n), err);
}

int servers_show(struct trainer *t, int k, struct dt_err *err)
{
	int rc = 0;

	for (int u = 0; u < t->local.nunit && rc == 0 && t->servers.dev; u++) {
		int64_t first, at, n = servers_share(t, k, u, &first, &at);

		rc = n ? to_card(t, u, first, n, err) : 0;
	}
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
