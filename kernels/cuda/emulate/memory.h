/* Device memory of the emulation, and the one way out of it. */
#ifndef DT_KERNELS_CUDA_EMULATE_MEMORY_H
#define DT_KERNELS_CUDA_EMULATE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a struct dt_gpu_map has in it here. */
struct dt_emu_map {
	const char *from;
	int64_t n[4], step[3];
};

void dt_emu_open_memory(bool open); /* counted; closed is PROT_NONE */
bool dt_emu_is_device(const void *p, size_t n);
/*
 * For libraries that compute beside the emulation, in threads of their own (tests/nccl/fake_nccl.c): what
 * they begin in a stream, in order; and device memory within reach (open 1) or not (0), counted.
 */
extern "C" {
void dt_emu_stream_begin(void *stream);
void dt_emu_stream_end(void *stream);
void dt_emu_device_memory(int open);
/* Kernels run so far: what tests count. */
long dt_emu_launches(void);
}
/*
 * Between fiber.cc and async.cc: the running thread goes on when it is so; the oldest copy of a tile is made,
 * if there is one; a block has ended and left nothing under way.
 */
void dt_emu_until(bool (*is)(void *), void *arg, const char *what);
bool dt_emu_copy_one(void);
void dt_emu_settled(void);
[[noreturn]] void dt_emu_die(const char *why);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
