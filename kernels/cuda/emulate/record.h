/* What gpu.cc asks of record.cc. */
#ifndef DT_KERNELS_CUDA_EMULATE_RECORD_H
#define DT_KERNELS_CUDA_EMULATE_RECORD_H

#include <stddef.h>

bool dt_emu_recording(void);
/* Keeps a copy, or where from is NULL n bytes set to byte. */
bool dt_emu_record_copy(void *to, const void *from, int byte, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
