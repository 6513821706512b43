#include "bench/simulate_priv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

#define EVENTS_MAX 1024 /* maximum ranks of a discrete-event simulation */

/* Links: [0, 2p) are the ports of ranks inside their node, then come the network links. */
static int first_net(const struct dt_bench_sim *s)
{
	return 2 * s->t->ranks;
}

static void push(struct dt_bench_path *p, int link)
{
	if (p->n < DT_BENCH_PATH_LINKS)
		p->link[p->n++] = link;
}

static void node_ports(const struct dt_bench_sim *s, struct dt_bench_path *p, int a, int b)
{
	push(p, first_net(s) + 2 * a);
	push(p, first_net(s) + 2 * b + 1);
}

static void torus_path(const struct dt_bench_sim *s, struct dt_bench_path *p, int a, int b)
{
	int base = first_net(s) + 2 * s->nodes,
	    at[3] = {a % s->dim[0], a / s->dim[0] % s->dim[1], a / s->dim[0] / s->dim[1]};
	int to[3] = {b % s->dim[0], b / s->dim[0] % s->dim[1], b / s->dim[0] / s->dim[1]};

	for (int d = 0; d < 3; d++) {
		int n = s->dim[d], ahead = (to[d] - at[d] + n) % n, up = ahead <= n - ahead;

		for (int k = up ? ahead : n - ahead; k > 0; k--) {
			int node = at[0] + s->dim[0] * (at[1] + s->dim[1] * at[2]);

			push(p, base + 6 * node + 2 * d + up);
			at[d] = (at[d] + (up ? 1 : n - 1)) % n;
			p->hops++;
		}
	}
}

static void dragonfly_path(const struct dt_bench_sim *s, struct dt_bench_path *p, int a, int b)
{
	int w = s->group, ra = a / s->t->leaf, rb = b / s->t->leaf, ga = ra / w, gb = rb / w;
	int inner = first_net(s) + 2 * s->nodes, global = inner + s->groups * w * w;

	p->hops = 2;
	if (ga == gb) {
		if (ra != rb) {
			push(p, inner + ga * w * w + ra % w * w + rb % w);
			p->hops++;
		}
		return;
	}
	/* first to the router of the group that has the link to the other group */
	if (ra % w != gb % w) {
		push(p, inner + ga * w * w + ra % w * w + gb % w);
		p->hops++;
	}
	push(p, global + ga * s->groups + gb);
	p->hops++;
	if (rb % w != ga % w) {
		push(p, inner + gb * w * w + ga % w * w + rb % w);
		p->hops++;
	}
}

void dt_bench_sim_route(const struct dt_bench_sim *s, int i, int j, struct dt_bench_path *p)
{
	const struct dt_bench_topo *t = s->t;
	int a = i / t->node, b = j / t->node;

	p->n = p->hops = 0;
	p->local = t->kind != DT_BENCH_TOPO_FLAT && a == b;
	if (t->kind == DT_BENCH_TOPO_FLAT || p->local) {
		push(p, 2 * i);
		push(p, 2 * j + 1);
		return;
	}
	switch (t->kind) {
	case DT_BENCH_TOPO_RAIL:
		if (i % t->node != j % t->node) /* first inside the node to the right rail */
			push(p, 2 * i);
		push(p, first_net(s) + 2 * (a * t->node + j % t->node));
		push(p, first_net(s) + 2 * j + 1);
		p->hops = 2;
		return;
	case DT_BENCH_TOPO_FAT_TREE:
		node_ports(s, p, a, b);
		p->hops = 2;
		if (a / t->leaf != b / t->leaf) {
			push(p, first_net(s) + 2 * s->nodes + 2 * (a / t->leaf));
			push(p, first_net(s) + 2 * s->nodes + 2 * (b / t->leaf) + 1);
			p->hops = 4;
		}
		return;
	case DT_BENCH_TOPO_TORUS:
		node_ports(s, p, a, b);
		torus_path(s, p, a, b);
		return;
	default:
		node_ports(s, p, a, b);
		dragonfly_path(s, p, a, b);
	}
}

