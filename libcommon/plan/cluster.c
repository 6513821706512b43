/*
 * Devices by their makers' data sheets (dense matrix rate in 16 bits and in 8-bit floats, memory), what
 * programs reach of them, and what collectives cost on their links. The reached shares were chosen once on
 * the A100, for the layer and step times of Korthikanti et al. 2022 (tables 4 and 5), and are taken over to
 * devices without such data.
 */
#include "plan/cluster.h"

#include "base/opt.h"
#include "base/suggest.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define GB   1e9
#define GIB  1073741824.0
#define TERA 1e12

#define STEP_S	 2e-4 /* of dt-train's step on a processor, beside its operations */
#define LINK_EFF 0.80 /* of a link's rate, rings of NCCL on NVLink: 235 of 300 GB/s on A100 */

static const struct known {
	const char *name;
	double tflops, fp8, mem_gbs, mem_gib, node_gbs, nic_gbs, matmul_eff;
	int gpus_a_node, power_w; /* by the makers' data sheets; of a processor's core unknown */
} known[] = {
	{"A100", 312, 0, 2039, 80, 300, 25, 0.71, 8, 400},
	{"A100-40GB", 312, 0, 1555, 40, 300, 25, 0.71, 8, 400},
	{"H100", 989, 1979, 3350, 80, 450, 50, 0.60, 8, 700},
	{"H200", 989, 1979, 4800, 131, 450, 50, 0.60, 8, 700},
	{"B200", 2250, 4500, 8000, 167, 900, 50, 0.60, 8, 1000},
	{"MI300X", 1307, 2615, 5300, 179, 448, 50, 0.50, 8, 750},
	{"T4", 65, 0, 320, 15, 12, 6, 0.60, 4, 70},
	{"L4", 121, 242, 300, 22.5, 24, 12, 0.60, 4, 72},
	/* One core with AVX-512 and bf16 dot products, as measured on one; --calibrate measures others. */
	{"cpu", 0.43, 0, 20, 4, 8, 1, 0.90, 64, 0},
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
		dt_err_hint(err, "known are A100, A100-40GB, H100, H200, B200, MI300X, T4, L4 and cpu; a "
				 "file describes others");
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
		/* Rings lie along a dimension and have a link each way; what crosses the torus shares links.
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
	/* More ranks than cores take turns. */
	if (ranks_a_node > c->cores)
		threads = (double)c->cores / ranks_a_node;
	d.peak_flops *= threads;
	d.peak_fp8 *= threads;
	d.mem_bw *= threads;
	d.mem_bytes *= (double)c->cores / ranks_a_node;
	return d;
}

/* ---- descriptions ---- */

static const struct field {
	const char *key;
	size_t off;
	double min;
} fields[] = {
#define F(k, f, min)                                                                                         \
	{                                                                                                    \
		k, offsetof(struct dt_cluster, f), min                                                       \
	}
	F("peak_flops", device.peak_flops, 1),
	F("peak_fp8_flops", device.peak_fp8, 0),
	F("memory_bytes_per_s", device.mem_bw, 1),
	F("memory_bytes", device.mem_bytes, 1),
	F("power_w", device.power_w, 0),
	F("matmul_efficiency", device.matmul_eff, 1e-6),
	F("memory_efficiency", device.mem_eff, 1e-6),
	F("attention_efficiency", device.attention_eff, 1e-6),
	F("op_s", device.op_s, 0),
	F("step_s", device.step_s, 0),
	F("backward_ratio", device.backward_ratio, 0.1),
	F("price_per_gpu_hour", price_a_gpu_hour, 0),
#undef F
};
#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

static const char *const collective_names[DT_COLL_N] = {"all-reduce", "all-gather", "reduce-scatter",
							"all-to-all"};

/* Keeps the table sorted; of several times of a size the least. */
static void measured_add(struct dt_measured *m, double bytes, double s)
{
	int i = 0;

	while (i < m->n && m->bytes[i] < bytes)
		i++;
	if (i < m->n && m->bytes[i] <= bytes) {
		m->s[i] = fmin(m->s[i], s);
		return;
	}
	if (m->n == DT_MEASURED_MAX)
		return;
	memmove(&m->bytes[i + 1], &m->bytes[i], (size_t)(m->n - i) * sizeof(double));
	memmove(&m->s[i + 1], &m->s[i], (size_t)(m->n - i) * sizeof(double));
	m->bytes[i] = bytes;
	m->s[i] = s;
	m->n++;
}

