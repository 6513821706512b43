/*
 * Step lists on a described network: what a collective would take on ranks that are not there.
 *
 * A message of m bytes that starts at t, when both ranks are in its round, arrives at t + latency + hops *
 * hop + m / share, where share is the capacity of the fullest link on its way over all bytes that cross it in
 * that round (each link serves its messages at once). A rank starts a round when its messages of the round
 * before are through. Reducing takes reduce_s a byte. On a flat network this gives the closed forms of the
 * literature: dt_bench_simulate_closed.
 *
 * Real libraries do not wait for the receiver, so that rounds of different ranks overlap: with eager the
 * lists run in the order of time instead (simulate_events.c), each link serving one message after another.
 */
#ifndef DT_BENCH_SIMULATE_H
#define DT_BENCH_SIMULATE_H

#include "comm/steps.h"

enum dt_bench_topo_kind {
	DT_BENCH_TOPO_FLAT,	 /* every rank has a port of its own on one switch */
	DT_BENCH_TOPO_FAT_TREE,	 /* nodes on leaf switches, uplinks thinned by taper */
	DT_BENCH_TOPO_RAIL,	 /* every rank of a node has a port on the switch of its place */
	DT_BENCH_TOPO_TORUS,	 /* nodes in three dimensions, messages go along x, y, z */
	DT_BENCH_TOPO_DRAGONFLY, /* groups of routers, one link between any two groups */
};
#define DT_BENCH_TOPO_CHOICES "flat|fat-tree|rail|torus|dragonfly"

struct dt_bench_topo {
	enum dt_bench_topo_kind kind;
	int ranks, node;	     /* node: ranks a node */
	int leaf;		     /* nodes a leaf switch or router */
	int group;		     /* routers a dragonfly group */
	int dim[3];		     /* of a torus, in nodes; 0: near a cube */
	double taper;		     /* bandwidth into a leaf over bandwidth out of it */
	double shm_latency_s, shm_s; /* inside a node: a message, a byte */
	double net_latency_s, net_s; /* a port of the network */
	double hop_s, reduce_s;
	int eager; /* 1: messages between nodes leave when their senders are ready; up to 1024 ranks */
};

#define DT_BENCH_TOPO_RANKS_MAX 16384

/*
 * "fat-tree:1024" or "fat-tree,ranks=1024,node=8,leaf=16,taper=2,shm_us=1,shm_gbs=200,net_us=5,net_gbs=25,
 * hop_us=0.3,reduce_gbs=500,eager=1": what is not said is as here, leaf is 16 for a fat tree and 4 for a
 * dragonfly. -EINVAL with the word that is wrong.
 */
int dt_bench_topo_parse(const char *s, struct dt_bench_topo *ret, struct dt_err *err);

/* What dt_bench_topo_parse reads. */
const char *dt_bench_topo_format(const struct dt_bench_topo *t, char *buf, size_t size);

/* Seconds of one operation; every rank starts at once. */
int dt_bench_simulate(const struct dt_steps *s, const struct dt_bench_topo *t, size_t element_bytes,
		      double *ret_s, struct dt_err *err);

/* The textbook cost on a flat network; negative where there is none for this list. */
double dt_bench_simulate_closed(const struct dt_steps *s, const struct dt_bench_topo *t,
				size_t element_bytes);

/* A chunk for pipelined lists of n bytes: where its derivative by the chunk is zero. */
size_t dt_bench_topo_chunk(const struct dt_bench_topo *t, size_t bytes);

#endif
