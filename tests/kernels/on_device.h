/*
 * The same tests on a card: with DT_TEST_DEVICE=cuda each op's tensors are copied to memory of the device,
 * exactly as large as they are and aligned as they are here, the op runs there, and what it may have written
 * is copied back.
 */
#ifndef DT_TESTS_KERNELS_ON_DEVICE_H
#define DT_TESTS_KERNELS_ON_DEVICE_H

#include "kernels/ops.h"

extern const struct dt_ops on_device_ops;

/* Whether the environment asks for it. */
bool on_device(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
