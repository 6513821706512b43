/* The time of a collective or message on a cluster's links, modelled or measured. */
#include "plan/cluster.h"

#include <math.h>
#include <stddef.h>
#include <strings.h>

/* ---- communication times ---- */

/* A ring of n ranks on one level: n - 1 messages of bytes / n, or with `twice` 2 (n - 1). */
static double ring(const struct dt_level *l, double bytes, int n, bool twice)
{
	double steps = (twice ? 2 : 1) * (double)(n - 1);

	return steps * (l->latency_s + bytes / n / l->bandwidth);
}

/* Interpolates linearly in both logarithms between measured sizes; beyond them uses the rate at the edge. */
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

/* Whether measurements apply: n ranks at this stride are all that were measured, inside a node. */
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
			/* Traffic within the level uses its links, the rest those of wider levels. */
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
