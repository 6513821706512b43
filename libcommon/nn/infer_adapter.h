/*
 * Low-rank adapters of a served model (ckpt/adapter.h): laid out for kernels/lora.h, in memory of their own
 * beside the base, which they leave as it is; so are modules that they have whole. A sequence of a batch has
 * one of them or none.
 */
#ifndef DT_NN_INFER_ADAPTER_H
#define DT_NN_INFER_ADAPTER_H

#include "nn/infer.h"

struct dt_infer_adapter;

/*
 * Reads an adapter for m, which was opened for adapters. base: the fingerprint of m's weights, which are to
 * be those it was trained on; NULL: that is not asked. Any thread may, also while m computes. -EINVAL and
 * -ENOTSUP, naming what is wrong: dt_adapter_open's; a rank above what m was opened for; a tensor that is no
 * linear of a layer.
 */
int dt_infer_adapter_open(struct dt_infer_adapter **ret, const struct dt_infer *m, const char *path,
			  const char *base, struct dt_err *err);
void dt_infer_adapter_close(struct dt_infer_adapter *a);
uint64_t dt_infer_adapter_bytes(const struct dt_infer_adapter *a);
/*
 * Over ranks the first one reads an adapter, and each computes with a part of it. id: its number among those
 * that others have, above 0; part: what `rank` is to be given, once, false: all have theirs; sent: they do.
 * take: on another rank, of bytes from malloc that it takes over, also when it fails; closed like any other.
 * gone: an adapter that others have and the first has closed; 0: none.
 */
int32_t dt_infer_adapter_id(const struct dt_infer_adapter *a);
bool dt_infer_adapter_part(const struct dt_infer_adapter *a, int rank, const void **ret, size_t *ret_n);
void dt_infer_adapter_sent(const struct dt_infer_adapter *a);
int dt_infer_adapter_take(struct dt_infer_adapter **ret, const struct dt_infer *m, void *part, size_t n,
			  struct dt_err *err);
int32_t dt_infer_adapter_gone(const struct dt_infer *m);
/*
 * Where all ranks have their parts: lengths of the rows that have magnitudes, which ranks that cut a row sum
 * up, in portions of some milliseconds. Collective over all ranks, by the thread that computes, before the
 * first pass with a. On the one that reads, portion: the next one and into how many parts lanes are cut, -1:
 * all are measured; measured: that one is.
 */
int dt_infer_adapter_measure(const struct dt_infer_adapter *a, struct dt_infer *m, int portion, int parts,
			     struct dt_err *err);
int dt_infer_adapter_portion(const struct dt_infer_adapter *a, int *ret_parts);
void dt_infer_adapter_measured(const struct dt_infer_adapter *a);
/* Whether it has tensors whole: such rows are computed apart from others. NULL has none. */
bool dt_infer_adapter_has_whole(const struct dt_infer_adapter *a);
/* A sum of all that it changes, below 2^63, not 0: the same in every process. */
uint64_t dt_infer_adapter_sum(const struct dt_infer_adapter *a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
