/*
 * Argument checks of every op, the same for all devices: next to each contract header NAME.h is NAME.c with
 * one check function per op. They look at shapes, types and presence of tensors, never at device memory:
 * index arrays are checked by the device (device.h). They write and allocate nothing.
 *
 * Returns 0: the device's function may run. DT_EMPTY: nothing to compute, the call succeeds. -EINVAL: the
 * call is refused.
 */
#ifndef DT_KERNELS_CHECK_H
#define DT_KERNELS_CHECK_H

#include "kernels/ops.h"
#include "kernels/shape.h"

#include <errno.h>

#define DT_EMPTY 1

#ifdef __cplusplus
extern "C" {
#endif

#define DT_OP(name, params, args, memory) int dt_check_##name(const struct dt_dev *dev, DT_LIST params);
#include "kernels/ops.list"

#ifdef __cplusplus
}
#endif

/*
 * Row strides are refused for tensors that ops.list does not mark, and for all tensors on a device that has
 * dense rows only (strides: a constant).
 */
#define IN(t)	  bad |= !dt_is_dense(t);
#define OUT(t)	  IN(t)
#define IN_LD(t)  bad |= dt_stride(t) < dt_cols(t) || (!strides && !dt_is_dense(t));
#define OUT_LD(t) IN_LD(t)
#define IN_AT(p, n)
#define OUT_AT(p, n)

/* The function in a device's table: runs the checks, then the device's own function fn. */
#define DT_CHECKED(name, params, args, memory, with_strides, fn)                                             \
	static int checked_##name(struct dt_dev *dev, DT_LIST params)                                        \
	{                                                                                                    \
		const bool strides = with_strides;                                                           \
		bool bad = false;                                                                            \
		int rc;                                                                                      \
                                                                                                             \
		(void)strides;                                                                               \
		memory rc = bad ? -EINVAL : dt_check_##name(dev, DT_LIST args);                              \
		return rc ? rc < 0 ? rc : 0 : fn(dev, DT_LIST args);                                         \
	}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
