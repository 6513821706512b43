/*
 * What an asynchronous checkpoint still needs of memory that training is about to change. Parameters and
 * optimizer states stay as they are until the next update, so the writer takes them from where they lie; only
 * what it has not written by then is copied, just before the update. Source: Maurya et al., DataStates-LLM:
 * Lazy Asynchronous Checkpointing for Large Language Models, HPDC 2024.
 *
 * One thread writes, one trains.
 */
#ifndef DT_TRAIN_SNAPSHOT_H
#define DT_TRAIN_SNAPSHOT_H

#include "ckpt/ckpt.h"

struct snapshot;

size_t piece_bytes(const struct dt_piece *p);

/* p: n pieces that do not overlap in memory; room: `bytes` for copies of all of them, else -ENOSPC. Both are
 * borrowed. */
int snapshot_new(const struct dt_piece *p, int n, char *room, size_t bytes, struct snapshot **ret,
		 struct dt_err *err);
void snapshot_free(struct snapshot *s);

/* Copies piece i at once: it changes before the next update. Before the writer starts. */
void snapshot_now(struct snapshot *s, int i);

/* The writer's: a dt_ckpt_fill, and what it calls when it has ended. */
int snapshot_fill(void *s, const struct dt_piece *p, const void **ret_data, struct dt_err *err);
void snapshot_end(struct snapshot *s);

/* The trainer's, before it changes what the pieces are: copies what is not written. Returns the bytes. */
size_t snapshot_take(struct snapshot *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
