/*
 * A fake libcuda.so.1 for dt-memest: one GPU with FAKE_CUDA_FREE bytes of free memory; none if it is unset.
 */
#include <stdlib.h>

static int retained, pushed;

int cuInit(unsigned flags)
{
	return flags != 0;
}

int cuDeviceGet(int *device, int index)
{
	*device = 7;
	return index == 0 && getenv("FAKE_CUDA_FREE") ? 0 : 101;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	*context = &retained;
	retained++;
	return device != 7;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	retained--;
	return device != 7;
}

int cuCtxPushCurrent_v2(void *context)
{
	pushed++;
	return context != &retained;
}

int cuCtxPopCurrent_v2(void **context)
{
	pushed--;
	*context = &retained;
	return 0;
}

int cuMemGetInfo_v2(size_t *room, size_t *all)
{
	*room = strtoull(getenv("FAKE_CUDA_FREE"), NULL, 10);
	*all = *room + 1000;
	return retained == 1 && pushed == 1 ? 0 : 201;
}
/* SPDX-License-Identifier: Apache-2.0 */
