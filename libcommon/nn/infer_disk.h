/*
 * Serving weights from disk, of a model larger than memory (plan/weights_disk.h). Only for libcommon/nn. All
 * functions do nothing if m->disk is NULL.
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
/* After a layer is loaded: writes its pieces to the file, and frees their memory. */
int dt_infer_disk_put(struct dt_infer *m, int layer, struct dt_err *err);
/* After all layers are loaded: allocates slots, and measures the disk's bandwidth. */
int dt_infer_disk_start(struct dt_infer *m, struct dt_err *err);
void dt_infer_disk_close(struct dt_infer *m);

/* Whether the weights of layers' linears are in memory only while their layer computes. */
bool dt_infer_disk_moves(const struct dt_infer *m);
/* Before a layer computes: brings its weights into memory, until the next layer. Not for experts. */
int dt_infer_disk_layer(struct dt_infer *m, int layer, struct dt_err *err);
/*
 * After the router: rows [first[e], first[e + 1]) go to expert e. want starts reading the experts with rows
 * that are in no slot. take waits for them, and sets their addresses in set; they stay until the next want.
 */
int dt_infer_disk_want(struct dt_infer *m, int layer, const int32_t *first, struct dt_err *err);
int dt_infer_disk_take(struct dt_infer *m, int layer, const int32_t *first, struct dt_packed_set *set,
		       struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
