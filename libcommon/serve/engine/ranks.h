/*
 * A model served by several ranks: rank 0 has the engine, the others follow. Each forward pass, copy of a
 * block (in the cache, out of it, into it), sign of life and the end is a step message that rank 0
 * broadcasts; then all ranks do the same on their parts (nn/infer.h).
 *
 * Replicas (dp) each have the whole model over their own ranks and a cache of their own: a replica computes
 * the sequences of a step that are its, and its first rank sends logits to rank 0. Blocks do not leave them.
 * Over ep replicas share experts: each has some of them, and computes with them for the others too.
 *
 * The calls of rank 0 come from one thread at a time, those with dt_serve_ranks_end included.
 */
#ifndef DT_SERVE_RANKS_H
#define DT_SERVE_RANKS_H

#include "nn/infer.h"

struct dt_comm;
struct dt_serve_ranks;

/* all: every rank, 0 the first. p: with what the model was opened, max_len not 0; a step has so many rows and
 * sequences for each replica. Both outlive it. */
int dt_serve_ranks_open(struct dt_serve_ranks **ret, struct dt_infer *m, struct dt_comm *all,
			const struct dt_infer_params *p, struct dt_err *err);
void dt_serve_ranks_close(struct dt_serve_ranks *r);

/* Rank 0: struct dt_engine_model's forward, copies of blocks and beat, with a struct dt_serve_ranks. */
int dt_serve_ranks_forward(void *ranks, const struct dt_infer_batch *b, float *logits, struct dt_err *err);
int dt_serve_ranks_copy_block(void *ranks, int replica, int32_t from, int32_t to);
int dt_serve_ranks_read_block(void *ranks, int32_t block, void *to);
int dt_serve_ranks_write_block(void *ranks, int32_t block, const void *from);
int dt_serve_ranks_beat(void *ranks, struct dt_err *err);
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
