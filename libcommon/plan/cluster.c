/*
 * Devices: dense matrix rates in 16 bits and 8-bit floats and memory from the makers' data sheets; the shares
 * of these that programs reach; host copies over PCIe (about 0.8 of 16 lanes of generation 3, 4 or 5); costs
 * of collectives on their links. The shares were fitted once on the A100 to the layer and step times of
 * Korthikanti et al. 2022 (tables 4 and 5), and are used for devices without such data.
 */
#include "plan/cluster.h"

#include "base/suggest.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define GB   1e9
#define GIB  1073741824.0
#define TERA 1e12

#define LINK_EFF 0.80 /* share of a link's rate: NCCL's rings on NVLink reach 235 of 300 GB/s on A100 */

static const struct known {
	const char *name;
	double tflops, fp8, mem_gbs, mem_gib, host_gbs, node_gbs, nic_gbs, matmul_eff;
	int gpus_a_node, power_w; /* data sheets; unknown for a CPU core */
} known[] = {
	{"A100", 312, 0, 2039, 80, 25, 300, 25, 0.71, 8, 400},
	{"A100-40GB", 312, 0, 1555, 40, 25, 300, 25, 0.71, 8, 400},
	{"H100", 989, 1979, 3350, 80, 50, 450, 50, 0.60, 8, 700},
	{"H200", 989, 1979, 4800, 131, 50, 450, 50, 0.60, 8, 700},
	{"B200", 2250, 4500, 8000, 167, 50, 900, 50, 0.60, 8, 1000},
	{"MI300X", 1307, 2615, 5300, 179, 50, 448, 50, 0.50, 8, 750},
	{"T4", 65, 0, 320, 15, 12, 12, 6, 0.60, 4, 70},
	{"L4", 121, 242, 300, 22.5, 25, 24, 12, 0.60, 4, 72},
	/* One core with AVX-512 and bf16 dot products, as measured; --calibrate measures others. */
	{"cpu", 0.43, 0, 20, 4, 0, 8, 1, 0.90, 64, 0},
};

const char *dt_cluster_device_name(int i)
{
	return i >= 0 && i < (int)(sizeof(known) / sizeof(known[0])) ? known[i].name : NULL;
}

int dt_cluster_device(const char *name, struct dt_cluster *ret, struct dt_err *err)
{
	size_t i = 0, n = sizeof(known) / sizeof(known[0]);
	struct dt_suggest near = dt_suggest(name);
	const struct known *k;
	char text[128];
	bool cpu;

	while (i < n && strcasecmp(known[i].name, name))
		i++;
	if (i == n) {
		for (i = 0; i < n; i++)
			dt_suggest_offer(&near, known[i].name);
		dt_err_set(err, -EINVAL, "no device is called '%.40s'%s", name,
			   dt_suggest_text(&near, "", text, sizeof(text)));
		dt_err_hint(err, "known devices are A100, A100-40GB, H100, H200, B200, MI300X, T4, L4 and "
				 "cpu; describe "
				 "others in a file for --cluster");
		return -EINVAL;
	}
	k = &known[i];
	cpu = !strcmp(k->name, "cpu");
	*ret = (struct dt_cluster){
		.gpus = 1, .gpus_a_node = k->gpus_a_node, .cores = cpu ? 64 : 0, .nlevel = 2};
	ret->device = (struct dt_device){.peak_flops = k->tflops * TERA,
					 .peak_fp8 = k->fp8 * TERA,
					 .mem_bw = k->mem_gbs * GB,
					 .mem_bytes = k->mem_gib * GIB,
					 .host_bw = k->host_gbs * GB,
					 .power_w = k->power_w,
					 .matmul_eff = k->matmul_eff,
					 .mem_eff = cpu ? 0.7 : 0.80,
					 .attention_eff = cpu ? 0.3 : 0.5,
					 .op_s = cpu ? 5e-6 : 8e-6,
					 .step_s = cpu ? 1e-3 : 5e-3,
					 .backward_ratio = 2};
	snprintf(ret->device.name, sizeof(ret->device.name), "%s", k->name);
	ret->level[0] = (struct dt_level){k->gpus_a_node, cpu ? 2e-6 : 5e-6, k->node_gbs * GB * LINK_EFF};
	ret->level[1] = (struct dt_level){1 << 30, cpu ? 30e-6 : 12e-6, k->nic_gbs * GB * LINK_EFF};
	return 0;
}

void dt_cluster_this_machine(struct dt_cluster *c)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES),
	     page = sysconf(_SC_PAGESIZE);

	c->cores = cores > 0 ? (int)cores : 1;
	c->device.mem_bytes = (double)pages * (double)page / c->cores;
}

int dt_cluster_arrange(struct dt_cluster *c, int gpus, int gpus_a_node, enum dt_topology topology, double nic,
		       double oversubscription, int leaf, struct dt_err *err)
{
	struct dt_level *l = c->level;
	double bandwidth = nic > 0 ? nic * LINK_EFF : l[c->nlevel - 1].bandwidth;

	if (gpus_a_node > 0)
		c->gpus_a_node = gpus_a_node;
	if (gpus < 1 || c->gpus_a_node < 1)
		return dt_err_set(err, -EINVAL, "a cluster has at least one GPU");
	if (gpus > c->gpus_a_node && gpus % c->gpus_a_node)
		return dt_err_set(err, -EINVAL, "%d GPUs are not whole nodes of %d", gpus, c->gpus_a_node);
	if (topology == DT_TOPO_SINGLE && gpus > c->gpus_a_node)
		return dt_err_set(err, -EINVAL, "topology 'single' has one node of %d GPUs, not %d",
				  c->gpus_a_node, gpus);
	c->gpus = gpus;
	c->topology = topology;
	l[0].size = c->gpus_a_node;
	l[1].size = 1 << 30;
	l[1].bandwidth = bandwidth;
	c->nlevel = 2;
	if (topology == DT_TOPO_TORUS) {
		/*
		 * Rings run along a dimension, with a link each way; traffic across the torus shares links.
		 */
		l[1].bandwidth = bandwidth;
	} else if (oversubscription > 1 && topology != DT_TOPO_SINGLE) {
		l[1].size = c->gpus_a_node * (leaf > 0 ? leaf : 16);
		l[2] = (struct dt_level){1 << 30, l[1].latency_s * 1.5, bandwidth / oversubscription};
		c->nlevel = 3;
	}
	return 0;
}

struct dt_device dt_cluster_rank_device(const struct dt_cluster *c, int ranks_a_node)
{
	struct dt_device d = c->device;
	double threads;

	if (c->cores == 0)
		return d;
	threads = ranks_a_node < c->cores ? (double)(c->cores / ranks_a_node) : 1;
	/* More ranks than cores share the cores. */
	if (ranks_a_node > c->cores)
		threads = (double)c->cores / ranks_a_node;
	d.peak_flops *= threads;
	d.peak_fp8 *= threads;
	d.mem_bw *= threads;
	d.mem_bytes *= (double)c->cores / ranks_a_node;
	return d;
}
/* SPDX-License-Identifier: Apache-2.0 */