/* Times of collectives among all ranks of one node. */
static int read_measured(struct dt_cluster *c, const json_t *bench, struct dt_err *err)
{
	int64_t ranks = 0, nodes = 0;
	const json_t *o;
	size_t i;
	int rc;

	if ((rc = dt_json_int(bench, "ranks", false, 1, 1 << 20, &ranks, err)) < 0 ||
	    (rc = dt_json_int(bench, "nodes", false, 1, 1 << 20, &nodes, err)) < 0)
		return rc;
	if (nodes != 1 || ranks < 2)
		return 0;
	memset(c->measured, 0, sizeof(c->measured));
	c->measured_ranks = (int)ranks;
	json_array_foreach(json_object_get(bench, "results"), i, o)
	{
		const char *name = NULL;
		double bytes = 0, s = 0;
		int kind = 0;

		if ((rc = dt_json_str(o, "collective", true, &name, err)) < 0 ||
		    (rc = dt_json_real(o, "size_bytes", true, &bytes, err)) < 0 ||
		    (rc = dt_json_real(o, "time_s", true, &s, err)) < 0)
			return rc;
		while (kind < DT_COLL_N && strcmp(name, collective_names[kind]))
			kind++;
		if (kind < DT_COLL_N && bytes > 0 && s > 0 && isfinite(bytes) && isfinite(s))
			measured_add(&c->measured[kind], bytes, s);
	}
	return 0;
}

/* As dt-allreduce-bench writes them, so that one reader does. */
static json_t *measured_to_json(const struct dt_cluster *c)
{
	json_t *results = json_array();

	for (int k = 0; k < DT_COLL_N; k++)
		for (int i = 0; i < c->measured[k].n; i++)
			json_array_append_new(results,
					      json_pack("{s:s, s:f, s:f}", "collective", collective_names[k],
							"size_bytes", c->measured[k].bytes[i], "time_s",
							c->measured[k].s[i]));
	return json_pack("{s:i, s:i, s:o}", "ranks", c->measured_ranks, "nodes", 1, "results", results);
}

json_t *dt_cluster_to_json(const struct dt_cluster *c)
{
	json_t *o = json_pack("{s:i, s:s, s:i, s:i, s:i}", "schema", 1, "device", c->device.name, "gpus",
			      c->gpus, "gpus_per_node", c->gpus_a_node, "cores_per_node", c->cores);
	json_t *levels = json_array();
	char name[16];

	for (size_t i = 0; i < NFIELDS; i++)
		json_object_set_new(o, fields[i].key,
				    json_real(*(const double *)((const char *)c + fields[i].off)));
	json_object_set_new(
		o, "topology",
		json_string(dt_opt_choice_name(DT_TOPOLOGY_CHOICES, (int)c->topology, name, sizeof(name))));
	for (int i = 0; i < c->nlevel; i++)
		json_array_append_new(levels, json_pack("{s:i, s:f, s:f}", "ranks", c->level[i].size,
							"latency_s", c->level[i].latency_s,
							"bandwidth_bytes_per_s", c->level[i].bandwidth));
	json_object_set_new(o, "levels", levels);
	if (c->nkind)
		json_object_set_new(o, "kinds", dt_cluster_kinds_json(c));
	if (c->measured_ranks)
		json_object_set_new(o, "measured", measured_to_json(c));
	if (c->ops)
		json_object_set_new(o, "ops", dt_op_times_to_json(c->ops));
	return o;
}

static int read_levels(const json_t *a, struct dt_cluster *c, struct dt_err *err)
{
	size_t n = json_array_size(a);
	int64_t size = 0, before = 0;
	int rc = 0;

	if (n < 1 || n > DT_LEVELS)
		return dt_err_set(err, -EINVAL, "'levels' is a list of 1 to %d", DT_LEVELS);
	for (size_t i = 0; i < n && rc >= 0; i++) {
		const json_t *o = json_array_get(a, i);
		struct dt_level *l = &c->level[i];

		if ((rc = dt_json_int(o, "ranks", true, before + 1, 1 << 30, &size, err)) < 0 ||
		    (rc = dt_json_real(o, "latency_s", true, &l->latency_s, err)) < 0 ||
		    (rc = dt_json_real(o, "bandwidth_bytes_per_s", true, &l->bandwidth, err)) < 0)
			return rc;
		if (!(l->latency_s >= 0) || !(l->bandwidth > 0))
			return dt_err_set(err, -EINVAL, "a level's latency or bandwidth is out of range");
		before = size;
		l->size = (int)size;
	}
	c->nlevel = (int)n;
	c->level[n - 1].size = 1 << 30;
	return 0;
}

