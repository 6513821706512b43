#include "plan/card.h"

#include "kernels/symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * The functions of CUDA's driver API that are used; they return 0 or an error (docs.nvidia.com: CUDA Driver
 * API).
 */
struct driver {
	int (*init)(unsigned flags);
	int (*get)(int *device, int index);
	int (*retain)(void **context, int device);
	int (*release)(int device);
	int (*push)(void *context);
	int (*pop)(void **context);
	int (*memory)(size_t *room, size_t *all);
};

#define F(name, member)                                                                                      \
	{                                                                                                    \
		name, offsetof(struct driver, member)                                                        \
	}
static const struct dt_symbol symbols[] = {
	F("cuInit", init),
	F("cuDeviceGet", get),
	F("cuDevicePrimaryCtxRetain", retain),
	F("cuDevicePrimaryCtxRelease_v2", release),
	F("cuCtxPushCurrent_v2", push),
	F("cuCtxPopCurrent_v2", pop),
	F("cuMemGetInfo_v2", memory),
};
#undef F

static int ask(const struct driver *d, int index, uint64_t *ret)
{
	size_t room, all;
	void *context;
	int device, rc = -ENODEV;

	if (d->init(0) || d->get(&device, index) || d->retain(&context, device))
		return -ENODEV;
	if (d->push(context) == 0) {
		if (d->memory(&room, &all) == 0) {
			*ret = room;
			rc = 0;
		}
		d->pop(&context);
	}
	d->release(device);
	return rc;
}

int dt_card_free(const char *name, uint64_t *ret, struct dt_err *err)
{
	struct driver d;
	char *end = NULL;
	long index = 0;
	void *lib;
	int rc;

	if (strncmp(name, "cuda", 4) || (name[4] && (name[4] != ':' || name[5] < '0' || name[5] > '9')))
		return dt_err_set(err, -EINVAL, "no such GPU: '%s' (cuda or cuda:N)", name);
	if (name[4])
		index = strtol(name + 5, &end, 10);
	if (end && (*end || index > 9999))
		return dt_err_set(err, -EINVAL, "no such GPU: '%s' (cuda or cuda:N)", name);
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dt_err_set(err, -ENODEV, "'%s': no NVIDIA driver (libcuda.so.1) here", name);
	rc = dt_symbols_find(lib, symbols, sizeof(symbols) / sizeof(*symbols), &d) ? ask(&d, (int)index, ret)
										   : -ENODEV;
	dlclose(lib);
	return rc < 0 ? dt_err_set(err, rc, "'%s': no such GPU, or the driver does not answer", name) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
