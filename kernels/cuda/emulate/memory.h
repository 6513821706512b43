/* Device memory of the emulation, and access to it. */
#ifndef DT_KERNELS_CUDA_EMULATE_MEMORY_H
#define DT_KERNELS_CUDA_EMULATE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The contents of struct dt_gpu_map in the emulation. */
struct dt_emu_map {
	const char *from;
	int64_t n[4], step[3];
};

void dt_emu_open_memory(bool open); /* reference counted; closed means PROT_NONE */
/* The same for the allocation that has the n bytes at p; host memory is left as it is. */
void dt_emu_open_at(const void *p, size_t n, bool open);
bool dt_emu_is_device(const void *p, size_t n);
/*
 * For libraries that compute beside the emulation in threads of their own (tests/nccl/fake_nccl.c): orders
 * their work in a stream; opens (1) or closes (0) device memory for access, reference counted.
 */
extern "C" {
void dt_emu_stream_begin(void *stream);
void dt_emu_stream_end(void *stream);
void dt_emu_device_memory(int open);
/* Number of kernels run so far, for tests. */
long dt_emu_launches(void);
}
/*
 * Between fiber.cc and async.cc: suspends the running thread until a condition holds; carries out the oldest
 * tile copy, if any; checks at the end of a block that nothing is in flight.
 */
void dt_emu_until(bool (*is)(void *), void *arg, const char *what);
bool dt_emu_copy_one(void);
void dt_emu_settled(void);
/*
 * For copies.cc and products.cc: clears the copies of the threads of a block, before it runs; how many a
 * thread has under way; operations so far in which the lanes of the running thread's warp have met.
 */
void dt_emu_no_copies(int threads);
int dt_emu_copies(int thread);
uint64_t dt_emu_met(void);
/* Counts a launch, and appends its name to the file of DT_EMULATED_LAUNCHES, one per line. */
void dt_emu_note(const char *name);
[[noreturn]] void dt_emu_die(const char *why);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
