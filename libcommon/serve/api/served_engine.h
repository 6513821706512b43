/* The last steps of dt_served_open, on rank 0. */
#ifndef DT_SERVE_API_SERVED_ENGINE_H
#define DT_SERVE_API_SERVED_ENGINE_H

#include "serve/api/served.h"

/*
 * How many steps go through the stages at once: one in each, where they are of different sequences and tokens
 * do not come in guesses; a trace has one after the other.
 */
int served_steps_under_way(const struct dt_served *s, const struct dt_served_params *p);
int served_open_adapters(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err);
/*
 * With the blocks on disk, the peers and the trace that it is given; len and blocks: of a sequence and the
 * cache.
 */
int served_open_engine(struct dt_served *s, const struct dt_served_params *p, const struct dt_config *c,
		       int64_t len, int64_t blocks, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
