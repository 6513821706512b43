/*
 * Low-rank adapters of a served model (ckpt/adapter.h), laid out for kernels/lora.h. They have their own
 * memory and do not change the base weights; likewise modules that an adapter replaces as a whole (PEFT's
 * modules_to_save). Each sequence of a batch has one adapter or none.
 */
#ifndef DT_NN_INFER_ADAPTER_H
#define DT_NN_INFER_ADAPTER_H

#include "nn/infer.h"

struct dt_infer_adapter;

/*
 * Reads an adapter for m, which was opened for adapters. base: the fingerprint of m's weights, which must be
 * those that the adapter was trained on; NULL: not checked. Any thread may call it, also while m computes.
 * -EINVAL and -ENOTSUP with a message: the errors of dt_adapter_open; a rank above what m was opened for; a
 * tensor that is no linear of a layer.
 */
int dt_infer_adapter_open(struct dt_infer_adapter **ret, const struct dt_infer *m, const char *path,
			  const char *base, struct dt_err *err);
void dt_infer_adapter_close(struct dt_infer_adapter *a);
uint64_t dt_infer_adapter_bytes(const struct dt_infer_adapter *a);
/*
 * With several ranks the first one reads an adapter, and each rank computes with a part of it. id: the
 * adapter's number on the other ranks, above 0. part: the bytes to send to `rank`; false: all ranks have
 * their parts. sent: marks all parts as sent. take: on another rank, makes an adapter of malloc'd bytes, of
 * which it takes ownership also on failure; closed like any other. gone: the id of an adapter that the first
 * rank has closed and the others still have; 0: none.
 */
int32_t dt_infer_adapter_id(const struct dt_infer_adapter *a);
bool dt_infer_adapter_part(const struct dt_infer_adapter *a, int rank, const void **ret, size_t *ret_n);
void dt_infer_adapter_sent(const struct dt_infer_adapter *a);
int dt_infer_adapter_take(struct dt_infer_adapter **ret, const struct dt_infer *m, void *part, size_t n,
			  struct dt_err *err);
int32_t dt_infer_adapter_gone(const struct dt_infer *m);
/*
 * DoRA: measures the norms of the rows with magnitudes once all ranks have their parts, in portions of some
 * milliseconds. measure: collective over all ranks, called by the computing thread before the first pass with
 * a; ranks that share a row all-reduce its squares. On the rank that reads the adapter, portion: the next
 * portion and, in *ret_parts, the portions per lane; -1: all are measured. measured: marks a portion as done.
 */
int dt_infer_adapter_measure(const struct dt_infer_adapter *a, struct dt_infer *m, int portion, int parts,
			     struct dt_err *err);
int dt_infer_adapter_portion(const struct dt_infer_adapter *a, int *ret_parts);
void dt_infer_adapter_measured(const struct dt_infer_adapter *a);
/* Whether it replaces whole tensors; its rows are then computed apart from others. NULL does not. */
bool dt_infer_adapter_has_whole(const struct dt_infer_adapter *a);
/* A checksum of all that it changes, below 2^63, not 0; the same in every process. */
uint64_t dt_infer_adapter_sum(const struct dt_infer_adapter *a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
