/*
 * A model served by several ranks: rank 0 runs the engine, the others follow. For each forward pass, block
 * copy (within the cache, out of it, into it), heartbeat and the end, rank 0 sends a step message to all
 * ranks. All ranks then do the same on their parts (nn/infer.h), in the order of messages.
 *
 * Pipeline parallelism (pp): several steps, of different sequences, can be in flight. Rank 0 begins a step
 * when it has computed its stage of the one before, and takes the results of the oldest step when the limit
 * of steps in flight is reached. A stage waits for the next one only to send its activations.
 *
 * Data parallelism (dp): each replica has the whole model on its own ranks, with its own KV cache. A replica
 * computes its sequences of a step, and its rank that has the logits sends them to rank 0. Blocks are not
 * moved between replicas. Expert parallelism (ep): replicas share experts; each holds some and computes them
 * for the others too. Context parallelism (cp): each rank has the whole model and cache, and computes some
 * rows of a step.
 *
 * Rank 0 calls all functions, including dt_serve_ranks_end, from one thread at a time.
 */
#ifndef DT_SERVE_RANKS_H
#define DT_SERVE_RANKS_H

#include "nn/infer.h"

struct dt_mesh;
struct dt_serve_ranks;

#define DT_ON_STAGE (DT_ON_DATA | DT_ON_TP) /* ranks that hold the same layers */

/*
 * mesh: must have a communicator of all ranks and, with pipeline stages, one of each stage (DT_ON_STAGE). p:
 * the parameters with which the model was opened; max_len is not 0; limits of rows and sequences of a step
 * are per replica. depth: steps in flight, each of which has at most 1/depth of the sequences, rounded up; 1
 * without stages. m and mesh outlive it.
 */
int dt_serve_ranks_open(struct dt_serve_ranks **ret, struct dt_infer *m, const struct dt_mesh *mesh,
			int depth, const struct dt_infer_params *p, struct dt_err *err);
void dt_serve_ranks_close(struct dt_serve_ranks *r);

/* Rank 0: the members of struct dt_engine_model; `ranks` is a struct dt_serve_ranks. */
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
/*
 * Bytes of a block in the layout of one process (serve/engine/kvparts.h), and the dt_infer_cache_name of all
 * ranks combined (if p.name is set).
 */
size_t dt_serve_ranks_block_bytes(const struct dt_serve_ranks *r);
uint64_t dt_serve_ranks_cache_name(const struct dt_serve_ranks *r);
/* Rank 0: ends dt_serve_ranks_follow on the other ranks. */
int dt_serve_ranks_end(struct dt_serve_ranks *r, struct dt_err *err);

/* Other ranks: does what rank 0 says until it ends. */
int dt_serve_ranks_follow(struct dt_serve_ranks *r, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
