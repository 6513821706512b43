/* Interface of record.cc for gpu.cc. */
#ifndef DT_KERNELS_CUDA_EMULATE_RECORD_H
#define DT_KERNELS_CUDA_EMULATE_RECORD_H

#include <stddef.h>

bool dt_emu_recording(void);
/* Records a copy, or if from is NULL, a fill of n bytes with `byte`. */
bool dt_emu_record_copy(void *to, const void *from, int byte, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
