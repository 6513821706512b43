/* The device that option --device names. */
#ifndef DT_NN_DEVICE_H
#define DT_NN_DEVICE_H

#include "base/err.h"
#include "kernels/device.h"
#include "model/config.h"

/*
 * name NULL: the CPU. If the name does not say which CUDA device, the ranks of a machine, of which this is
 * number local_rank, take them in turn. -EINVAL: not a device name; else as dt_dev_open.
 */
int dt_nn_device_open(struct dt_dev **ret, const char *name, int local_rank, int nthreads,
		      struct dt_err *err);
/*
 * Checks options: -EINVAL if name is no device name, or if a limit `memory` (0: none) is set without a folder
 * for the other weights, and the device is not a CUDA device whose host memory could hold them.
 */
int dt_nn_device_check(const char *name, uint64_t memory, const char *folder, struct dt_err *err);
/* Whether the name is that of a CUDA device; for `auto`: whether there is one. */
bool dt_nn_device_is_card(const char *name);
/* The largest number of ranks of a machine that get the same device by that name. */
int dt_nn_device_ranks(const struct dt_dev *dev, const char *name, int local_size);
/* -ENOTSUP: the model has convolutions, which dev does not implement. */
int dt_nn_device_convolves(const struct dt_dev *dev, const struct dt_config *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
