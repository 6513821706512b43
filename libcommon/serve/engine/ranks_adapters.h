/* Adapters over several ranks: the first gives each its part, before the first step that needs it. */
#ifndef DT_SERVE_RANKS_ADAPTERS_H
#define DT_SERVE_RANKS_ADAPTERS_H

#include "nn/infer_adapter.h"

struct dt_comm;

/* What a rank was given, by number. */
struct dt_serve_given {
	struct dt_serve_given_one {
		int32_t id;
		struct dt_infer_adapter *a;
	} * one;
	int n, room;
};

/* Rank 0, while every other one takes: their parts, which are theirs alone then. */
int dt_serve_give(struct dt_comm *all, const struct dt_infer_adapter *a, struct dt_err *err);
int dt_serve_given_take(struct dt_serve_given *g, struct dt_comm *all, const struct dt_infer *m, int32_t id,
			struct dt_err *err);
/* -EPROTO: there is none of that number. */
int dt_serve_given_drop(struct dt_serve_given *g, int32_t id, struct dt_err *err);
const struct dt_infer_adapter *dt_serve_given_find(const struct dt_serve_given *g, int32_t id); /* NULL */
void dt_serve_given_release(struct dt_serve_given *g);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
