/* Initial values of parameters: random, or read from the weights that --model names (ckpt/source.h). */
#ifndef DT_TRAIN_INIT_H
#define DT_TRAIN_INIT_H

#include "base/err.h"
#include "plan/layout.h"

struct trainer;

/*
 * Opens the weights that the run starts from and takes their configuration. Returns 1 if there are weights,
 * 0 if parameters are initialized at random, -ENOENT if --init weights finds none.
 */
int init_open(struct trainer *t, struct dt_err *err);
void init_close(struct trainer *t);
/*
 * Says so on standard error, on rank 0, if a token of the data has other bytes in the tokenizer of the
 * weights. Hashes are not compared: one vocabulary has several, in GGUF and in tokenizer.json.
 */
void init_compare_tokens(struct trainer *t);
/*
 * Sets t->base, which identifies weights that the run needs from outside its checkpoints: the base of
 * adapters, or a reference model. The configuration must be known.
 */
int init_name_base(struct trainer *t, struct dt_err *err);
/* Whether such a fingerprint is that of weights drawn at random. */
bool init_is_drawn(const char *base);
const char *init_base_key(const struct trainer *t); /* its key in manifests */
/*
 * Whether a path holds weights, and not only a description (a config.json, or a folder with nothing else).
 * foreign: in another program's format; a folder of dt checkpoints is not.
 */
bool init_holds_weights(const char *path, bool foreign);
/* Writes the initial values of elements [first, first + n) of a local parameter to host memory. */
int init_values(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *out,
		struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
