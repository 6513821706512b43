/*
 * The machines of a job, as a cost model: devices by peak rates and efficiencies, links by class. A topology
 * is a list of levels: GPUs 0 .. size - 1 of a level communicate with its latency and bandwidth; a wider
 * group of ranks pays those of the next level.
 */
#ifndef DT_PLAN_CLUSTER_H
#define DT_PLAN_CLUSTER_H

#include "plan/optimes.h"

#define DT_LEVELS	4
#define DT_KINDS	8
#define DT_MEASURED_MAX 24

struct dt_device {
	char name[32];
	double peak_flops; /* matrices in the compute type, dense */
	double peak_fp8;   /* with 8-bit floats; 0: not supported */
	double mem_bw;	   /* bytes a second */
	double mem_bytes;
	double host_bw; /* to and from host memory, bytes/s in each direction at once; 0: none */
	double power_w; /* maximum (TDP); 0: unknown */
	/* Efficiencies that programs reach. */
	double matmul_eff, mem_eff;
	double attention_eff;  /* of peak_flops, fused attention */
	double op_s;	       /* fixed cost of an operation: launch, partly filled tiles */
	double step_s;	       /* fixed cost of a step: clipping, data, a collective's rendezvous */
	double backward_ratio; /* time of backward's two matmuls over forward's one; 2: nothing is lost */
};

enum dt_topology { DT_TOPO_SINGLE, DT_TOPO_FAT_TREE, DT_TOPO_RAIL, DT_TOPO_TORUS, DT_TOPO_DRAGONFLY };
#define DT_TOPOLOGY_CHOICES "single|fat-tree|rail|torus|dragonfly"

struct dt_level {
	int size;		     /* number of ranks within the level */
	double latency_s, bandwidth; /* bytes a second a rank sends while it receives as many */
};

enum dt_collective {
	DT_COLL_ALL_REDUCE,
	DT_COLL_ALL_GATHER,
	DT_COLL_REDUCE_SCATTER,
	DT_COLL_ALL_TO_ALL,
	DT_COLL_N
};

/* A collective as measured over `ranks` ranks of one node, sizes ascending; used only for such groups. */
struct dt_measured {
	int n;
	double bytes[DT_MEASURED_MAX], s[DT_MEASURED_MAX];
};

/* Devices of one kind in a mixed cluster. */
struct dt_kind {
	struct dt_device device;
	int gpus; /* number of them; their ranks follow those of the kinds before */
};

struct dt_cluster {
	struct dt_device
		device; /* mixed: the worst value of each field, which holds where ranks wait for all */
	struct dt_kind kind[DT_KINDS];
	int nkind; /* 0: all devices are the same */
	int gpus, gpus_a_node;
	int cores; /* > 0: ranks are processes that share so many cores of a node; device is one core */
	enum dt_topology topology;
	struct dt_level level[DT_LEVELS];
	int nlevel;
	double price_a_gpu_hour; /* 0: unknown */
	int measured_ranks;	 /* 0: collectives are computed from levels alone */
	struct dt_measured measured[DT_COLL_N];
	struct dt_op_times *ops; /* measured operation times of this machine; NULL: none */
};

/* A100, H100, H200, B200, MI300X, T4, L4 or cpu; case does not matter. -EINVAL lists them. */
int dt_cluster_device(const char *name, struct dt_cluster *ret, struct dt_err *err);
const char *dt_cluster_device_name(int i); /* NULL past the end */
/* Ranks are processes of machines like this one, and share its cores and memory. */
void dt_cluster_this_machine(struct dt_cluster *c);

/*
 * Unlike devices: "H100:8,A100:16", first the ranks of the first kind. Links are the worst of the kinds';
 * nodes have as many devices as divide all numbers. -EINVAL.
 */
int dt_cluster_devices(const char *list, struct dt_cluster *ret, struct dt_err *err);
json_t *dt_cluster_kinds_json(const struct dt_cluster *c);
int dt_cluster_take_kinds(struct dt_cluster *c, const json_t *kinds, struct dt_err *err);

/*
 * Puts gpus on nodes: levels for the topology. nic: bytes a second a GPU has into the network; 0: the
 * device's usual. oversubscription: of the level above leaf nodes together (fat tree), of links between
 * groups of leaf nodes (dragonfly).
 */
int dt_cluster_arrange(struct dt_cluster *c, int gpus, int gpus_a_node, enum dt_topology topology, double nic,
		       double oversubscription, int leaf, struct dt_err *err);

/* The device as one of ranks_a_node ranks sees it, if ranks of a node share cores and memory. */
struct dt_device dt_cluster_rank_device(const struct dt_cluster *c, int ranks_a_node);

/* dt-calibrate(1): times of operations, and how many cores they are for. -EINVAL where ranks are no
 * processes. */
int dt_cluster_set_ops(struct dt_cluster *c, const json_t *calibration, struct dt_err *err);

/*
 * dt-allreduce-bench(1) --json: its link classes replace those of the cluster, and where all its ranks were
 * on one node the times of its collectives are kept.
 */
int dt_cluster_links(struct dt_cluster *c, const json_t *bench, struct dt_err *err);

/*
 * The description as JSON and back; keys that are missing keep what c has. Operation times that are read are
 * the caller's, to be released with dt_cluster_release.
 */
json_t *dt_cluster_to_json(const struct dt_cluster *c);
void dt_cluster_release(struct dt_cluster *c);
int dt_cluster_from_json(const json_t *o, struct dt_cluster *c, struct dt_err *err);

/*
 * Seconds of a collective over n ranks that lie stride apart. bytes: of the whole vector (all-reduce), of the
 * gathered one, of what a rank sends in all (all-to-all). Rings, one a level: inside the smallest level
 * first, so that wider levels carry only their share.
 */
double dt_collective_time(const struct dt_cluster *c, enum dt_collective kind, double bytes, int n,
			  int stride);

/* Seconds of a message between two ranks whose numbers differ by stride. */
double dt_message_time(const struct dt_cluster *c, double bytes, int stride);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
