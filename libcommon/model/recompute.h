/*
 * Recomputation of activations for backward:
 *   none       nothing: all that backward reads is kept
 *   selective  cheap element-wise results: norm outputs, activation functions
 *   full       all of a layer but its input; backward first reruns the layer
 *   auto:SIZE  as much as needed to make the memory plan fit: see struct dt_keep
 *   every:N    all but the input of every N-th layer; N layers are rerun at a time (Chen et al. 2016)
 */
#ifndef DT_MODEL_RECOMPUTE_H
#define DT_MODEL_RECOMPUTE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dt_recompute { DT_RECOMPUTE_NONE, DT_RECOMPUTE_SELECTIVE, DT_RECOMPUTE_FULL };
#define DT_RECOMPUTE_CHOICES "none|selective|full|every:N|auto:SIZE"

enum { DT_KEEP_VALUES = 40 };

/*
 * What is kept for backward of layer `layer` of its chunk. The rest is in working sets shared by all layers:
 * one, or with every > 1 that many, since blocks of so many layers are rerun at a time.
 */
struct dt_keep {
	enum dt_recompute mode;
	int every; /* full: layers a block; only the first one's input is kept; 0 is 1 */
	/*
	 * auto:SIZE (mode is none): the memory limit in bytes. The plan chooses: `value` lists what a layer
	 * would keep, and rank the order in which it is dropped. Layer i of a stage drops the values of the
	 * first steps / layers ranks, and one more if i < steps % layers.
	 */
	uint64_t fit;
	int steps, layers, nvalue;
	struct dt_keep_value {
		const char *name, *what; /* of the node, and for people; static text */
		int op, out, rank;
	} value[DT_KEEP_VALUES];
};
/* Number of working sets. */
static inline int dt_keep_sets(struct dt_keep k)
{
	return k.mode == DT_RECOMPUTE_FULL && k.every > 1 ? k.every : 1;
}
static inline int dt_keep_set(struct dt_keep k, int layer)
{
	return layer % dt_keep_sets(k);
}
/* auto: how many ranks of values a layer, by its index in the stage, drops. */
static inline int dt_keep_ranks(const struct dt_keep *k, int layer)
{
	return k->steps ? k->steps / k->layers + (layer < k->steps % k->layers) : 0;
}
/* auto: whether the layer keeps result `out` of the node with this op and name. */
bool dt_keep_has(const struct dt_keep *k, int layer, int op, const char *name, int out);
/* auto: the dropped values: "act and norm mlp of 12 layers, qkv of 3"; "nothing". Returns buf. */
const char *dt_keep_given_up(const struct dt_keep *k, char *buf, size_t n);
/* Parses "none", "selective", "full", "every:N" or "auto:SIZE"; -EINVAL. */
int dt_keep_parse(const char *s, struct dt_keep *ret, struct dt_err *err);
const char *dt_keep_format(struct dt_keep k, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
