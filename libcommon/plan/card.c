#include "plan/card.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The driver's interface, as far as it is used; results are 0 or an error (docs.nvidia.com: CUDA Driver API).
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

static int load(void *lib, struct driver *d)
{
	static const char *const name[] = {"cuInit",
					   "cuDeviceGet",
					   "cuDevicePrimaryCtxRetain",
					   "cuDevicePrimaryCtxRelease_v2",
					   "cuCtxPushCurrent_v2",
					   "cuCtxPopCurrent_v2",
					   "cuMemGetInfo_v2"};
	void *to[] = {&d->init, &d->get, &d->retain, &d->release, &d->push, &d->pop, &d->memory};

	for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
		void *f = dlsym(lib, name[i]);

		if (!f)
			return -ENODEV;
		memcpy(to[i], &f, sizeof(f));
	}
	return 0;
}

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
		return dt_err_set(err, -EINVAL, "no such card: '%s' (cuda or cuda:N)", name);
	if (name[4])
		index = strtol(name + 5, &end, 10);
	if (end && (*end || index > 9999))
		return dt_err_set(err, -EINVAL, "no such card: '%s' (cuda or cuda:N)", name);
	lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dt_err_set(err, -ENODEV, "'%s': no NVIDIA driver (libcuda.so.1) here", name);
	rc = load(lib, &d);
	if (rc == 0)
		rc = ask(&d, (int)index, ret);
	dlclose(lib);
	return rc < 0 ? dt_err_set(err, rc, "'%s': no such card, or the driver does not answer", name) : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
