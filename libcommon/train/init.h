/* Initial values of parameters: drawn, or the weights of what --model names (ckpt/source.h). */
#ifndef DT_TRAIN_INIT_H
#define DT_TRAIN_INIT_H

#include "base/err.h"
#include "plan/layout.h"

struct trainer;

/*
 * Opens the weights that the run starts from and takes their configuration. 1: there are some,
 * 0: parameters are drawn. -ENOENT where --init weights finds none.
 */
int init_open(struct trainer *t, struct dt_err *err);
void init_close(struct trainer *t);
/* Fills t->base, once the configuration is there. */
int init_name_base(struct trainer *t, struct dt_err *err);
/*
 * Whether a path names weights, not a description alone: a config.json, or a folder with nothing else.
 * foreign: of another program's format; a folder of checkpoints is not.
 */
bool init_holds_weights(const char *path, bool foreign);
/* Elements [first, first + n) of a local parameter to the host's memory. */
int init_values(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *out,
		struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
