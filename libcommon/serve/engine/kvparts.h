/*
 * A block of the cache of a model over several ranks: the parts that each has, and the block that one process
 * has of the same model (nn/infer.h: struct dt_block_form), which is what leaves the ranks. So any layout
 * reads what another one has written.
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

/* Bytes of the whole, and of what rank i has. */
size_t dt_kvparts_whole(const struct dt_kvparts *p);
size_t dt_kvparts_bytes(const struct dt_kvparts *p, int rank);
/* A rank's part of the whole, out of it or into it. A head that several ranks have is the same in all. */
void dt_kvparts_cut(const struct dt_kvparts *p, int rank, void *part, const void *whole);
void dt_kvparts_join(const struct dt_kvparts *p, int rank, const void *part, void *whole);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
