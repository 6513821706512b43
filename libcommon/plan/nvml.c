#include "plan/nvml.h"

#include "kernels/symbols.h"

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

struct driver {
	int (*init)(unsigned);
	int (*get)(int *, int);
	int (*place)(char *, int, int);
};

#define F(s, name, member)                                                                                   \
	{                                                                                                    \
		name, offsetof(struct s, member)                                                             \
	}
static const struct dt_symbol driver_symbols[] = {F(driver, "cuInit", init), F(driver, "cuDeviceGet", get),
						  F(driver, "cuDeviceGetPCIBusId", place)};
static const struct dt_symbol symbols[] = {
	F(dt_nvml, "nvmlInit_v2", init),
	F(dt_nvml, "nvmlShutdown", shutdown),
	F(dt_nvml, "nvmlDeviceGetHandleByPciBusId_v2", handle),
	F(dt_nvml, "nvmlDeviceGetUtilizationRates", share),
	F(dt_nvml, "nvmlDeviceGetMemoryInfo", memory),
	F(dt_nvml, "nvmlDeviceGetPowerUsage", power),
	F(dt_nvml, "nvmlDeviceGetPcieThroughput", pcie),
};
#undef F

/* The card's PCI address from the CUDA driver: NVML numbers cards differently. */
static int place_of(int index, char *bus, int room)
{
	struct driver d;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int device, rc = lib && dt_symbols_find(lib, driver_symbols, 3, &d) ? 0 : -ENODEV;

	if (rc == 0 && (d.init(0) || d.get(&device, index) || d.place(bus, room, device)))
		rc = -ENODEV;
	if (lib)
		dlclose(lib);
	return rc;
}

static int load(struct dt_nvml *n)
{
	n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	return n->lib && dt_symbols_find(n->lib, symbols, sizeof(symbols) / sizeof(*symbols), n) ? 0
												 : -ENODEV;
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
	return dt_err_set(err, rc, "GPU %d: its driver or libnvidia-ml.so.1 does not answer", index);
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
	if (n->pcie(n->card, RECEIVED, &v) == 0) /* KiB/s */
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
