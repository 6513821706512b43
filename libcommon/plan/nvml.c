#include "plan/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct share { /* nvmlUtilization_t, in percent */
	unsigned gpu, memory;
};

struct memory { /* nvmlMemory_t */
	unsigned long long total, free, used;
};

enum { SENT, RECEIVED }; /* nvmlPcieUtilCounter_t */

struct dt_nvml {
	void *lib, *card;
	int (*init)(void);
	int (*shutdown)(void);
	int (*handle)(const char *bus, void **card);
	int (*share)(void *card, struct share *ret);
	int (*memory)(void *card, struct memory *ret);
	int (*power)(void *card, unsigned *ret_mw);
	int (*pcie)(void *card, int counter, unsigned *ret_kb_s);
};

/* The card's place on the bus as the driver has it: NVML counts cards otherwise than CUDA does. */
static int place_of(int index, char *bus, int room)
{
	static const char *const name[] = {"cuInit", "cuDeviceGet", "cuDeviceGetPCIBusId"};
	int (*init)(unsigned);
	int (*get)(int *, int);
	int (*place)(char *, int, int);
	void *to[] = {&init, &get, &place}, *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int device, rc = lib ? 0 : -ENODEV;

	for (size_t i = 0; i < sizeof(name) / sizeof(*name) && rc == 0; i++) {
		void *f = dlsym(lib, name[i]);

		rc = f ? 0 : -ENODEV;
		memcpy(to[i], &f, sizeof(f));
	}
	if (rc == 0 && (init(0) || get(&device, index) || place(bus, room, device)))
		rc = -ENODEV;
	if (lib)
		dlclose(lib);
	return rc;
}

static int load(struct dt_nvml *n)
{
	static const char *const name[] = {"nvmlInit_v2",
					   "nvmlShutdown",
					   "nvmlDeviceGetHandleByPciBusId_v2",
					   "nvmlDeviceGetUtilizationRates",
					   "nvmlDeviceGetMemoryInfo",
					   "nvmlDeviceGetPowerUsage",
					   "nvmlDeviceGetPcieThroughput"};
	void *to[] = {&n->init, &n->shutdown, &n->handle, &n->share, &n->memory, &n->power, &n->pcie};

	n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; i < sizeof(name) / sizeof(*name) && n->lib; i++) {
		void *f = dlsym(n->lib, name[i]);

		if (!f)
			return -ENODEV;
		memcpy(to[i], &f, sizeof(f));
	}
	return n->lib ? 0 : -ENODEV;
}

int dt_nvml_open(int index, struct dt_nvml **ret, struct dt_err *err)
{
	struct dt_nvml *n = calloc(1, sizeof(*n));
	char bus[64];
	int rc = n ? place_of(index, bus, (int)sizeof(bus)) : -ENOMEM;

	if (rc == 0)
		rc = load(n);
	if (rc == 0 && n->init())
		rc = -ENODEV;
	if (rc == 0 && n->handle(bus, &n->card)) {
		n->shutdown();
		rc = -ENODEV;
	}
	if (rc == 0) {
		*ret = n;
		return 0;
	}
	if (n && n->lib)
		dlclose(n->lib);
	free(n);
	return dt_err_set(err, rc, "card %d: its driver or libnvidia-ml.so.1 does not answer", index);
}

void dt_nvml_read(const struct dt_nvml *n, struct dt_nvml_now *ret)
{
	struct share share;
	struct memory memory;
	unsigned v;

	*ret = (struct dt_nvml_now){NAN, NAN, NAN, NAN, NAN, NAN};
	if (n->share(n->card, &share) == 0) {
		ret->busy = share.gpu * 0.01;
		ret->memory_busy = share.memory * 0.01;
	}
	if (n->memory(n->card, &memory) == 0)
		ret->memory_bytes = (double)memory.used;
	if (n->power(n->card, &v) == 0)
		ret->power_w = v * 1e-3;
	if (n->pcie(n->card, RECEIVED, &v) == 0) /* KB of 1024 bytes */
		ret->received = v * 1024.0;
	if (n->pcie(n->card, SENT, &v) == 0)
		ret->sent = v * 1024.0;
}

void dt_nvml_close(struct dt_nvml *n)
{
	if (!n)
		return;
	n->shutdown();
	dlclose(n->lib);
	free(n);
}
/* SPDX-License-Identifier: Apache-2.0 */
