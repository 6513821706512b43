/*
 * A model served by several ranks: rank 0 has the engine, the others follow. Each forward pass, copy of a
 * block (in the cache, out of it, into it), sign of life and the end is a step message that rank 0
 * sends to all; then all ranks do the same on their parts (nn/infer.h), in the order of messages.
 *
 * Over stages (pp) several steps, of different sequences, can be under way: rank 0 begins one when it has
 * computed its stage of the one before, and takes the results of the oldest when as many as there may be are
 * under way. A stage never waits for one behind but to hand rows on.
 *
 * Replicas (dp) each have the whole model over their own ranks and a cache of their own: a replica computes
 * the sequences of a step that are its, and the rank that has the logits sends them to rank 0. Blocks do not
 * leave them. Over ep replicas share experts: each has some of them, and computes with them for the others
 * too. Over cp each rank has the whole model and cache, and some rows of a step.
 *
 * The calls of rank 0 come from one thread at a time, those with dt_serve_ranks_end included.
 */
#ifndef DT_SERVE_RANKS_H
#define DT_SERVE_RANKS_H

#include "nn/infer.h"

struct dt_mesh;
struct dt_serve_ranks;

#define DT_ON_STAGE (DT_ON_DATA | DT_ON_TP) /* ranks with the same layers */

/*
 * mesh: every rank, and over stages those of each (DT_ON_STAGE). p: with what the model was opened, max_len
 * not 0; a step has so many rows and sequences for each replica. depth: of steps under way, of which each
 * then has the depth-th part of the sequences, rounded up; 1 without stages. m, mesh outlive it.
 */
int dt_serve_ranks_open(struct dt_serve_ranks **ret, struct dt_infer *m, const struct dt_mesh *mesh,
			int depth, const struct dt_infer_params *p, struct dt_err *err);
void dt_serve_ranks_close(struct dt_serve_ranks *r);

/* Rank 0: struct dt_engine_model's forward, copies, ready and beat, with a struct dt_serve_ranks. */
int dt_serve_ranks_forward(void *ranks, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
int dt_serve_ranks_begin(void *ranks, const struct dt_infer_batch *b, struct dt_err *err);
int dt_serve_ranks_take(void *ranks, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
int dt_serve_ranks_copy_block(void *ranks, int replica, int32_t from, int32_t to);
int dt_serve_ranks_read_block(void *ranks, int32_t block, void *to);
int dt_serve_ranks_write_block(void *ranks, int32_t block, const void *from);
int dt_serve_ranks_beat(void *ranks, struct dt_err *err);
int dt_serve_ranks_ready(void *ranks, const struct dt_infer_adapter *a, struct dt_err *err);
/* This rank's part of the model. */
struct dt_infer *dt_serve_ranks_part(const struct dt_serve_ranks *r);
/* Bytes of a block, which is that of one process (serve/engine/kvparts.h), and dt_infer_cache_name of all
 * ranks (with p.name). */
size_t dt_serve_ranks_block_bytes(const struct dt_serve_ranks *r);
uint64_t dt_serve_ranks_cache_name(const struct dt_serve_ranks *r);
/* Rank 0: the others return from dt_serve_ranks_follow. */
int dt_serve_ranks_end(struct dt_serve_ranks *r, struct dt_err *err);

/* The others: does what rank 0 says until its end. */
int dt_serve_ranks_follow(struct dt_serve_ranks *r, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
