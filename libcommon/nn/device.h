/* Where a program computes, by the name that its option --device gives. */
#ifndef DT_NN_DEVICE_H
#define DT_NN_DEVICE_H

#include "base/err.h"
#include "kernels/device.h"
#include "model/config.h"

/*
 * name NULL: the processor. Ranks of a machine, of which this is number local_rank, share out its cards where
 * the name does not say which. -EINVAL: it is no name of a device; else as dt_dev_open.
 */
int dt_nn_device_open(struct dt_dev **ret, const char *name, int local_rank, int nthreads,
		      struct dt_err *err);
/*
 * Options that say where a model is: -EINVAL where name is no device's, or where the weights that `memory`
 * (0: any) does not hold are in no folder and the device is no card, whose host could have them.
 */
int dt_nn_device_check(const char *name, uint64_t memory, const char *folder, struct dt_err *err);
/* Whether that name is a card's; of `auto` whether there is one. */
bool dt_nn_device_is_card(const char *name);
/* Ranks of a machine, at most, that dt_nn_device_open gave one device by that name. */
int dt_nn_device_ranks(const struct dt_dev *dev, const char *name, int local_size);
/* -ENOTSUP: the model has convolutions, and dev none. */
int dt_nn_device_convolves(const struct dt_dev *dev, const struct dt_config *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
