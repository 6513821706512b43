/*
 * Executes the programs of a stage (plan/stage.h): a loop over nodes that calls the device's operations and
 * the collectives of the tensor-parallel group. Nothing here knows a family. No ownership: the trainer binds
 * the arena that the memory plan has laid out, weights and gradients by unit.
 */
#ifndef DT_NN_EXEC_H
#define DT_NN_EXEC_H

#include "base/trace.h"
#include "comm/comm.h"
#include "kernels/ops.h"
#include "plan/memory.h"

/* One microbatch on its way through one chunk: its slot, and what the host writes and reads of it. */
struct dt_flight {
	int chunk, slot;
	int64_t sample; /* number of its first sample in the step, or in the evaluation set */
	int64_t number; /* of the same among all that the run trains on */
	/* [rows] on the device. Where documents are kept apart, pos: a token's position in its document,
	 * first: where that begins in the sequence; else NULL. */
	int32_t *ids, *targets, *pos, *first;
	/* The host's side: the same memory if the device is the host, else pinned. NULL: not written. */
	int32_t *host_ids, *host_targets, *host_pos, *host_first;
	float *pixels;	 /* of images: [rows, channels height width] instead of ids */
	int32_t *others; /* of images: second classes, */
	float *share;	 /* and the first ones' weights; all 1: none is mixed */
	float *host_pixels, *host_share;
	int32_t *host_others;
	/* Of a teacher: [rows, k], and what they and the rest have [rows, k + 1]. NULL: there is none, or
	 * targets are another stage's. */
	int32_t *columns, *host_columns;
	float *probs, *host_probs;
	float *host_ce; /* [4, rows], with a teacher [7, rows], chunk after chunk of the loss; NULL: the
			   device's is read */
};

/* Batch norms: whose statistics are merged, and where running ones are. */
struct dt_exec_bn {
	struct dt_comm *comm; /* ranks that a norm spans; NULL: this one alone */
	float *running, *sum; /* [buffers] used in evaluation; sums of the passes since they were taken; on
				 the host, the owner's where the arena is not */
	int64_t buffers;      /* elements */
	float *shifts;	      /* [buffers] of norms that are folded, where the device reads them */
};

/*
 * Instead of the cross-entropy, a loss of the log-probabilities that the model gives the targets of a
 * microbatch: judge reads logprob and writes weight, both [rows] on the host and 0 at ignored targets, and
 * adds the microbatch's loss. weight: -dL/dlogprob, before loss_scale. LOSS then computes the logits twice,
 * unless they are all one chunk.
 */
struct dt_objective {
	int (*judge)(void *arg, const struct dt_flight *f, const float *logprob, float *weight, double *loss,
		     struct dt_err *err); /* NULL: the cross-entropy */
	void *arg;
	float *logprob, *weight; /* owned by who sets judge */
	/* [rows] Likewise, of a model with a value head: its values, and the loss's derivatives by them,
	 * which judge writes. NULL: it is not asked. On the host, as logprob and weight. */
	float *value, *dvalue;
	/*
	 * Instead of the loss of classes: y [rows, outputs] of the last layer, and dy, which it writes where
	 * it is not NULL and which may lie on y. In the host's memory alone.
	 */
	int (*outputs)(void *arg, int64_t rows, const float *y, float *dy, double *loss, struct dt_err *err);
};

/* In training, a divergence from a teacher beside the cross-entropy (kernels/distill.h). */
struct dt_teaching {
	int64_t k; /* columns of a row; 0: there is no teacher */
	float temperature, weight;
	double ce_sum, kl_sum; /* LOSS adds both, over targets */
};

