#include "plan/machines.h"

#include "plan/here.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Loads a JSON file and passes it to take. */
static int with_json(const char *path, int (*take)(struct dt_cluster *, const json_t *, struct dt_err *),
		     struct dt_cluster *c, struct dt_err *err)
{
	json_t *o = NULL;
	int rc = dt_json_load(path, 64 << 20, &o, err);

	if (rc == 0 && (rc = take(c, o, err)) < 0)
		dt_err_prefix(err, "'%s'", path);
	json_decref(o);
	return rc;
}

static int take_cluster(struct dt_cluster *c, const json_t *o, struct dt_err *err)
{
	return dt_cluster_from_json(o, c, err);
}

static int read_file(struct dt_machines *m, struct dt_cluster *c, struct dt_err *err)
{
	int rc = with_json(m->cluster_file, take_cluster, c, err);

	if (rc < 0)
		return rc;
	m->gpus = m->gpus_given ? m->gpus : c->gpus;
	if (c->cores && !m->node_given && m->gpus > c->gpus_a_node)
		c->gpus_a_node = (int)m->gpus;
	return 0;
}

static int devices(const struct dt_machines *m, struct dt_cluster *c, struct dt_err *err)
{
	return strchr(m->gpu, ':') ? dt_cluster_devices(m->gpu, c, err) : dt_cluster_device(m->gpu, c, err);
}

int dt_machines_check_gpu(const struct dt_machines *m, struct dt_err *err)
{
	struct dt_cluster c = {0};
	int rc = m->gpu ? devices(m, &c, err) : 0;

	dt_cluster_release(&c);
	return rc;
}

/* Ranks of a machine. */
static int ranks_here(const struct dt_cluster *c)
{
	return c->gpus < c->gpus_a_node ? c->gpus : c->gpus_a_node;
}

int dt_machines_describe(struct dt_machines *m, struct dt_cluster *c, struct dt_err *err)
{
	enum dt_topology t = m->topology ? (enum dt_topology)(m->topology - 1) : DT_TOPO_FAT_TREE;
	const bool unlike = strchr(m->gpu, ':') != NULL;
	int rc = devices(m, c, err);

	if (rc < 0)
		return rc;
	if (unlike && m->gpus_given && m->gpus != c->gpus)
		return dt_err_set(err, -EINVAL, "'%s' are %d devices, not %lld", m->gpu, c->gpus,
				  (long long)m->gpus);
	if (unlike)
		m->gpus = c->gpus;
	if (!strcmp(c->device.name,
		    "cpu")) { /* ranks are processes that share this machine's cores and memory */
		dt_cluster_this_machine(c);
		if (!m->node_given)
			c->gpus_a_node = (int)m->gpus;
	}
	if (m->cluster_file && (rc = read_file(m, c, err)) < 0)
		return rc;
	if (!m->cluster_file || m->gpus_given || m->node_given) {
		rc = dt_cluster_arrange(c, (int)m->gpus, (int)m->gpus_a_node, t, m->nic_gbs * 1e9,
					m->oversubscription, (int)m->leaf, err);
		if (rc < 0)
			return rc;
	}
	if (m->links && (rc = with_json(m->links, dt_cluster_links, c, err)) < 0)
		return rc;
	if (m->gpu_mem) /* ranks on processors: each has this much; a core's memory follows */
		c->device.mem_bytes = (double)m->gpu_mem * (c->cores ? (double)ranks_here(c) / c->cores : 1);
	c->price_a_gpu_hour = m->price > 0 ? m->price : c->price_a_gpu_hour;
	return m->ops ? with_json(m->ops, dt_cluster_set_ops, c, err) : 0;
}

int dt_machines_check(const struct dt_machines *m, struct dt_err *err)
{
	struct dt_machines without = *m;
	struct dt_cluster c = {0};
	int rc;

	if (m->cluster_file)
		return dt_machines_check_gpu(m, err);
	without.links = without.ops = NULL;
	rc = dt_machines_describe(&without, &c, err);
	if (rc == 0 && m->ops && !c.cores)
		rc = dt_err_set(err, -EINVAL, "--ops needs --gpu cpu: operations are timed on a processor");
	dt_cluster_release(&c);
	return rc;
}

double dt_machines_room(const struct dt_machines *m, const struct dt_cluster *c)
{
	const double bytes = dt_cluster_rank_device(c, ranks_here(c)).mem_bytes;

	return nearbyint(bytes * (1 - m->margin / 100)); /* a core's memory is no whole number */
}

void dt_machines_here(struct dt_machines *m)
{
	struct dt_here h;

	dt_here_look("", &h);
	m->gpu = h.ncard ? m->gpu : "cpu";
	m->gpu_given = true;
	if (!m->gpus_given)
		m->gpus = h.ncard ? h.ncard : h.cores;
	if (h.ncard && !m->gpu_mem)
		m->gpu_mem = h.card[0].room;
}
/* SPDX-License-Identifier: Apache-2.0 */
