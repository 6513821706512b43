/*
 * Copy-on-update for asynchronous checkpoints. Parameters and optimizer states do not change until the next
 * update, so the writer reads them in place; only what it has not written by then is copied, just before the
 * update. Source: Maurya et al., DataStates-LLM:
 * Lazy Asynchronous Checkpointing for Large Language Models, HPDC 2024.
 *
 * One thread writes, one trains.
 */
#ifndef DT_TRAIN_SNAPSHOT_H
#define DT_TRAIN_SNAPSHOT_H

#include "ckpt/ckpt.h"

struct snapshot;

size_t piece_bytes(const struct dt_piece *p);

/*
 * p: n pieces that do not overlap in memory. room: `bytes` bytes, enough for copies of all of them, else
 * -ENOSPC. Both are borrowed.
 */
int snapshot_new(const struct dt_piece *p, int n, char *room, size_t bytes, struct snapshot **ret,
		 struct dt_err *err);
void snapshot_free(struct snapshot *s);

/* Copies piece i now, because it changes before the next update. To be called before the writer starts. */
void snapshot_now(struct snapshot *s, int i);

/* Called by the writer: a dt_ckpt_fill; snapshot_end when it has ended. */
int snapshot_fill(void *s, const struct dt_piece *p, const void **ret_data, struct dt_err *err);
void snapshot_end(struct snapshot *s);

/* Called by the trainer before it changes the memory: copies pieces not written yet. Returns bytes copied. */
size_t snapshot_take(struct snapshot *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
