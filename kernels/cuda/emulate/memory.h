/* Device memory of the emulation, and the one way out of it. */
#ifndef DT_KERNELS_CUDA_EMULATE_MEMORY_H
#define DT_KERNELS_CUDA_EMULATE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

void dt_emu_open_memory(bool open); /* counted; closed is PROT_NONE */
bool dt_emu_is_device(const void *p, size_t n);
[[noreturn]] void dt_emu_die(const char *why);

#endif
