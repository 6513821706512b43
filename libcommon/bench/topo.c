/* Parses and prints descriptions of networks. */
#include "bench/simulate.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

size_t dt_bench_topo_chunk(const struct dt_bench_topo *t, size_t bytes)
{
	double depth = 2 * ceil(log2(t->ranks > 1 ? t->ranks : 2)), half = (double)bytes / 2;
	double chunks = t->net_latency_s > 0 ? sqrt(depth * half * t->net_s / t->net_latency_s) : 256;
	size_t k = chunks < 1 ? 1 : chunks > 256 ? 256 : (size_t)chunks;

	return (bytes / 2 + k) / k;
}

static int parse_pair(const char *word, const char *value, struct dt_bench_topo *t, struct dt_err *err)
{
	static const double us = 1e-6, gbs = 1e-9;
	struct {
		const char *name;
		int *i;
		double *d, unit; /* unit gbs: a rate, stored as its inverse */
	} known[] = {{"ranks", &t->ranks, NULL, 0},
		     {"node", &t->node, NULL, 0},
		     {"leaf", &t->leaf, NULL, 0},
		     {"group", &t->group, NULL, 0},
		     {"eager", &t->eager, NULL, 0},
		     {"taper", NULL, &t->taper, 1},
		     {"shm_us", NULL, &t->shm_latency_s, us},
		     {"shm_gbs", NULL, &t->shm_s, gbs},
		     {"net_us", NULL, &t->net_latency_s, us},
		     {"net_gbs", NULL, &t->net_s, gbs},
		     {"hop_us", NULL, &t->hop_s, us},
		     {"reduce_gbs", NULL, &t->reduce_s, gbs}};
	int64_t v;
	double d;

	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
		int rc;

		if (strcmp(word, known[k].name))
			continue;
		if (known[k].i) {
			bool flag = known[k].i == &t->eager;

			rc = dt_parse_int(value, !flag, flag ? 1 : DT_BENCH_TOPO_RANKS_MAX, &v, err);
			*known[k].i = rc ? 0 : (int)v;
		} else {
			bool rate = known[k].unit == gbs;

			rc = rate ? dt_parse_rate(value, 1e-6, 1e9, &d, err)
				  : dt_parse_real(value, 0, 1e9, &d, err);
			*known[k].d = rc ? 0 : rate ? gbs / d : d * known[k].unit;
		}
		if (rc)
			dt_err_prefix(err, "'%s'", word);
		return rc;
	}
	return dt_err_set(err, -EINVAL, "a topology has no setting '%s'", word);
}

static const char *const kinds[] = {"flat", "fat-tree", "rail", "torus", "dragonfly"};

const char *dt_bench_topo_format(const struct dt_bench_topo *t, char *buf, size_t size)
{
	snprintf(buf, size,
		 "%s,ranks=%d,node=%d,leaf=%d,group=%d,taper=%.4g,shm_us=%.4g,shm_gbs=%.4g,net_us=%.4g,net_"
		 "gbs=%.4g,"
		 "hop_us=%.4g,reduce_gbs=%.4g,eager=%d",
		 kinds[t->kind], t->ranks, t->node, t->leaf, t->group, t->taper, t->shm_latency_s * 1e6,
		 t->shm_s > 0 ? 1e-9 / t->shm_s : 1e9, t->net_latency_s * 1e6,
		 t->net_s > 0 ? 1e-9 / t->net_s : 1e9, t->hop_s * 1e6,
		 t->reduce_s > 0 ? 1e-9 / t->reduce_s : 1e9, t->eager);
	return buf;
}

int dt_bench_topo_parse(const char *s, struct dt_bench_topo *ret, struct dt_err *err)
{
	struct dt_bench_topo t = {.ranks = 1024,
				  .node = 8,
				  .group = 8,
				  .taper = 1,
				  .shm_latency_s = 1e-6,
				  .shm_s = 1 / 200e9,
				  .net_latency_s = 5e-6,
				  .net_s = 1 / 25e9,
				  .hop_s = 3e-7,
				  .reduce_s = 1 / 500e9};
	char copy[512], *save = NULL, *word;
	int k = 0, rc = 0;

	if (strlen(s) >= sizeof(copy))
		return dt_err_set(err, -EINVAL, "a topology is at most %zu characters", sizeof(copy) - 1);
	strcpy(copy, s);
	word = strtok_r(copy, ",:", &save);
	while (word && k < 5 && strcmp(word, kinds[k]))
		k++;
	if (!word || k == 5)
		return dt_err_set(err, -EINVAL, "unknown topology '%s' (" DT_BENCH_TOPO_CHOICES ")",
				  word ? word : "");
	t.kind = (enum dt_bench_topo_kind)k;
	while (!rc && (word = strtok_r(NULL, ",:", &save))) {
		char *eq = strchr(word, '=');

		if (eq)
			*eq = '\0';
		rc = parse_pair(eq ? word : "ranks", eq ? eq + 1 : word, &t, err);
	}
	if (rc)
		return rc;
	if (!t.leaf)
		t.leaf = t.kind == DT_BENCH_TOPO_DRAGONFLY ? 4 : 16;
	if (t.kind != DT_BENCH_TOPO_FLAT && t.ranks % t.node)
		return dt_err_set(err, -EINVAL, "%d ranks are not whole nodes of %d", t.ranks, t.node);
	*ret = t;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
