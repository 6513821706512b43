/*
 * Adapters over several ranks: rank 0 sends each rank its part before the first step that uses the adapter.
 */
#ifndef DT_SERVE_RANKS_ADAPTERS_H
#define DT_SERVE_RANKS_ADAPTERS_H

#include "nn/infer_adapter.h"

struct dt_comm;

/* Adapters that a rank has received, by number. */
struct dt_serve_given {
	struct dt_serve_given_one {
		int32_t id;
		struct dt_infer_adapter *a;
	} * one;
	int n, room;
};

/*
 * dt_serve_give sends an adapter's parts from rank 0 to all other ranks, which call dt_serve_given_take at
 * the same time. The receiving ranks own their parts.
 */
int dt_serve_give(struct dt_comm *all, const struct dt_infer_adapter *a, struct dt_err *err);
int dt_serve_given_take(struct dt_serve_given *g, struct dt_comm *all, const struct dt_infer *m, int32_t id,
			struct dt_err *err);
/* Frees an adapter. -EPROTO: there is none of this number. */
int dt_serve_given_drop(struct dt_serve_given *g, int32_t id, struct dt_err *err);
const struct dt_infer_adapter *dt_serve_given_find(const struct dt_serve_given *g,
						   int32_t id); /* NULL: there is none */
void dt_serve_given_release(struct dt_serve_given *g);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
