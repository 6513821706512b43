/* Reads and writes cluster files, with measurements of dt-calibrate and dt-allreduce-bench. */
#include "plan/cluster.h"

#include "base/opt.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STEP_S 2e-4 /* of dt-train's step on a CPU besides its operations */

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
	F("host_bytes_per_s", device.host_bw, 0),
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

/* Inserts in order of bytes; for the same size keeps the least time. */
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

/* Reads times of collectives over all ranks of one node. */
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

/* Written like dt-allreduce-bench's output, so that one reader suffices. */
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

/* Refuses keys that a cluster file does not have: another file, or a misspelt key, would be ignored. */
static int check_keys(const json_t *o, struct dt_err *err)
{
	static const char *const others[] = {"schema",	 "device", "gpus",  "gpus_per_node", "cores_per_node",
					     "topology", "levels", "kinds", "measured",	     "ops"};
	enum { NOTHERS = sizeof(others) / sizeof(others[0]) };
	const char *known[NOTHERS + NFIELDS + 1] = {0};

	memcpy(known, others, sizeof(others));
	for (size_t i = 0; i < NFIELDS; i++)
		known[NOTHERS + i] = fields[i].key;
	return dt_json_keys(o, known, err);
}

int dt_cluster_from_json(const json_t *o, struct dt_cluster *c, struct dt_err *err)
{
	const char *name = c->device.name, *topo = NULL;
	struct dt_cluster r = *c;
	int64_t gpus = c->gpus, node = c->gpus_a_node, cores = c->cores;
	int rc;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "a cluster is a JSON object");
	if ((rc = check_keys(o, err)) < 0)
		return rc;
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
		dt_err_hint(err, "use --gpu cpu");
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
			return dt_err_set(err, -EINVAL, "link '%.30s' has an invalid latency or bandwidth",
					  class);
		for (int k = 0; k < c->nlevel; k++) {
			if ((k == 0) != !strcmp(class, "shm"))
				continue;
			c->level[k].latency_s = latency;
			c->level[k].bandwidth = gbs * 1e9;
			used++;
		}
	}
	if (!used)
		return dt_err_set(err, -EINVAL,
				  "no measured link in 'links', where dt-allreduce-bench --json writes them");
	return 0;
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
/* SPDX-License-Identifier: Apache-2.0 */
