/*
 * Simulates step lists on a described network: the time of a collective without its ranks.
 *
 * A message of m bytes starts at time t, when both ranks are in its round, and arrives at t + latency + hops
 * * hop + m / share. share: the capacity of the most loaded link of its route divided among all bytes that
 * cross it in the round. A rank starts a round when its messages of the previous one have completed.
 * Reducing takes reduce_s per byte. On a flat network this gives the closed forms of the literature:
 * dt_bench_simulate_closed.
 *
 * Real libraries send small messages without waiting for the receiver, so rounds of different ranks overlap:
 * with eager the lists run as a discrete-event simulation (simulate_events.c), in which each link transmits
 * one message at a time.
 */
#ifndef DT_BENCH_SIMULATE_H
#define DT_BENCH_SIMULATE_H

#include "comm/steps.h"

enum dt_bench_topo_kind {
	DT_BENCH_TOPO_FLAT,	 /* one switch, a port per rank */
	DT_BENCH_TOPO_FAT_TREE,	 /* nodes on leaf switches; uplinks oversubscribed by taper */
	DT_BENCH_TOPO_RAIL,	 /* rank i of every node has a port on switch i */
	DT_BENCH_TOPO_TORUS,	 /* nodes in three dimensions; messages are routed along x, y, z */
	DT_BENCH_TOPO_DRAGONFLY, /* groups of routers, one link between any two groups */
};
#define DT_BENCH_TOPO_CHOICES "flat|fat-tree|rail|torus|dragonfly"

struct dt_bench_topo {
	enum dt_bench_topo_kind kind;
	int ranks, node;	     /* node: ranks per node */
	int leaf;		     /* nodes per leaf switch or router */
	int group;		     /* routers per dragonfly group */
	int dim[3];		     /* dimensions of a torus, in nodes; 0: near a cube */
	double taper;		     /* oversubscription: bandwidth into a leaf over bandwidth out of it */
	double shm_latency_s, shm_s; /* inside a node: per message, per byte */
	double net_latency_s, net_s; /* per network port: per message, per byte */
	double hop_s, reduce_s;
	int eager; /* 1: messages between nodes do not wait for the receiver; up to 1024 ranks */
};

#define DT_BENCH_TOPO_RANKS_MAX 16384

/*
 * Parses "fat-tree:1024" or "fat-tree,ranks=1024,node=8,leaf=16,taper=2,shm_us=1,shm_gbs=200,net_us=5,
 * net_gbs=25,hop_us=0.3,reduce_gbs=500,eager=1". These are the defaults, except taper 1, eager 0, and leaf 4
 * for a dragonfly. -EINVAL names the wrong word.
 */
int dt_bench_topo_parse(const char *s, struct dt_bench_topo *ret, struct dt_err *err);

/* In the syntax of dt_bench_topo_parse. Returns buf. */
const char *dt_bench_topo_format(const struct dt_bench_topo *t, char *buf, size_t size);

/* Seconds of one operation; every rank starts at once. */
int dt_bench_simulate(const struct dt_comm_steps *s, const struct dt_bench_topo *t, size_t element_bytes,
		      double *ret_s, struct dt_err *err);

/* The textbook cost on a flat network; negative if there is none for this list. */
double dt_bench_simulate_closed(const struct dt_comm_steps *s, const struct dt_bench_topo *t,
				size_t element_bytes);

/* The best chunk for pipelined lists of n bytes: the zero of the derivative by the chunk size. */
size_t dt_bench_topo_chunk(const struct dt_bench_topo *t, size_t bytes);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
