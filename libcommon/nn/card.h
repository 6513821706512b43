/* The memory of a device, for dt_world_device. */
#ifndef DT_NN_CARD_H
#define DT_NN_CARD_H

#include "comm/comm.h"
#include "kernels/device.h"

/* card is filled and must outlive the use of what is returned. */
struct dt_comm_device dt_card_device(struct dt_dev *dev, struct dt_comm_card *card, const void *base,
				     size_t bytes);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
