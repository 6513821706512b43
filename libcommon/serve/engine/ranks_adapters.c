#include "serve/engine/ranks_adapters.h"

#include "comm/comm.h"

#include <errno.h>
#include <stdlib.h>

#define TAG_ADAPTER 3
#define PART_MAX    ((int64_t)1 << 40)

int dt_serve_give(struct dt_comm *all, const struct dt_infer_adapter *a, struct dt_err *err)
{
	const void *part;
	size_t n;
	int rc = 0;

	for (int i = 1; i < dt_comm_size(all) && rc == 0; i++) {
		int64_t bytes;

		if (!dt_infer_adapter_part(a, i, &part, &n))
			return dt_err_set(err, -EPROTO, "the adapter was already sent");
		bytes = (int64_t)n;
		rc = dt_send(all, &bytes, 1, DT_I64, i, TAG_ADAPTER, "size of an adapter", err);
		if (rc == 0)
			rc = dt_send(all, part, n, DT_U8, i, TAG_ADAPTER, "an adapter", err);
	}
	if (rc == 0)
		dt_infer_adapter_sent(a);
	return rc;
}

static int grow(struct dt_serve_given *g, struct dt_err *err)
{
	const int room = 2 * g->room + 8;
	struct dt_serve_given_one *more = realloc(g->one, (size_t)room * sizeof(*more));

	if (!more)
		return dt_err_sys(err, -ENOMEM, "cannot receive an adapter");
	g->one = more;
	g->room = room;
	return 0;
}

int dt_serve_given_take(struct dt_serve_given *g, struct dt_comm *all, const struct dt_infer *m, int32_t id,
			struct dt_err *err)
{
	struct dt_infer_adapter *a;
	int64_t n = 0;
	void *part;
	int rc = dt_recv(all, &n, 1, DT_I64, 0, TAG_ADAPTER, "size of an adapter", err);

	if (rc < 0)
		return rc;
	if (n < 0 || n > PART_MAX)
		return dt_err_set(err, -EPROTO, "rank 0 sent an adapter of invalid size, %lld bytes",
				  (long long)n);
	part = malloc((size_t)n + 1);
	if (!part)
		return dt_err_sys(err, -ENOMEM, "cannot receive an adapter");
	rc = dt_recv(all, part, (size_t)n, DT_U8, 0, TAG_ADAPTER, "an adapter", err);
	if (rc < 0) {
		free(part);
		return rc;
	}
	rc = dt_infer_adapter_take(&a, m, part, (size_t)n, err);
	if (rc < 0)
		return rc;
	if (g->n == g->room && (rc = grow(g, err)) < 0) {
		dt_infer_adapter_close(a);
		return rc;
	}
	g->one[g->n++] = (struct dt_serve_given_one){id, a};
	return 0;
}

int dt_serve_given_drop(struct dt_serve_given *g, int32_t id, struct dt_err *err)
{
	for (int i = 0; i < g->n; i++)
		if (g->one[i].id == id) {
			dt_infer_adapter_close(g->one[i].a);
			g->one[i] = g->one[--g->n];
			return 0;
		}
	return dt_err_set(err, -EPROTO, "adapter %d was not received from rank 0", id);
}

const struct dt_infer_adapter *dt_serve_given_find(const struct dt_serve_given *g, int32_t id)
{
	for (int i = 0; i < g->n; i++)
		if (g->one[i].id == id)
			return g->one[i].a;
	return NULL;
}

void dt_serve_given_release(struct dt_serve_given *g)
{
	for (int i = 0; i < g->n; i++)
		dt_infer_adapter_close(g->one[i].a);
	free(g->one);
}
/* SPDX-License-Identifier: Apache-2.0 */