/* Of a model with experts: what training adds to the router, and what it counts. */
struct dt_mixture {
	double balance, z; /* of struct dt_run_mixture */
	double scale;	   /* of both: the loss scale over the tokens of the step, whose mean they are */
	enum dt_over over;
	float *bias;			/* [layers, experts] of the choice in f32, memory of the device; */
	bool biased;			/* they are there; else the weights as they are */
	struct dt_comm *data;		/* ranks with other tokens, where their choices count too; NULL */
	struct dt_comm *ep;		/* ranks that experts are divided among; NULL: none */
	size_t *rows;			/* [2, ranks of ep] room of an exchange */
	struct dt_comm_req **under_way; /* [2, ranks of ep] the messages of the one that has begun */
	bool some_way;			/* one has */
	double exposed_s;		/* seconds in exchanges, part of comm_s */
	int32_t *sent;			/* [experts] likewise */
	/* Over ranks on cards: [flights, layers, 2, experts + 1] where experts' rows begin, as they are and
	 * as they come, in pinned memory; NULL: the host reads the choices themselves. */
	int32_t *told;
	/* sums since whoever reads them has cleared them; but for seen in memory of the device */
	bool counts;	 /* forward passes count */
	double *count;	 /* [layers, experts] choices of this rank's tokens; behind them */
	double *dropped; /* those of this rank's experts past their capacity, and */
	double *losses;	 /* [2] balance and z before their factors, summed over tokens and layers */
	double *seen;	 /* [layers, experts] over the batch, of all ranks */
};

/* Messages of a stream that is cut over tp, under way beside products. */
struct dt_stream_way {
	struct dt_comm_req **req; /* [2, ranks of tp] from each, to each */
	int value;		  /* what comes together; -1: nothing is under way */
};
enum { DT_STREAM_GATHERS = 4 };
enum dt_stream_alike { DT_STREAM_UNKNOWN, DT_STREAM_ALIKE, DT_STREAM_APART };
struct dt_stream {
	struct dt_stream_way gather[DT_STREAM_GATHERS], scatter;
	struct dt_comm_req **all; /* of all of them */
	int under_way;
	enum dt_stream_alike *alike; /* [chunks, steps] products in parts have the same bits */
	int steps;
	bool splits;	  /* products take parts even where their rows depend on how many there are */
	double exposed_s; /* seconds in the stream's gathers and sums, part of comm_s */
};

struct dt_exec {
	const struct dt_config *c;
	const struct dt_stage *stage;
	const struct dt_memory_plan *plan;
	char *base; /* the arena */
	struct dt_dev *dev;
	struct dt_comm *tp; /* NULL: not split */
	struct dt_comm *cp; /* likewise; set behind dt_exec_open */
	int cp_size, cp_rank;
	int64_t firsts;	   /* elements of a flight's first: this rank's tokens, or all in their order */
	bool seq_parallel; /* the residual stream is cut over tp */
	double comm_s;	   /* seconds spent in tp's collectives so far */
	enum dt_dtype dtype;
	int64_t batch, seq;	 /* sequences of a microbatch, their tokens on this rank */
	struct dt_tensor *w, *g; /* by local parameter; g f32 */
	struct dt_exec_bn bn;
	bool *overwritten; /* by local parameter: its first gradient of a step replaces what was there */
	const float *rope_cos, *rope_sin;   /* [positions, head_dim / 2] */
	const float *local_cos, *local_sin; /* of layers with a window and a base of their own; else NULL */
	int64_t positions;
	int32_t *pos;	   /* [rows] position in the sequence */
	int32_t *host_pos; /* the same on the host */

	int (*const *calls)(struct dt_exec *x, const struct dt_node *n, struct dt_err *err); /* by op */
	/*
	 * By op, NULL or entries: what the device does at once of step k and steps behind it, whose values
	 * stay where the program has them. Returns how many; 0: it cannot, and their calls follow. Not asked
	 * where somebody looks at nodes (watch, trace, ahead).
	 */
	int (*const *joins)(struct dt_exec *x, int k, struct dt_err *err);
	void *owner; /* of serving: its struct dt_infer */
	struct dt_mixture mixture;
	struct dt_stream stream;

	/* set before dt_exec_run */
	bool accumulate;      /* false: the first microbatch overwrites the gradients of matrices */
	bool accumulate_head; /* likewise of the head */
	bool loss_backward;   /* LOSS computes gradients too */
	float loss_scale;     /* of them */
	bool training;	      /* batch norms use the batch's statistics, and add them to bn.sum */
	float smoothing;      /* of a classifier's targets, in training */
	struct dt_objective objective;
	struct dt_teaching teaching;
	struct dt_noise noise; /* on embeddings, in training; width NULL: none */
	uint64_t seed;	       /* of dropout */
	bool adapters_off;     /* low-rank adapters add nothing, as if they were not there */
	double hits[2];	 /* LOSS adds the rows whose class was the most likely, and among the first five */
	double loss_sum; /* LOSS adds the sum of -log softmax at the targets */
	struct dt_watch *watch; /* every value is looked at (nn/watch.h); NULL: none. Not owned */
	struct dt_trace *trace; /* every node that runs is a span of it; NULL: none. Not owned */
	/* Called before each node runs, when its operands are there; NULL: nothing is called. */
	int (*ahead)(void *arg, struct dt_exec *x, const struct dt_node *n, struct dt_err *err);
	void *ahead_arg;

