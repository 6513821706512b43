/*
 * A cache block of a model over several ranks: each rank has a part. Blocks that leave the ranks are whole
 * blocks, in the layout of a single process (nn/infer.h: struct dt_block_form), so that blocks written under
 * one parallel layout can be read under any other.
 */
#ifndef DT_SERVE_KVPARTS_H
#define DT_SERVE_KVPARTS_H

#include "nn/infer.h"
#include "plan/layout.h"

struct dt_kvparts {
	struct dt_block_form form;
	struct dt_layout layout;
	const struct dt_config *config;
};

/* Bytes of the whole block, and of the part of a rank. */
size_t dt_kvparts_whole(const struct dt_kvparts *p);
size_t dt_kvparts_bytes(const struct dt_kvparts *p, int rank);
/*
 * Copy a rank's part out of the whole block, or into it. A KV head that several ranks hold is identical on
 * all.
 */
void dt_kvparts_cut(const struct dt_kvparts *p, int rank, void *part, const void *whole);
void dt_kvparts_join(const struct dt_kvparts *p, int rank, const void *part, void *whole);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
