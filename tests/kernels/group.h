/*
 * For files whose tests all run on one device, of GROUP_THREADS threads where it is the processor (two, if
 * the file does not say): dev is open while the group runs.
 */
#ifndef DT_TESTS_KERNELS_GROUP_H
#define DT_TESTS_KERNELS_GROUP_H

#include "check.h"

#ifndef GROUP_THREADS
#define GROUP_THREADS 2
#endif

static struct dt_dev *dev;

static int setup(void **state)
{
	dev = open_device(GROUP_THREADS);
	print_message("isa %s\n", dt_dev_isa(dev));
	return 0;
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	return 0;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
