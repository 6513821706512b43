/*
 * Executes the programs of a stage (plan/stage.h): a loop over nodes that calls the device's operations and
 * the collectives of the tensor-parallel group. Nothing here depends on the model family. It owns no memory:
 * the trainer binds the arena that the memory plan has laid out, and weights and gradients by unit.
 */
#ifndef DT_NN_EXEC_H
#define DT_NN_EXEC_H

#include "base/trace.h"
#include "comm/comm.h"
#include "kernels/ops.h"
#include "plan/memory.h"

/* One microbatch in flight through one chunk: its slot, its inputs and its results. */
struct dt_flight {
	int chunk, slot;
	int64_t sample; /* number of its first sample in the step, or in the evaluation set */
	int64_t number; /* global number of that sample over the whole run */
	/* [rows] on the device, targets [samples] of images and of texts with labels, whose rows are those
	 * of train/labelled.h. With --documents apart, pos: a token's position in its document, first: where
	 * the document begins in the sequence; else NULL. */
	int32_t *ids, *targets, *pos, *first;
	int32_t *types; /* [rows] likewise: token types of texts with labels; NULL: all are of type 0 */
	/* [rows] likewise of a module for a further token: each row's next token, and the one after it or -1;
	 * NULL without one. */
	int32_t *ids_ahead, *targets_ahead;
	/* The host's side: the same memory if the device is the host, else pinned. NULL: not written. */
	int32_t *host_ids, *host_targets, *host_pos, *host_first, *host_types, *host_ids_ahead,
		*host_targets_ahead;
	float *pixels;	 /* images: [rows, channels height width] instead of ids */
	int32_t *others; /* images: second classes (mixup), */
	float *share;	 /* and the weights of the first ones; all 1: not mixed. Of texts: their scores */
	float *host_pixels, *host_share;
	int32_t *host_others;
	/* A teacher's predictions: its top tokens [rows, k]; probabilities of these and of all the rest
	 * [rows, k + 1]. NULL: there is no teacher, or another stage has the targets. */
	int32_t *columns, *host_columns;
	float *probs, *host_probs;
	float *host_ce; /* [4, rows], with a teacher [7, rows], one chunk of the loss after another; NULL: the
			   host reads the device's memory */
};

/* Batch norms: the ranks whose statistics are merged, and the running statistics. */
struct dt_exec_bn {
	struct dt_comm *comm; /* ranks that a norm spans; NULL: this one alone */
	float *running, *sum; /* [buffers] running statistics, for evaluation; sums over training passes since
				 they were cleared. On the host; the caller's memory if the arena is not */
	int64_t buffers;      /* elements */
	float *shifts;	      /* [buffers] shifts of folded norms, in device memory */
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
	float *logprob, *weight; /* owned by whoever sets judge */
	/* [rows] likewise, for a model with a value head: its values, and the gradient of the loss with
	 * respect to them, which judge writes. NULL: the value head is not run. On the host too. */
	float *value, *dvalue;
	/*
	 * Replaces the classification loss: reads y [rows, outputs] of the last layer, and writes its
	 * gradient dy unless that is NULL; dy may equal y. In host memory alone.
	 */
	int (*outputs)(void *arg, int64_t rows, const float *y, float *dy, double *loss, struct dt_err *err);
};

/* Distillation in training: a divergence from a teacher is added to the cross-entropy (kernels/distill.h). */
struct dt_teaching {
	int64_t k; /* columns of a row; 0: there is no teacher */
	float temperature, weight;
	double ce_sum, kl_sum; /* sums over targets, which LOSS adds to */
};

/*
 * Mixture of experts: the router's auxiliary losses and biases, exchanges over ep, and counts. blocks:
 * dt_config_blocks_all.
 */
struct dt_mixture {
	double balance, z; /* of struct dt_run_mixture */
	double scale;	   /* factor of both: loss scale / tokens of the step */
	enum dt_over over;
	float *bias;			/* [blocks, experts] router biases in f32, in device memory; */
	bool biased;			/* they are set; else the parameters are read as they are */
	struct dt_comm *data;		/* ranks with other tokens whose choices count too; NULL: none */
	struct dt_comm *ep;		/* ranks that experts are divided among; NULL: none */
	size_t *rows;			/* [2, ranks of ep] scratch of an exchange */
	struct dt_comm_req **under_way; /* [2, ranks of ep] the messages of the exchange in flight */
	bool some_way;			/* an exchange is in flight */
	double exposed_s;		/* seconds spent in exchanges, part of comm_s */
	int32_t *sent;			/* [experts] scratch of an exchange */
	/* ep with CUDA devices: [flights, blocks, 2, experts + 1] where experts' rows begin, as sent and as
	 * received, in pinned memory; NULL: the host reads the choices themselves. */
	int32_t *told;
	/* sums since they were last cleared by their reader; in device memory, except seen */
	bool counts;	 /* forward passes add to them */
	double *count;	 /* [blocks, experts] choices of this rank's tokens; followed by */
	double *dropped; /* choices dropped because this rank's experts were full, and */
	double *losses;	 /* [2] balance and z loss without their factors, summed over tokens and layers */
	double *seen;	 /* [blocks, experts] choices over the batch, of all ranks */
};

/* Rows of a microbatch with a target (nn/call_loss.h): their numbers, targets, weights of an objective. */
struct dt_exec_pick {
	int64_t rows; /* room */
	int32_t *row, *targets;
	float *weights;
};
void dt_exec_pick_close(struct dt_exec_pick *p);

