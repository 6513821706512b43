/* Last steps of dt_served_open, on rank 0. */
#ifndef DT_SERVE_API_SERVED_ENGINE_H
#define DT_SERVE_API_SERVED_ENGINE_H

#include "serve/api/served.h"

/*
 * Number of steps in flight: one for each pipeline stage, but at most p->seqs; 1 with speculation or a trace.
 */
int served_steps_under_way(const struct dt_served *s, const struct dt_served_params *p);
/*
 * served_cache.c. Sets s->seqs; returns the number of KV-cache blocks for sequences of up to len tokens, by
 * cache_mem or the default share of memory, but no more than all sequences at full length need, or -ENOSPC.
 * module: that of --mtp, which has a cache of the same blocks; NULL: none.
 */
int64_t served_cache_blocks(struct dt_served *s, const struct dt_served_params *p, int64_t len,
			    const struct dt_config *module, struct dt_err *err);
int served_open_adapters(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err);
/*
 * Opens the engine with disk cache, peers and trace; len: max tokens of a sequence; blocks: of the KV cache.
 */
int served_open_engine(struct dt_served *s, const struct dt_served_params *p, const struct dt_config *c,
		       int64_t len, int64_t blocks, struct dt_err *err);
/*
 * served_draft.c. check_module: -ENOTSUP where the module of --mtp cannot read the model's hidden states, or
 * blocks come without its rows. open_drafter: the module, or if it is NULL the draft model, with a cache of
 * the blocks of `like`. add_module: adds the module and the hidden states that it reads to s->memory.
 * hidden_bytes: of a row of these.
 */
int served_check_module(const struct dt_served *s, const struct dt_served_params *p, struct dt_err *err);
int served_open_drafter(struct dt_served *s, const struct dt_served_params *p, struct dt_source *module,
			const struct dt_infer_params *like, struct dt_err *err);
void served_add_module(struct dt_served *s, const struct dt_served_params *p);
size_t served_hidden_bytes(const struct dt_served *s, const struct dt_served_params *p);
/*
 * served_tower.c, of models that read images. check: -ENOTSUP with what images cannot be combined with.
 * open: sets s->tower and s->vision, if the model has a tower and images may be sent. use: what the engine
 * is told. add: adds its memory to s->memory; scratch: raises that of the device to what it takes.
 */
int served_check_tower(const struct dt_served_params *p, const struct dt_config *c, struct dt_err *err);
int served_open_tower(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err);
void served_use_tower(struct dt_served *s, const struct dt_served_params *p, const struct dt_config *c,
		      struct dt_engine_params *ep);
void served_add_tower(struct dt_served *s);
void served_tower_scratch(const struct dt_served *s, struct dt_scratch *scratch);
void served_close_tower(struct dt_served *s);
/* Sets the memory of /metrics. */
void served_tell_memory(const struct dt_served *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
