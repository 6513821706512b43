/* A libnvidia-ml.so.1, and what of libcuda.so.1 finds a card on its bus: card 1 of two. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static int open_now;

int cuInit(unsigned flags)
{
	return flags != 0;
}

int cuDeviceGet(int *device, int index)
{
	*device = index + 20;
	return index < 2 ? 0 : 101;
}

int cuDeviceGetPCIBusId(char *bus, int room, int device)
{
	return snprintf(bus, (size_t)room, "0000:%02X:00.0", device) >= room;
}

int nvmlInit_v2(void)
{
	open_now++;
	return 0;
}

int nvmlShutdown(void)
{
	open_now--;
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **card)
{
	*card = &open_now;
	return strcmp(bus, "0000:15:00.0") || open_now != 1 ? 6 : 0;
}

int nvmlDeviceGetUtilizationRates(void *card, unsigned share[2])
{
	share[0] = 83;
	share[1] = 41;
	return card != &open_now;
}

int nvmlDeviceGetMemoryInfo(void *card, unsigned long long memory[3])
{
	memory[0] = 80000000000;
	memory[1] = 75000000000;
	memory[2] = 5000000000;
	return card != &open_now;
}

int nvmlDeviceGetPowerUsage(void *card, unsigned *mw)
{
	*mw = 612500;
	return card != &open_now;
}

int nvmlDeviceGetPcieThroughput(void *card, int counter, unsigned *kb)
{
	*kb = 2;
	return counter == 1 && card == &open_now ? 0 : 3; /* sent: not supported */
}
/* SPDX-License-Identifier: Apache-2.0 */
