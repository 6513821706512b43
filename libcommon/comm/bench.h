/*
 * Timing and checking collectives, with the conventions of nccl-tests (its PERFORMANCE.md derives busbw).
 *
 * A size is the bytes S of algbw = S / time: count * esize for all-reduce, broadcast, reduce and send-recv;
 * count * esize * ranks for all-gather, reduce-scatter, all-to-all, gather and scatter. Inputs are small
 * integers that repeat with a prime period, so that every result is exact in every type and a misplaced piece
 * shows.
 */
#ifndef DT_COMM_BENCH_H
#define DT_COMM_BENCH_H

#include "comm/comm.h"

enum dt_bench_kind {
	DT_BENCH_ALL_REDUCE,
	DT_BENCH_ALL_GATHER,
	DT_BENCH_REDUCE_SCATTER,
	DT_BENCH_BROADCAST,
	DT_BENCH_ALL_TO_ALL,
	DT_BENCH_REDUCE,
	DT_BENCH_GATHER,
	DT_BENCH_SCATTER,
	DT_BENCH_SEND_RECV, /* every rank to the next one */
	DT_BENCH_BARRIER,
	DT_BENCH_N,
};
#define DT_BENCH_CHOICES                                                                                     \
	"all-reduce|all-gather|reduce-scatter|broadcast|all-to-all|reduce|gather|scatter|send-recv|barrier"

struct dt_bench_opts {
	enum dt_bench_kind kind;
	enum dt_dtype t;
	enum dt_redop op;
	int root;
	int iters, warmup;
	bool check, cold; /* cold: walk through buffers larger than the last-level cache */
	bool registered;  /* buffers the other ranks of the machine can map */
	bool compare;	  /* a call of plain MPI after each call, a barrier before either */
	bool apart;	  /* a barrier before each call, so that they do not overlap */
};

struct dt_bench_result {
	size_t bytes, count;
	double time_s; /* a call, on the slowest rank: the mean, with compare or apart the median */
	double min_s, mean_s, p50_s, p99_s, max_s; /* over calls, each as long as on its slowest rank */
	double algbw_gbs, busbw_gbs;
	double bound_fraction; /* of what the machine's copy bandwidth allows; 0: in the caches, or not known
				*/
	int64_t wrong;	       /* elements over all ranks; -1: not checked */
	double mpi_s;	       /* with compare: plain MPI's median, in alternation with p50_s; otherwise 0 */
	double copy_s; /* to copy what crosses the bus, at this size, all ranks at once; 0: not known */
};

/* When ranks arrive at the calls, over a run. */
struct dt_skew {
	int ranks;
	int64_t calls;
	double *sum_s, *max_s; /* [ranks]: after the first one */
	int64_t *last;	       /* [ranks]: how often it was the last one */
	double offset_s;       /* of this rank's clock to rank 0's */
};
/* Collective; compares clocks where ranks are on several machines. */
int dt_skew_init(struct dt_skew *s, struct dt_world *w, struct dt_comm *c, struct dt_err *err);
void dt_skew_release(struct dt_skew *s);

/* The factor from algbw to busbw. */
double dt_bench_bus_factor(enum dt_bench_kind k, int ranks);
/* Bytes that must cross a machine's memory bus for one call of S = 1, all ranks being on it. */
double dt_bench_traffic(enum dt_bench_kind k, int ranks);
/* Has this kind results of both kinds, out of place and in place? */
bool dt_bench_has_in_place(enum dt_bench_kind k);
bool dt_bench_reduces(enum dt_bench_kind k);
bool dt_bench_has_root(enum dt_bench_kind k);

struct dt_bench; /* buffers */
int dt_bench_open(struct dt_bench **ret, struct dt_comm *c, const struct dt_bench_opts *o, size_t max_bytes,
		  struct dt_err *err);
/* Collective. bytes is rounded down to whole elements on every rank, one at least. copy_gbs of dt_bench_copy.
 * skew may be NULL. */
int dt_bench_run(struct dt_bench *b, size_t bytes, bool in_place, double copy_gbs, struct dt_skew *skew,
		 struct dt_bench_result *ret, struct dt_err *err);
void dt_bench_close(struct dt_bench *b);

/* Copy bandwidth of one machine, bytes read plus written, all its ranks copying at once. Collective. */
int dt_bench_copy(struct dt_world *w, struct dt_comm *world, double *ret_gbs, struct dt_err *err);

/*
 * Cost of a link class, so that a ring all-reduce of n bytes over p ranks takes
 *   2 (p - 1) latency_s + 2 (p - 1) / p n / bandwidth
 * (fitted to measured all-reduces by least squares of the relative error).
 */
struct dt_link {
	const char *name; /* "shm" between ranks of one machine, "network" between machines */
	int ranks;	  /* of the groups measured */
	double latency_s, bandwidth_gbs;
	double error; /* root mean square of the relative error of the fit */
};
/* Collective. At most two classes; returns how many there are. */
int dt_bench_links(struct dt_world *w, struct dt_link ret[2], struct dt_err *err);

/* t = a + b x by least squares of the relative error, a and b not negative. Returns the error of dt_link. */
double dt_fit_line(const double *x, const double *t, int n, double *ret_a, double *ret_b);

/* Whether the collective can go by this algorithm at all. */
bool dt_bench_has_algorithm(enum dt_bench_kind k, enum dt_alg a);
/* What operations of so many elements go by. */
enum dt_alg dt_bench_chosen(struct dt_comm *c, enum dt_bench_kind k, size_t count, enum dt_dtype t);

struct dt_topo;
/*
 * Measures what messages cost here, in a node and between nodes, and gives the network this amounts to.
 * Collective. -ENOTSUP where machines do not hold equal runs of ranks.
 */
int dt_bench_topology(struct dt_world *w, struct dt_comm *world, struct dt_topo *ret, struct dt_err *err);
/* Simulates a call on n elements of e bytes in all (every rank's block counted). Step lists only. here: with
 * the message size that is used, otherwise with the best one. */
int dt_bench_predict(const struct dt_topo *t, enum dt_bench_kind k, enum dt_alg a, size_t n, size_t e,
		     bool here, double *ret_s, struct dt_err *err);

#endif
