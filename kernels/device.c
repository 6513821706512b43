/* Which kind of device; the rest is each kind's own. */
#include "kernels/device.h"

#include "kernels/backend.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

void dt_dev_spin_less(char **argv)
{
	char exe[PATH_MAX];
	ssize_t n;

	if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME"))
		return;
	n = readlink("/proc/self/exe", exe, sizeof exe - 1);
	if (n <= 0)
		return;
	exe[n] = '\0';
	/* Both: our own loops and oneDNN's may run on different runtimes. */
	if (setenv("GOMP_SPINCOUNT", "1000", 1) < 0 || setenv("KMP_BLOCKTIME", "0", 1) < 0)
		return;
	execv(exe, argv);
}

int dt_dev_open(struct dt_dev **ret, enum dt_dev_kind kind, int index, int nthreads)
{
	if (index < 0 || nthreads < 0)
		return -EINVAL;
	return kind == DT_DEV_CPU ? dt_cpu_open(ret, index, nthreads) : dt_cuda_open(ret, index, nthreads);
}

void dt_dev_close(struct dt_dev *dev)
{
	if (!dev)
		return;
	if (dev->kind == DT_DEV_CPU)
		dt_cpu_close(dev);
	else
		dt_cuda_close(dev);
}

void dt_dev_rest(struct dt_dev *dev)
{
	if (dev->kind == DT_DEV_CPU)
		dt_cpu_rest();
}

size_t dt_dev_scratch_bytes(const struct dt_dev *dev)
{
	return dev->kind == DT_DEV_CPU ? dt_cpu_scratch_bytes(dev) : dt_cuda_scratch_bytes(dev);
}

const char *dt_dev_isa(const struct dt_dev *dev)
{
	return dev->kind == DT_DEV_CPU ? dt_cpu_isa(dev) : dt_cuda_isa(dev);
}

double dt_dev_matmul_rate(struct dt_dev *dev, enum dt_dtype dtype, double seconds)
{
	return dev->kind == DT_DEV_CPU ? dt_cpu_matmul_rate(dev, dtype, seconds)
				       : dt_cuda_matmul_rate(dev, dtype, seconds);
}

double dt_dev_copy_rate(struct dt_dev *dev, double seconds)
{
	return dev->kind == DT_DEV_CPU ? dt_cpu_copy_rate(dev, seconds) : dt_cuda_copy_rate(dev, seconds);
}

double dt_dev_read_rate(struct dt_dev *dev, double seconds)
{
	return dev->kind == DT_DEV_CPU ? dt_cpu_read_rate(dev, seconds) : dt_cuda_read_rate(dev, seconds);
}
