/* The measurements each kind of device implements for device.h's dt_dev_matmul_rate and the like. */
#ifndef DT_KERNELS_RATES_H
#define DT_KERNELS_RATES_H

#include "kernels/device.h"

double dt_cpu_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
double dt_cpu_copy_rate(struct dt_dev *dev, double seconds);
double dt_cpu_read_rate(struct dt_dev *dev, double seconds);

double dt_cuda_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
double dt_cuda_sheet_rate(const struct dt_dev *dev, enum dt_dtype dtype);
double dt_cuda_copy_rate(struct dt_dev *dev, double seconds);
double dt_cuda_read_rate(struct dt_dev *dev, double seconds);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