int dt_cluster_from_json(const json_t *o, struct dt_cluster *c, struct dt_err *err)
{
	const char *name = c->device.name, *topo = NULL;
	struct dt_cluster r = *c;
	int64_t gpus = c->gpus, node = c->gpus_a_node, cores = c->cores;
	int rc;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "a cluster is a JSON object");
	if ((rc = dt_json_str(o, "device", false, &name, err)) < 0)
		return rc;
	for (int i = 0; dt_cluster_device_name(i) && rc > 0; i++)
		if (!strcasecmp(dt_cluster_device_name(i), name))
			dt_cluster_device(name, &r, NULL);
	if (name != r.device.name)
		snprintf(r.device.name, sizeof(r.device.name), "%.31s", name);
	if (json_object_get(o, "kinds") &&
	    (rc = dt_cluster_take_kinds(&r, json_object_get(o, "kinds"), err)) < 0)
		return rc;
	gpus = r.nkind ? r.gpus : gpus;
	for (size_t i = 0; i < NFIELDS; i++) {
		double *v = (double *)((char *)&r + fields[i].off);

		rc = dt_json_real(o, fields[i].key, false, v, err);
		if (rc < 0)
			return rc;
		if (!(*v >= fields[i].min) || !isfinite(*v))
			return dt_err_set(err, -EINVAL, "'%s' is out of range", fields[i].key);
	}
	if ((rc = dt_json_int(o, "gpus", false, 1, 1 << 20, &gpus, err)) < 0 ||
	    (rc = dt_json_int(o, "gpus_per_node", false, 1, 1 << 20, &node, err)) < 0 ||
	    (rc = dt_json_int(o, "cores_per_node", false, 0, 1 << 20, &cores, err)) < 0 ||
	    (rc = dt_json_str(o, "topology", false, &topo, err)) < 0)
		return rc;
	if (topo && (rc = dt_opt_choice_index(DT_TOPOLOGY_CHOICES, topo)) < 0)
		return dt_err_set(err, -EINVAL, "topology '%.30s' is not one of %s", topo,
				  DT_TOPOLOGY_CHOICES);
	r.topology = topo ? (enum dt_topology)rc : r.topology;
	if (r.nkind && gpus != r.gpus)
		return dt_err_set(err, -EINVAL, "'kinds' are %d devices, 'gpus' is %lld", r.gpus,
				  (long long)gpus);
	r.gpus = (int)gpus;
	r.gpus_a_node = (int)node;
	r.cores = (int)cores;
	if (json_object_get(o, "levels") && (rc = read_levels(json_object_get(o, "levels"), &r, err)) < 0)
		return rc;
	if (json_object_get(o, "measured") &&
	    (rc = read_measured(&r, json_object_get(o, "measured"), err)) < 0)
		return rc;
	if (json_object_get(o, "ops") && (rc = dt_cluster_set_ops(&r, json_object_get(o, "ops"), err)) < 0)
		return rc;
	*c = r;
	return 0;
}

int dt_cluster_set_ops(struct dt_cluster *c, const json_t *calibration, struct dt_err *err)
{
	struct dt_op_times *t;
	int rc;

	if (!c->cores) {
		dt_err_set(err, -EINVAL, "operations were timed on a processor, but ranks run on '%s'",
			   c->device.name);
		dt_err_hint(err, "--gpu cpu makes ranks processes of a machine");
		return -EINVAL;
	}
	t = calloc(1, sizeof(*t));
	rc = t ? dt_op_times_from_json(calibration, t, err) : dt_err_sys(err, -ENOMEM, "operation times");
	if (rc < 0) {
		free(t);
		return rc;
	}
	dt_cluster_release(c);
	c->ops = t;
	c->cores = t->cores;
	c->device.step_s = STEP_S;
	return 0;
}

