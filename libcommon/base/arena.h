/*
 * One large, 64-byte aligned, zero-filled mapping; callers address it by offset. The memory plan
 * (plan/memory.h) assigns the offset of each buffer, so a process uses exactly the total that its plan
 * states.
 */
#ifndef DT_BASE_ARENA_H
#define DT_BASE_ARENA_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define DT_ALIGN 64 /* bytes: a cache line, and the widest vector */

struct dt_arena {
	char *base;
	size_t bytes;
};

int dt_arena_init(struct dt_arena *a, size_t bytes, struct dt_err *err);
void dt_arena_release(struct dt_arena *a);

static inline uint64_t dt_align_up(uint64_t n)
{
	return (n + DT_ALIGN - 1) / DT_ALIGN * DT_ALIGN;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
