/*
 * A model bound to memory: views of one rank's weights and gradients by role, and the buffers of one pass. No
 * ownership: the trainer binds the memory plan's arena, the server binds what it loaded.
 */
#ifndef DT_NN_MODEL_H
#define DT_NN_MODEL_H

#include "comm/comm.h"
#include "kernels/ops.h"
#include "plan/memory.h"

struct dt_unit {		       /* an embedding, a layer, or the final norm and head */
	struct dt_tensor w[DT_ROLE_N]; /* data NULL: the model has no such tensor */
	struct dt_tensor g[DT_ROLE_N]; /* f32 gradients */
};

struct dt_model {
	const struct dt_config *c;
	struct dt_dev *dev;
	struct dt_comm *tp; /* NULL: not split */
	int tp_rank;
	bool seq_parallel; /* the residual stream is cut over tp, see nn/cut.h */
	double comm_s;	   /* seconds spent in tp's collectives so far */
	struct dt_local_dims d;
	enum dt_dtype dtype;
	int nlayer; /* of this stage, over all its chunks */
	int nchunk;
	struct dt_chunk {
		int first, last; /* global layers [first, last) */
		int local;	 /* number of `first` among the stage's layers */
	} chunk[DT_MAX_CHUNKS];
	bool has_embed, has_head;
	struct dt_unit *layer; /* [nlayer] */
	struct dt_unit embed, final;
	int unit_layer0;		  /* local unit of layer 0: 1 where there is an embedding, else 0 */
	const float *rope_cos, *rope_sin; /* [rope_positions, head_dim / 2] */
	int64_t rope_positions;
	const float *local_cos, *local_sin; /* of layers with a window and a base of their own; else NULL */
	float *norm_scale;		    /* 1 + w of a norm, where w is kept without the 1 */
};

/* Where a pass keeps one linear's operands in 8 bits (plan/fp8.h); used: which linears, none without --fp8.
 */
struct dt_fp8_room {
	bool used[DT_STASH_N];
	void *rows, *turned, *weight;
	float *scale; /* [3], of what these hold */
};

/* The buffers of one forward and backward pass over rows tokens. */
struct dt_pass {
	int64_t rows, batch, seq;
	int32_t *ids, *targets, *pos;
	void *(*act)[DT_ACT_N]; /* [layers of the stage]; with a pipeline only those of one chunk are bound */
	void *(*stash)[DT_STASH_N]; /* likewise; where W is apart from B */
	bool split;		    /* backward computes input gradients only and stashes what W needs */
	void *out;		    /* output of a chunk that is not the last */
	struct dt_keep recompute;
	bool accumulate;      /* false: the first microbatch overwrites the matmul gradients of layers */
	bool accumulate_head; /* likewise of the head */
	struct dt_fp8_room fp8;
	void *gather; /* sequence parallelism: all rows of what is cut, [rows, hidden] */
	void *delta, *dresid, *dnorm, *dsmall, *dlarge;
	void *final_resid, *final_norm;
	float *final_mean, *final_rstd;
	float *logits;
	void *dlogits; /* logits when the compute type is f32 */
	float *ce;     /* [4, loss_chunk] */
	/* What the host writes and reads: the same memory where the device's is the host's, else pinned. */
	int32_t *host_ids, *host_targets;
	float *host_ce; /* [4, rows], chunk after chunk; NULL: ce itself is read */
	int64_t loss_chunk;
};

/*
 * Binds weights (compute type) and gradients (grads NULL: none) laid out as l says; local unit u starts at
 * weights[u] and grads[u]. tp NULL when the layout's tp is 1. table and config must outlive the model.
 * -ENOTSUP for what nn cannot compute, by name.
 */
int dt_model_bind(struct dt_model *m, const struct dt_config *c, const struct dt_params *table,
		  const struct dt_local *l, const struct dt_layout *layout, struct dt_coords at,
		  struct dt_comm *tp, struct dt_dev *dev, enum dt_dtype dtype, void *const *weights,
		  float *const *grads, struct dt_err *err);
/* Unit addresses of one flat buffer, malloc'd. */
void **dt_flat_units(const struct dt_local *l, void *flat, enum dt_dtype dtype);
void dt_model_release(struct dt_model *m);

/*
 * Points the buffers of one microbatch's pass through a chunk, and the model's rotary table, into an arena
 * laid out by the plan of shape s. slot: which of the chunk's microbatches in flight. Positions are filled.
 * dt_pass_release after use.
 */
int dt_pass_bind(struct dt_pass *p, struct dt_model *m, const struct dt_run *s,
		 const struct dt_memory_plan *plan, char *base, int chunk, int slot, struct dt_err *err);
void dt_pass_release(struct dt_pass *p, struct dt_dev *dev);
/* host_ids and host_targets to the device, when they have been written. They stay until dt_dev_sync. */
int dt_pass_upload(const struct dt_pass *p, struct dt_dev *dev, struct dt_err *err);
/* The address of a planned buffer, NULL when the plan has none. */
void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int layer, int act,
		      int slot);

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