void dt_cluster_release(struct dt_cluster *c)
{
	if (c->ops)
		dt_op_times_release(c->ops);
	free(c->ops);
	c->ops = NULL;
}

int dt_cluster_links(struct dt_cluster *c, const json_t *bench, struct dt_err *err)
{
	const json_t *links = json_object_get(bench, "links"), *o;
	int used = 0, rc;
	size_t i;

	json_array_foreach(links, i, o)
	{
		const char *class = NULL;
		double latency = 0, gbs = 0;

		if ((rc = dt_json_str(o, "class", true, &class, err)) < 0 ||
		    (rc = dt_json_real(o, "latency_s", true, &latency, err)) < 0 ||
		    (rc = dt_json_real(o, "bandwidth_gbs", true, &gbs, err)) < 0)
			return rc;
		if (!(latency >= 0) || !(gbs > 0) || !isfinite(latency) || !isfinite(gbs))
			return dt_err_set(err, -EINVAL, "link '%.30s' has no sensible latency and bandwidth",
					  class);
		for (int k = 0; k < c->nlevel; k++) {
			if ((k == 0) != !strcmp(class, "shm"))
				continue;
			c->level[k].latency_s = latency;
			c->level[k].bandwidth = gbs * GB;
			used++;
		}
	}
	if (!used)
		return dt_err_set(err, -EINVAL,
				  "no measured link in it: 'links' of dt-allreduce-bench --json is wanted");
	return 0;
}

/* ---- what moving bytes costs ---- */

/* A ring of n on one level: steps messages of a part each. */
static double ring(const struct dt_level *l, double bytes, int n, bool twice)
{
	double steps = (twice ? 2 : 1) * (double)(n - 1);

	return steps * (l->latency_s + bytes / n / l->bandwidth);
}

/* Between measured sizes straight in both logarithms, beyond them at the rate of the edge. */
static double measured_time(const struct dt_measured *m, double bytes)
{
	double f;
	int i = 0;

	if (bytes <= m->bytes[0])
		return m->s[0];
	while (i < m->n - 2 && bytes > m->bytes[i + 1])
		i++;
	if (m->n == 1 || bytes >= m->bytes[m->n - 1])
		return m->s[m->n - 1] * bytes / m->bytes[m->n - 1];
	f = log(bytes / m->bytes[i]) / log(m->bytes[i + 1] / m->bytes[i]);
	return exp((1 - f) * log(m->s[i]) + f * log(m->s[i + 1]));
}

/* Whether n ranks, stride apart, are all of those that were measured, or a part of them. */
static bool as_measured(const struct dt_cluster *c, enum dt_collective kind, double bytes, int n, int stride)
{
	return c->measured[kind].n > 0 && n == c->measured_ranks && stride * n <= c->gpus_a_node && bytes > 0;
}

double dt_collective_time(const struct dt_cluster *c, enum dt_collective kind, double bytes, int n,
			  int stride)
{
	double t = 0;
	int left = n, reach = stride;

	if (as_measured(c, kind, bytes, n, stride))
		return measured_time(&c->measured[kind], bytes);
	for (int i = 0; i < c->nlevel && left > 1; i++) {
		const struct dt_level *l = &c->level[i];
		int here = l->size / reach;

		here = here < left ? here : left;
		if (i == c->nlevel - 1)
			here = left;
		while (here > 1 && left % here)
			here--;
		if (here <= 1)
			continue;
		if (kind == DT_COLL_ALL_TO_ALL) {
			/* What stays within the level goes over it, the rest over wider ones. */
			double out = bytes * (double)(n - left / here) / n;
			bool torus = c->topology == DT_TOPO_TORUS && i > 0;

			t += (here - 1) * l->latency_s + out * (double)(here - 1) / here / l->bandwidth *
								 (torus ? cbrt(here) / 4 + 1 : 1);
		} else {
			t += ring(l, bytes, here, kind == DT_COLL_ALL_REDUCE);
			bytes /= here;
		}
		left /= here;
		reach *= here;
	}
	return t;
}

double dt_message_time(const struct dt_cluster *c, double bytes, int stride)
{
	int i = 0;

	while (i < c->nlevel - 1 && stride >= c->level[i].size)
		i++;
	return c->level[i].latency_s + bytes / c->level[i].bandwidth;
}
/* SPDX-License-Identifier: Apache-2.0 */
