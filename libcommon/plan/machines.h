/* The machines of a plan, as dt-plan's options describe them. */
#ifndef DT_PLAN_MACHINES_H
#define DT_PLAN_MACHINES_H

#include "plan/cluster.h"

struct dt_machines {
	const char *gpu, *cluster_file, *links, *ops; /* a device's name; paths, NULL: none */
	uint64_t gpu_mem;			      /* bytes of a rank's device, 0: its usual */
	bool here, gpu_given, gpus_given, node_given;
	/* Devices in all, of a machine; machines below a switch. */
	int64_t gpus, gpus_a_node, leaf;
	int topology; /* 0: single or fat-tree, else 1 + enum dt_topology */
	double nic_gbs, oversubscription, price, margin; /* margin: percent of a device's memory kept free */
};
/* -EINVAL: what m->gpu names is not known; dt_machines_describe says the same. */
int dt_machines_check_gpu(const struct dt_machines *m, struct dt_err *err);
/* -EINVAL: dt_machines_describe would fail because options contradict each other, whatever files contain. */
int dt_machines_check(const struct dt_machines *m, struct dt_err *err);

/* m->gpus becomes the number of the file where none was given. dt_cluster_release releases ret, always. */
int dt_machines_describe(struct dt_machines *m, struct dt_cluster *ret, struct dt_err *err);

/* Bytes that a rank may hold. */
double dt_machines_room(const struct dt_machines *m, const struct dt_cluster *c);

/* --here with a model: this machine's cards, or its cores, are what is planned for. */
void dt_machines_here(struct dt_machines *m);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
