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

/*
 * What is kept for backward of layer number `layer` of its chunk. The rest lives in working sets that all
 * layers share: one, or with every > 1 as many, since a block of so many layers is run again at a time.
 */
struct dt_keep {
	enum dt_recompute mode;
	int every; /* full: layers a block, of which only the first one's input is kept; 0 is 1 */
	/*
	 * auto:SIZE (mode is none): the memory plan is to fit into so many bytes. The first `full` layers of
	 * a stage are computed again as a whole, the next `selective` ones in part: the plan chooses.
	 */
	uint64_t fit;
	int full, selective;
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
/* The mode of the layer with this number in its stage. */
static inline enum dt_recompute dt_keep_mode(struct dt_keep k, int layer)
{
	return !k.fit			      ? k.mode
	       : layer < k.full		      ? DT_RECOMPUTE_FULL
	       : layer < k.full + k.selective ? DT_RECOMPUTE_SELECTIVE
					      : DT_RECOMPUTE_NONE;
}
/* "none", "selective", "full", "every:N" or "auto:SIZE"; -EINVAL. */
int dt_keep_parse(const char *s, struct dt_keep *ret, struct dt_err *err);
const char *dt_keep_format(struct dt_keep k, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
