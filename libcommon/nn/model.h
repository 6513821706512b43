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
	struct dt_local_dims d;
	enum dt_dtype dtype;
	int first, last; /* layers of this stage */
	bool has_embed, has_head;
	struct dt_unit *layer; /* [last - first] */
	struct dt_unit embed, final;
	const float *rope_cos, *rope_sin; /* [rope_positions, head_dim / 2] */
	int64_t rope_positions;
};

/* The buffers of one forward and backward pass over rows tokens. */
struct dt_pass {
	int64_t rows, batch, seq;
	int32_t *ids, *targets, *pos;
	void *(*act)[DT_ACT_N]; /* [layers of the stage] */
	enum dt_recompute recompute;
	bool accumulate; /* false: the first microbatch of a step overwrites matmul gradients */
	void *delta, *dresid, *dnorm, *dsmall, *dlarge;
	void *final_resid, *final_norm;
	float *final_mean, *final_rstd;
	float *logits;
	void *dlogits; /* logits when the compute type is f32 */
	float *ce;     /* [4, loss_chunk] */
	int64_t loss_chunk;
};

/*
 * Binds weights (compute type) and gradients (may be NULL) laid out as l says. tp NULL when the layout's tp
 * is 1. table and config must outlive the model. -ENOTSUP for what nn cannot compute, by name.
 */
int dt_model_bind(struct dt_model *m, const struct dt_config *c, const struct dt_params *table,
		  const struct dt_local *l, const struct dt_layout *layout, struct dt_coords at,
		  struct dt_comm *tp, struct dt_dev *dev, enum dt_dtype dtype, void *weights, float *grads,
		  struct dt_err *err);
void dt_model_release(struct dt_model *m);

/*
 * Points the buffers of a pass, and the model's rotary table, into an arena laid out by the plan of shape s.
 * ids, targets and positions lie there too; positions are filled. Allocates p->act: dt_pass_release.
 */
int dt_pass_bind(struct dt_pass *p, struct dt_model *m, const struct dt_train_shape *s,
		 const struct dt_memory_plan *plan, char *base, struct dt_err *err);
void dt_pass_release(struct dt_pass *p);
/* The address of a planned buffer, NULL when the plan has none. */
void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int layer, int act);

/* Writes the rotary table cos[positions, head_dim / 2], sin[...] for c's theta and scaling (f64 inside). */
void dt_rope_table(const struct dt_config *c, int64_t positions, float *cos_out, float *sin_out);

/*
 * Initial values of one rank's flat f32 parameters, element by element from (seed, parameter, global index):
 * the same on every layout.
 */
void dt_model_init_weights(const struct dt_params *table, const struct dt_local *l, uint64_t seed,
			   float *flat);

#endif
