/* Inside data/clean*.c: the rules that documents are looked at by, which do not change while they are. */
#ifndef DT_DATA_CLEAN_RULES_H
#define DT_DATA_CLEAN_RULES_H

#include "data/clean.h"
#include "data/hash_map.h"
#include "data/script.h"

#define CLEAN_EXCLUDED 13
#define CLEAN_SEED     0x64742d636c65616eu

struct clean_rules {
	struct dt_clean_options o;
	struct hash_map excluded;
	struct dt_script *script;
	uint32_t multiply[DT_CLEAN_HASHES], add[DT_CLEAN_HASHES];
};

static inline uint64_t clean_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0xff51afd7ed558ccdu;
	return h ^ h >> 32;
}

/*
 * Calls fn with the hash of every n words in a row, n at most 16; a text of fewer is one. fn returns other
 * than 0 to stop.
 */
int clean_each_run(const char *text, size_t bytes, int n, int (*fn)(void *ctx, uint64_t hash), void *ctx);

/* dt_clean_look by these rules. */
int clean_look(const struct clean_rules *c, const char *text, size_t n, struct dt_clean_look *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
