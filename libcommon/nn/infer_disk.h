/*
 * Weights of a model that memory does not hold (plan/weights_disk.h), between infer_load.c, the pass and its
 * calls: only for libcommon/nn. All functions do nothing where m->disk is NULL.
 */
#ifndef DT_NN_INFER_DISK_H
#define DT_NN_INFER_DISK_H

#include "nn/infer_priv.h"

/*
 * Plans, and makes the file, where params say so. part, format: of each local parameter. With owner, packed
 * and expert of m made, but nothing loaded.
 */
int dt_infer_disk_open(struct dt_infer *m, const struct dt_param *part, const enum dt_format *format,
		       struct dt_err *err);
/* All of a layer is loaded: its pieces go to the file and their memory is given up. */
int dt_infer_disk_put(struct dt_infer *m, int layer, struct dt_err *err);
/* All is loaded: slots are allocated and the disk's rate is measured. */
int dt_infer_disk_start(struct dt_infer *m, struct dt_err *err);
void dt_infer_disk_close(struct dt_infer *m);

/* Whether weights of layers that linears multiply with are in memory only while a layer has them. */
bool dt_infer_disk_moves(const struct dt_infer *m);
/* A layer is about to compute: what it multiplies with is in memory until the next one. Of a mixture none. */
int dt_infer_disk_layer(struct dt_infer *m, int layer, struct dt_err *err);
/*
 * Experts of a layer were chosen: rows first[e] .. first[e + 1] are expert e's. want begins to read those
 * that no slot has, take ends it: they stay until the next want, and set, which has them all, knows where.
 */
int dt_infer_disk_want(struct dt_infer *m, int layer, const int32_t *first, struct dt_err *err);
int dt_infer_disk_take(struct dt_infer *m, int layer, const int32_t *first, struct dt_packed_set *set,
		       struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
