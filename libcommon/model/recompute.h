/*
 * What is computed again for backward:
 *   none       nothing: everything backward reads is kept
 *   selective  cheap element-wise results: norm outputs, activation functions
 *   full       all of a layer but its input; the layer is run again before its backward
 *   auto:SIZE  as much as the memory plan needs to fit: see struct dt_keep
 *   every:N    all but the input of every N-th layer; N layers are run again at a time (Chen et al. 2016)
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
 * What is kept for backward of layer number `layer` of its chunk. The rest lives in working sets that all
 * layers share: one, or with every > 1 as many, since a block of so many layers is run again at a time.
 */
struct dt_keep {
	enum dt_recompute mode;
	int every; /* full: layers a block, of which only the first one's input is kept; 0 is 1 */
	/*
	 * auto:SIZE (mode is none): the memory plan is to fit into so many bytes. The plan chooses: `value`
	 * has what a layer keeps otherwise, and rank says in which order that is given up. Layer i of a stage
	 * gives up the values of steps / layers ranks, and where i < steps % layers of one more.
	 */
	uint64_t fit;
	int steps, layers, nvalue;
	struct dt_keep_value {
		const char *name, *what; /* of the node, and of the value; static text */
		int op, out, rank;
	} value[DT_KEEP_VALUES];
};
/* Number of the working set, and how many there are. */
static inline int dt_keep_sets(struct dt_keep k)
{
	return k.mode == DT_RECOMPUTE_FULL && k.every > 1 ? k.every : 1;
}
static inline int dt_keep_set(struct dt_keep k, int layer)
{
	return layer % dt_keep_sets(k);
}
/* auto: how many ranks of values the layer with this number in its stage gives up. */
static inline int dt_keep_ranks(const struct dt_keep *k, int layer)
{
	return k->steps ? k->steps / k->layers + (layer < k->steps % k->layers) : 0;
}
/* auto: whether the layer keeps result `out` of the node called so. */
bool dt_keep_has(const struct dt_keep *k, int layer, int op, const char *name, int out);
/* auto: "act and norm mlp of 12 layers, qkv of 3"; "nothing". Returns buf. */
const char *dt_keep_given_up(const struct dt_keep *k, char *buf, size_t n);
/* "none", "selective", "full", "every:N" or "auto:SIZE"; -EINVAL. */
int dt_keep_parse(const char *s, struct dt_keep *ret, struct dt_err *err);
const char *dt_keep_format(struct dt_keep k, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
