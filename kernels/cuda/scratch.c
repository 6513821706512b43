/* Resources of an open card: its state, scratch memory, and copies of host tables. */
#include "kernels/cuda/cuda.h"

#include <string.h>

struct dt_cuda *dt_cuda_enter_late(struct dt_dev *dev)
{
	struct dt_cuda *c = dev->impl;

	return dt_gpu_use(c->index) < 0 ? NULL : c;
}

struct dt_cuda *dt_cuda_enter(struct dt_dev *dev)
{
	struct dt_cuda *c = dt_cuda_enter_late(dev);

	return c && dt_cuda_settle(c) < 0 ? NULL : c;
}

static void *at_least(const struct dt_cuda *c, char **room, size_t *have, size_t n)
{
	if (n > *have && c->recording)
		return NULL;
	if (n > *have) {
		n = (n + 65535) / 65536 * 65536;
		dt_gpu_free(*room); /* waits for work that uses it */
		*have = dt_gpu_alloc((void **)room, n) < 0 ? 0 : n;
		if (!*have)
			*room = NULL;
	}
	return *room;
}

void *dt_cuda_scratch(struct dt_dev *dev, size_t n)
{
	struct dt_cuda *c = dev->impl;

	return at_least(c, &c->scratch, &c->scratch_n, n);
}

void *dt_cuda_padded(struct dt_dev *dev, size_t n)
{
	struct dt_cuda *c = dev->impl;

	return at_least(c, &c->padded, &c->padded_n, n);
}

/* Ensures memory for n bytes of tables, and waits until the host buffer may be overwritten. */
static int tables_room(struct dt_cuda *c, size_t n)
{
	int rc;

	if (c->tables_busy && (rc = dt_gpu_event_sync(c->tables_read)) < 0)
		return rc;
	c->tables_busy = false;
	if (n <= c->tables_n)
		return 0;
	n = (n + 4095) / 4096 * 4096;
	dt_gpu_free(c->tables);
	dt_gpu_host_free(c->tables_host);
	c->tables = c->tables_host = NULL;
	c->tables_n = 0;
	if ((rc = dt_gpu_alloc((void **)&c->tables, n)) < 0 ||
	    (rc = dt_gpu_host_alloc((void **)&c->tables_host, n)) < 0)
		return rc;
	c->tables_n = n;
	return 0;
}

/* The table's address on the card if dt_dev_tables mirrored it; NULL: not mirrored. */
static const void *given(const struct dt_cuda *c, const struct dt_table *t)
{
	const char *p = t->from;

	return c->given && p >= c->given && p + t->n <= c->given + c->given_n
		       ? c->given_there + (p - c->given)
		       : NULL;
}

int dt_cuda_tables(struct dt_dev *dev, struct dt_table *t, int count)
{
	struct dt_cuda *c = dev->impl;
	size_t at = 0;
	int rc;

	for (int i = 0; i < count; i++) {
		t[i].ret = given(c, &t[i]);
		at += t[i].ret ? 0 : (t[i].n + 15) / 16 * 16;
	}
	if (!at)
		return 0;
	rc = c->recording ? -EBUSY : tables_room(c, at);
	if (rc < 0)
		return rc;
	at = 0;
	for (int i = 0; i < count; i++) {
		if (t[i].ret)
			continue;
		if (t[i].n)
			memcpy(c->tables_host + at, t[i].from, t[i].n);
		t[i].ret = c->tables + at;
		at += (t[i].n + 15) / 16 * 16;
	}
	if ((rc = dt_gpu_copy(c->tables, c->tables_host, at, c->stream)) < 0)
		return rc;
	c->tables_busy = true;
	return dt_gpu_event_record(c->tables_read, c->stream);
}
/* SPDX-License-Identifier: Apache-2.0 */
