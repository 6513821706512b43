/*
 * For files whose tests all run on one device, of two threads where it is the processor: dev is open while
 * the group runs.
 */
#ifndef DT_TESTS_KERNELS_GROUP_H
#define DT_TESTS_KERNELS_GROUP_H

#include "check.h"

static struct dt_dev *dev;

static int setup(void **state)
{
	dev = open_device(2);
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
