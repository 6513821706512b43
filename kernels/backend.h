/* What each kind of device implements behind device.h. */
#ifndef DT_KERNELS_BACKEND_H
#define DT_KERNELS_BACKEND_H

#include "kernels/device.h"

int dt_cpu_open(struct dt_dev **ret, int index, int nthreads);
void dt_cpu_close(struct dt_dev *dev);
void dt_cpu_rest(void);
size_t dt_cpu_scratch_bytes(const struct dt_dev *dev);
const char *dt_cpu_isa(const struct dt_dev *dev);
double dt_cpu_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
double dt_cpu_copy_rate(struct dt_dev *dev, double seconds);
double dt_cpu_read_rate(struct dt_dev *dev, double seconds);

int dt_cuda_open(struct dt_dev **ret, int index, int nthreads);
void dt_cuda_close(struct dt_dev *dev);
size_t dt_cuda_scratch_bytes(const struct dt_dev *dev);
const char *dt_cuda_isa(const struct dt_dev *dev);
double dt_cuda_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds);
double dt_cuda_copy_rate(struct dt_dev *dev, double seconds);
double dt_cuda_read_rate(struct dt_dev *dev, double seconds);

#endif