	/* while it runs */
	int done;    /* steps before this one are computed: a join computes several at once */
	int64_t row; /* of serving: the first row that calls see of values; p says how many */
	const struct dt_prog *p;
	const struct dt_flight *flight;
	const struct dt_value_place *at;
};

/*
 * Binds weights (compute type) and gradients (NULL: none); local unit u starts at weights[u] and grads[u].
 * Fills tables of positions and angles in the arena. dt_exec_close after use.
 */
int dt_exec_open(struct dt_exec *x, const struct dt_run *r, struct dt_coords at,
		 const struct dt_memory_plan *plan, char *base, struct dt_comm *tp, struct dt_dev *dev,
		 void *const *weights, float *const *grads, struct dt_err *err);
/* Fills the tables of angles, where the plan has some, for x->positions. 0 or a negative errno. */
int dt_exec_bind_rope(struct dt_exec *x);
void dt_exec_close(struct dt_exec *x);

int dt_flight_open(struct dt_flight *f, const struct dt_exec *x, int chunk, int slot, struct dt_err *err);
void dt_flight_close(struct dt_flight *f, struct dt_dev *dev);
/* What the host has written to the device. It stays until dt_dev_sync. */
int dt_flight_upload(const struct dt_flight *f, const struct dt_exec *x, struct dt_err *err);

/* The address of a value of a flight's program, and of a buffer of the plan; NULL: there is none. */
void *dt_exec_value(const struct dt_exec *x, const struct dt_flight *f, int value);
void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int which);

/*
 * What the owner of the weights does around each unit (local number); of a layer the frozen one is first.
 * before: the unit is about to compute.
 * after: it has; backward: its gradients of this microbatch are complete.
 */
struct dt_hooks {
	void *arg;
	int (*before)(void *arg, int unit, bool backward, struct dt_err *err);
	int (*after)(void *arg, int unit, bool backward, struct dt_err *err);
	/* NULL: nobody asks. Segment i of the flight's program is about to run; it has (done). */
	int (*segment)(void *arg, const struct dt_flight *f, int i, bool done, struct dt_err *err);
};

/* Runs one list of the flight's program. hooks may be NULL. */
int dt_exec_run(struct dt_exec *x, const struct dt_flight *f, enum dt_list list, const struct dt_hooks *hooks,
		struct dt_err *err);

/* Runs segment i of the flight's program. */
int dt_exec_run_segment(struct dt_exec *x, const struct dt_flight *f, int i, const struct dt_hooks *hooks,
			struct dt_err *err);

/*
 * Zeroes what backward only ever adds to in local units [first, first + n), whose gradients lie in one
 * buffer: not what its first node overwrites.
 */
int dt_exec_zero_grads(struct dt_exec *x, int first, int n, struct dt_err *err);

/* The number of leading parameters of a node whose gradients it writes, by addition or by overwriting. */
int dt_exec_gradients(const struct dt_node *n);

/* Local number of the unit of a layer, as dt_param.layer; -1. */
int dt_exec_unit(const struct dt_exec *x, int layer);

/* A kernel's negative errno as a message; op as it was called. */
int dt_kernel_check(int rc, const char *op, struct dt_err *err);

/* Writes the rotary table cos[positions, head_dim / 2], sin[...] for c's theta and scaling (f64 inside). */
void dt_rope_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out);
/* The same for layers with a window whose base is rope_local_theta. */
void dt_rope_local_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out);

/*
 * Initial values of elements [first, first + n) of a local parameter, from (seed, parameter, global index):
 * the same on every layout.
 */
void dt_param_init(const struct dt_param *p, const struct dt_local_param *lp, uint64_t seed, int64_t first,
		   int64_t n, float *out);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
