/* The CUDA backend of a build without CUDA: it cannot be opened, and every op returns -ENOTSUP. */
#include "kernels/backend.h"
#include "kernels/ops.h"

#include <errno.h>

static int no_open(struct dt_dev **ret, int index, int nthreads)
{
	return -ENOTSUP;
}

static int no_count(void)
{
	return 0;
}

const struct dt_backend dt_backend_cuda = {.count = no_count, .open = no_open};

#define DT_OP(name, params, args, memory)                                                                    \
	static int no_##name(struct dt_dev *dev, DT_LIST params)                                             \
	{                                                                                                    \
		return -ENOTSUP;                                                                             \
	}
#include "kernels/ops.list"

const struct dt_ops dt_ops_cuda = {
#define DT_OP(name, params, args, memory) .name = no_##name,
#include "kernels/ops.list"
};
/* SPDX-License-Identifier: Apache-2.0 */
