/*
 * The transformer, straight-line over dt_ops with explicit collectives at the cut points. Tensor parallelism
 * follows Megatron-LM (Shoeybi et al. 2019, section 3): qkv and up are cut by columns (their outputs), o and
 * down by rows (their inputs), so one all-reduce closes each half of a layer forward, and one each half
 * backward.
 */
#ifndef DT_NN_TRANSFORMER_H
#define DT_NN_TRANSFORMER_H

#include "nn/model.h"

/* Where inference keeps keys and values of one layer; NULL in training. */
struct dt_kv {
	struct dt_tensor k, v; /* [blocks * block_size, kv_heads * head_dim] */
	const int64_t *slot;   /* [rows] */
	const struct dt_paged *paged;
};

/* resid of the first layer = wte[ids] (+ wpe[pos]). */
int dt_embed_forward(struct dt_model *m, const struct dt_pass *p, void *resid, struct dt_err *err);
int dt_embed_backward(struct dt_model *m, const struct dt_pass *p, struct dt_err *err);

/*
 * Layer l (number in the stage). The residual stream enters as x + delta (delta NULL: x is the layer's resid
 * buffer already); leaves as resid2 + p->delta, which the next layer's norm adds up. redo: a recomputation
 * before backward, which needs no output.
 */
int dt_layer_forward(struct dt_model *m, const struct dt_pass *p, int l, const void *x, const void *delta,
		     const struct dt_kv *kv, bool redo, struct dt_err *err);

/* p->dresid: in, the gradient of the layer's output; out, of its input. Parameter gradients accumulate. */
int dt_layer_backward(struct dt_model *m, const struct dt_pass *p, int l, struct dt_err *err);

/* Embedding, every layer of the stage, final norm: p->ids to p->final_norm. */
int dt_stage_forward(struct dt_model *m, const struct dt_pass *p, struct dt_err *err);
/*
 * After dt_loss: every layer and the embedding, last to first. unit_done (may be NULL) is called as soon as
 * the gradients of a unit are complete: layers + 1 for the head, l + 1 for layer l, 0 for the embedding.
 */
int dt_stage_backward(struct dt_model *m, const struct dt_pass *p,
		      int (*unit_done)(void *arg, int unit, struct dt_err *err), void *arg,
		      struct dt_err *err);

/* final_norm = norm(x + delta), sum kept in final_resid. */
int dt_final_norm(struct dt_model *m, const struct dt_pass *p, const void *x, const void *delta,
		  struct dt_err *err);

/*
 * Head and cross-entropy over all rows of p, chunk by chunk, so that full logits never exist. *loss_sum +=
 * sum of -log softmax at the targets (-1: ignored). With backward, gradients of sum * scale flow into
 * head.weight, the final norm and p->dresid.
 */
int dt_loss(struct dt_model *m, const struct dt_pass *p, bool backward, float scale, double *loss_sum,
	    struct dt_err *err);

/* Zeroes what backward only ever adds to: everything but the matmul weights, which the first microbatch
 * overwrites. */
int dt_grads_begin(struct dt_model *m, struct dt_err *err);

/* A kernel's negative errno as a message. */
int dt_kernel_check(int rc, const char *op, struct dt_err *err);

#endif