static void near_cube(int n, int dim[3])
{
	int best = n;

	dim[0] = n;
	dim[1] = dim[2] = 1;
	for (int x = 1; x * x * x <= n; x++)
		for (int y = x; n % x == 0 && y * y <= n / x; y++)
			if (n / x % y == 0 && n / x / y <= best) {
				best = n / x / y;
				dim[2] = x;
				dim[1] = y;
				dim[0] = best;
			}
}

static int sim_init(struct dt_bench_sim *s, const struct dt_bench_topo *t, struct dt_err *err)
{
	size_t p = (size_t)t->ranks, net;

	*s = (struct dt_bench_sim){.t = t};
	s->nodes = (t->ranks + t->node - 1) / t->node;
	s->leaves = (s->nodes + t->leaf - 1) / t->leaf;
	s->group = t->group < s->leaves ? t->group : s->leaves;
	s->groups = (s->leaves + s->group - 1) / s->group;
	memcpy(s->dim, t->dim, sizeof(s->dim));
	if (!s->dim[0])
		near_cube(s->nodes, s->dim);
	net = 2 * (t->kind == DT_BENCH_TOPO_RAIL ? p : (size_t)s->nodes);
	if (t->kind == DT_BENCH_TOPO_FAT_TREE)
		net += 2 * (size_t)s->leaves;
	if (t->kind == DT_BENCH_TOPO_TORUS)
		net += 6 * (size_t)s->nodes;
	if (t->kind == DT_BENCH_TOPO_DRAGONFLY)
		net += (size_t)s->groups * ((size_t)s->group * (size_t)s->group + (size_t)s->groups);
	s->nlink = 2 * p + net;
	s->load = calloc(s->nlink, sizeof(double));
	s->cost = calloc(s->nlink, sizeof(double));
	s->touched = calloc(s->nlink, sizeof(int));
	s->clock = calloc(p, sizeof(double));
	s->next = calloc(p, sizeof(double));
	if (!s->load || !s->cost || !s->touched || !s->clock || !s->next)
		return dt_err_sys(err, -ENOMEM, "%d ranks", t->ranks);
	for (size_t i = 0; i < s->nlink; i++)
		s->cost[i] = i < 2 * p && t->kind != DT_BENCH_TOPO_FLAT ? t->shm_s : t->net_s;
	for (int i = 0; t->kind == DT_BENCH_TOPO_FAT_TREE && i < 2 * s->leaves; i++)
		s->cost[2 * p + 2 * (size_t)s->nodes + (size_t)i] = t->net_s * t->taper / t->leaf;
	return 0;
}

static void sim_release(struct dt_bench_sim *s)
{
	free(s->load);
	free(s->cost);
	free(s->touched);
	free(s->clock);
	free(s->next);
	free(s->m.v);
}

static void add_load(struct dt_bench_sim *s, const struct dt_bench_path *p, double bytes)
{
	for (int i = 0; i < p->n; i++) {
		if (s->load[p->link[i]] == 0)
			s->touched[s->ntouched++] = p->link[i];
		s->load[p->link[i]] += bytes;
	}
}

/* Time of one message, given the loads of all links in the round. */
static double flight(const struct dt_bench_sim *s, const struct dt_bench_path *p)
{
	double most = 0;

	for (int i = 0; i < p->n; i++)
		most = fmax(most, s->load[p->link[i]] * s->cost[p->link[i]]);
	return (p->local ? s->t->shm_latency_s : s->t->net_latency_s) + p->hops * s->t->hop_s + most;
}

