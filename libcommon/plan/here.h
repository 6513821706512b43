/* The hardware of this machine: cores, memory, CUDA devices, network interfaces, disks. */
#ifndef DT_PLAN_HERE_H
#define DT_PLAN_HERE_H

#include "base/json.h"

#include <stdio.h>

#define DT_HERE_MAX 32

struct dt_here {
	int threads, cores, sockets, nodes; /* processors, cores, packages, NUMA nodes */
	char cpu[96];
	uint64_t memory, available; /* bytes; available: without swapping */
	struct dt_here_card {
		char name[64];
		uint64_t room; /* bytes free next to a context */
	} card[DT_HERE_MAX];
	struct dt_here_link {
		char name[32];
		double gbs; /* GB/s; 0: not known */
		bool infiniband;
	} link[DT_HERE_MAX];
	struct dt_here_disk {
		char name[32];
		uint64_t bytes;
		bool spins;
	} disk[DT_HERE_MAX];
	int ncard, nlink, ndisk;
	uint64_t disk_room; /* bytes free where this process is */
};

/* root: "" for this machine, or a folder with a copy of its /proc and /sys (tests). */
void dt_here_look(const char *root, struct dt_here *ret);
/*
 * Bytes of host memory that can still be allocated before the system kills a process: available memory and
 * free swap, limited by the control groups of this process (versions 1 and 2). 0: not known.
 */
uint64_t dt_here_free(const char *root);
void dt_here_print(const struct dt_here *h, FILE *f);
json_t *dt_here_json(const struct dt_here *h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
