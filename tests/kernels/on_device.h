/*
 * The same tests on a card: with DT_TEST_DEVICE=cuda each op's tensors are copied to memory of the device,
 * exactly as large as they are and aligned as they are here, the op runs there, and what it may have written
 * is copied back.
 */
#ifndef DT_TESTS_KERNELS_ON_DEVICE_H
#define DT_TESTS_KERNELS_ON_DEVICE_H

#include "kernels/ops.h"
#include "kernels/quant.h"

extern const struct dt_ops on_device_ops;

/* quant.h's, likewise; w is the device's. */
int on_packed_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_packed *w,
		     struct dt_tensor bias);
int on_packed_set_matmul(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_packed_set *s, int n, const int32_t *first);
int on_packed_embed(struct dt_dev *dev, struct dt_tensor y, const struct dt_packed *w, const int32_t *ids,
		    float scale);

/* Whether the environment asks for it. */
bool on_device(void);

#endif