/* Simulates one round; returns the longest time a rank spent in it. */
static double sim_round(struct dt_bench_sim *s, const struct dt_comm_steps *st, int round, double e)
{
	int who[2], n = dt_comm_steps_pair(st, round, who) ? 2 : st->p;
	double longest = 0;
	struct dt_bench_path p;

	s->ntouched = 0;
	for (int pass = 0; pass < 2; pass++)
		for (int k = 0; k < n; k++) {
			int r = n == 2 && st->p != 2 ? who[k] : k;

			s->m.n = 0;
			dt_comm_steps_round(st, r, round, &s->m);
			if (pass == 0)
				s->next[r] = fmax(s->next[r], s->clock[r]);
			for (int i = 0; i < s->m.n; i++) {
				const struct dt_comm_move *m = &s->m.v[i];
				double at, reduce = 0, bytes = (double)m->n * e;

				if (pass == 0 && m->kind == DT_COMM_MOVE_SEND && m->n) {
					dt_bench_sim_route(s, r, m->peer, &p);
					add_load(s, &p, bytes);
				}
				if (pass == 0 || m->kind == DT_COMM_MOVE_SEND || !m->n)
					continue;
				dt_bench_sim_route(s, m->peer, r, &p);
				at = fmax(s->clock[m->peer], s->clock[r]) + flight(s, &p);
				/* the sender is done when its last byte is sent */
				s->next[m->peer] = fmax(s->next[m->peer], at);
				if (m->kind == DT_COMM_MOVE_REDUCE)
					reduce = bytes * s->t->reduce_s;
				s->next[r] = fmax(s->next[r], at) + reduce;
			}
		}
	for (int k = 0; k < n; k++) {
		int r = n == 2 && st->p != 2 ? who[k] : k;

		longest = fmax(longest, s->next[r] - s->clock[r]);
		s->clock[r] = s->next[r];
	}
	for (int i = 0; i < s->ntouched; i++)
		s->load[s->touched[i]] = 0;
	return longest;
}

int dt_bench_simulate(const struct dt_comm_steps *st, const struct dt_bench_topo *t, size_t element_bytes,
		      double *ret_s, struct dt_err *err)
{
	struct dt_bench_sim s;
	double most = 0;
	int rc;

	if (st->p != t->ranks)
		return dt_err_set(err, -EINVAL, "steps of %d ranks on a network of %d", st->p, t->ranks);
	rc = sim_init(&s, t, err);
	if (!rc && t->eager && t->ranks <= EVENTS_MAX) {
		rc = dt_bench_sim_events(&s, st, element_bytes, ret_s, err);
		sim_release(&s);
		return rc;
	}
	for (int round = 0; round < st->rounds && !rc;) {
		int alike = dt_comm_steps_alike(st, round);
		double each = sim_round(&s, st, round, (double)element_bytes);

		if (s.m.failed)
			rc = dt_err_sys(err, -ENOMEM, "%d ranks", st->p);
		if (alike > 2) { /* extrapolate identical rounds: the slowest message sets the pace */
			for (int r = 0; r < st->p; r++)
				most = fmax(most, s.clock[r]);
			for (int r = 0; r < st->p; r++)
				s.clock[r] = s.next[r] = most + each * (alike - 1);
			round += alike;
		} else {
			round++;
		}
	}
	for (int r = 0; r < st->p && !rc; r++)
		most = fmax(most, s.clock[r]);
	sim_release(&s);
	if (!rc)
		*ret_s = most;
	return rc;
}

double dt_bench_simulate_closed(const struct dt_comm_steps *s, const struct dt_bench_topo *t,
				size_t element_bytes)
{
	double p = s->p, n = (double)s->n * (double)element_bytes, a = t->net_latency_s, b = t->net_s,
	       c = t->reduce_s, lg = ceil(log2(p)), share = (p - 1) / p * n;
	bool reduce = s->kind == DT_COMM_ALL_REDUCE;

	if (s->p == 1)
		return 0;
	switch (s->alg) {
	case DT_ALG_NAIVE:
		return reduce ? (p - 1) * (2 * a + 2 * n * b + n * c) : -1;
	case DT_ALG_PS:
		return reduce ? 2 * a + 2 * (p - 1) * n * b + (p - 1) * n * c : -1;
	case DT_ALG_RING:
		return reduce				   ? 2 * (p - 1) * a + 2 * share * b + share * c
		       : s->kind == DT_COMM_ALL_GATHER	   ? (p - 1) * a + share * b
		       : s->kind == DT_COMM_REDUCE_SCATTER ? (p - 1) * a + share * (b + c)
							   : -1;
	case DT_ALG_DOUBLING:
		return reduce && lg == log2(p)	       ? lg * (a + n * (b + c))
		       : s->kind == DT_COMM_ALL_GATHER ? lg * a + share * b
						       : -1;
	case DT_ALG_RABENSEIFNER:
		return reduce ? 2 * lg * a + 2 * share * b + share * c : lg * a + share * (b + c);
	default:
		return -1;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