/* A gather or scatter of the residual stream over tp (sequence parallel), overlapped with products. */
struct dt_stream_way {
	struct dt_comm_req **req; /* [2, ranks of tp] receives, sends */
	int value;		  /* the value that is gathered; -1: nothing is in flight */
};
enum { DT_STREAM_GATHERS = 4 };
enum dt_stream_alike { DT_STREAM_UNKNOWN, DT_STREAM_ALIKE, DT_STREAM_APART };
struct dt_stream {
	struct dt_stream_way gather[DT_STREAM_GATHERS], scatter;
	struct dt_comm_req **all; /* the requests of all of them */
	int under_way;
	enum dt_stream_alike *alike; /* [chunks, steps] whether a product in parts gives the same bits */
	int steps;
	bool splits;	  /* split products even if a row's bits depend on the number of rows */
	double exposed_s; /* seconds in the stream's gathers and sums, part of comm_s */
};

struct dt_exec {
	const struct dt_config *c;
	const struct dt_stage *stage;
	const struct dt_memory_plan *plan;
	char *base; /* the arena */
	struct dt_dev *dev;
	struct dt_comm *tp; /* NULL: not split */
	struct dt_comm *cp; /* likewise; set after dt_exec_open */
	int cp_size, cp_rank;
	int64_t firsts;	   /* elements of a flight's `first`: this rank's tokens, or all tokens in order */
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
	 * Fused steps, by op; NULL: none. Executes step k and steps after it in one device call, and returns
	 * how many; 0: not possible, each is called by itself. Values are written where the program has them.
	 * Not used while nodes are observed (watch, trace, ahead).
	 */
	int (*const *joins)(struct dt_exec *x, int k, struct dt_err *err);
	void *owner; /* serving: its struct dt_infer */
	struct dt_mixture mixture;
	struct dt_stream stream;
	struct dt_exec_pick pick;

	/* set before dt_exec_run */
	bool accumulate;      /* false: the first microbatch overwrites the gradients of matrices */
	bool accumulate_head; /* likewise for the head */
	bool loss_backward;   /* LOSS computes gradients too */
	float loss_scale;     /* factor of these gradients */
	bool training;	      /* batch norms use the batch's statistics, and add them to bn.sum */
	float smoothing;      /* label smoothing of a classifier, in training */
	struct dt_objective objective;
	struct dt_teaching teaching;
	struct dt_noise noise;	/* on embeddings, in training; width NULL: none */
	uint64_t seed;		/* of dropout */
	bool adapters_off;	/* low-rank adapters are switched off */
	double hits[2];		/* LOSS adds the rows that are right by top-1 and by top-5 */
	double loss_sum;	/* LOSS adds the sum of -log softmax at the targets */
	double ahead_sum;	/* likewise of a module for a further token, without ahead_weight */
	float ahead_weight;	/* factor of that module's gradients */
	struct dt_watch *watch; /* checks every value (nn/watch.h); NULL: none. Not owned */
	struct dt_trace *trace; /* receives a span for every node; NULL: none. Not owned */
	/* Called before each node runs, when its operands are there; NULL: nothing is called. */
	int (*ahead)(void *arg, struct dt_exec *x, const struct dt_node *n, struct dt_err *err);
	void *ahead_arg;

	/* while it runs */
	int done;    /* steps before this one are computed: fused steps compute several at once */
	int64_t row; /* serving: the first row of values that calls work on; p has their number */
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
/* Copies the host's inputs to the device. The host's memory must not change until dt_dev_sync. */
int dt_flight_upload(const struct dt_flight *f, const struct dt_exec *x, struct dt_err *err);

/* The address of a value of a flight's program, and of a buffer of the plan; NULL: there is none. */
void *dt_exec_value(const struct dt_exec *x, const struct dt_flight *f, int value);
void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int which);

/*
 * Called by the executor around each unit (local number); a layer's frozen unit comes before its trained one.
 * before: the unit is about to compute.
 * after: it has computed; backward: its gradients of this microbatch are complete.
 */
struct dt_hooks {
	void *arg;
	int (*before)(void *arg, int unit, bool backward, struct dt_err *err);
	int (*after)(void *arg, int unit, bool backward, struct dt_err *err);
	/* Segment i of the flight's program is about to run, or (done) has run. May be NULL. */
	int (*segment)(void *arg, const struct dt_flight *f, int i, bool done, struct dt_err *err);
};

/* Runs one list of the flight's program. hooks may be NULL. */
int dt_exec_run(struct dt_exec *x, const struct dt_flight *f, enum dt_list list, const struct dt_hooks *hooks,
		struct dt_err *err);

/* Runs segment i of the flight's program. */
int dt_exec_run_segment(struct dt_exec *x, const struct dt_flight *f, int i, const struct dt_hooks *hooks,
			struct dt_err *err);

/*
 * Zeroes the gradients of local units [first, first + n) to which backward only adds; not those which its
 * first node overwrites. The units' gradients must be contiguous.
 */
int dt_exec_zero_grads(struct dt_exec *x, int first, int n, struct dt_err *err);

/* The number of leading parameters of a node whose gradients it writes, by addition or by overwriting. */
int dt_exec_gradients(const struct dt_node *n);

/* The local number of a layer's unit, with layer as in dt_param.layer; -1: not on this rank. */
int dt_exec_unit(const struct dt_exec *x, int layer);

/* Turns a kernel's negative errno into a message; op: the call as text. Returns rc. */
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
