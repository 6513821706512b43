/* What infer.c, infer_load.c and infer_moe.c share; not for others. */
#ifndef DT_NN_INFER_PRIV_H
#define DT_NN_INFER_PRIV_H

#include "base/arena.h"
#include "kernels/ops.h"
#include "kernels/quant.h"
#include "model/activations.h"
#include "model/params.h"
#include "nn/infer.h"
#include "plan/inferplan.h"

/* A matrix to multiply with: laid out by kernels/quant.h, or plain f32. */
struct dt_infer_linear {
	struct dt_packed *packed;
	struct dt_tensor w, bias; /* w: where packed is NULL */
};

struct dt_infer_layer {
	struct dt_infer_linear qkv, o, up, down;	 /* up: gate and up where the model is gated */
	struct dt_infer_linear router;			 /* f32 */
	struct dt_packed **expert_up, **expert_down;	 /* [experts] */
	struct dt_packed_set *experts_up, *experts_down; /* the same, as they are multiplied with */
	struct dt_tensor norm1, norm1_b, norm2, norm2_b, q_norm, k_norm, post_attn, post_mlp;
};

#define DT_INFER_RECORDED 32

struct dt_infer_recorded {
	int nseq, kind;		/* enum dt_draw_kind of its draws, -1: logits come back */
	int64_t keys;		/* that sequences may have */
	uint64_t used;		/* the step it ran in last */
	struct dt_graph *graph; /* NULL: such a step came once */
};

/* infer_device.c; all absent on the CPU. */
struct dt_infer_side {
	char *host, *there;		/* tables of a step, pinned, and where they are on the device */
	size_t bytes, fixed, out_bytes; /* fixed: without the edits, which come last */
	int64_t *slot;			/* in host */
	int32_t *ids, *pos, *q_start, *kv_len, *table;
	struct dt_draw *draw;
	struct dt_edit *edit; /* [max_edits] */
	int max_edits;
	struct dt_drawn *drawn, *drawn_host; /* [max_seqs] on the device, and pinned */
	float *out, *logits;		     /* [max_seqs, vocab] on the device, and pinned */
	int64_t keys; /* for attention: what a sequence of the step may have; 0: what it has */
	struct dt_infer_recorded recorded[DT_INFER_RECORDED];
	int nrecorded;
	uint64_t steps, replayed;
};

struct dt_infer {
	struct dt_config config;
	struct dt_local_dims dims;
	struct dt_infer_params p;
	struct dt_dev *dev;
	struct dt_infer_layer *layer;	    /* [layers] */
	struct dt_infer_linear embed, head; /* head.packed may be embed's: the model is tied */
	struct dt_tensor pos, norm, norm_b;
	struct dt_arena weights; /* vectors, and plain matrices */
	struct dt_arena cache, work;
	uint64_t packed_bytes; /* of matrices, as laid out */
	uint64_t set_bytes;    /* of what finds those of experts */
	float *rope_cos, *rope_sin;
	float *local_cos, *local_sin; /* of layers with a window, where they have a base of their own */
	int64_t positions;
	struct dt_infer_side side;
	struct { /* in work */
		void *resid, *resid2, *norm, *qkv, *attn, *up, *act, *delta, *picked;
		float *mean, *rstd;
		/* of experts: a choice is one of the experts_used of a row */
		float *wide;		     /* [rows, hidden] */
		float *score;		     /* [rows, experts] */
		float *weight, *expert_out;  /* [choices], [choices, hidden] */
		int32_t *expert, *at, *from; /* [choices]: which, its row when sorted, and back */
		int32_t *first;		     /* [experts + 1]: its first row */
	} b;
};

/* infer.c: the pass itself, and the draws where there are some; logits and drawn are the device's memory, and
 * what the batch points to otherwise dt_dev_tables'. */
int dt_infer_pass(struct dt_infer *m, const struct dt_infer_batch *b, float *logits, struct dt_err *err);

/* infer_device.c: memory of the device; what the host copies there is there when the call returns. */
int dt_infer_area(struct dt_infer *m, struct dt_arena *a, size_t bytes, struct dt_err *err);
void dt_infer_area_release(struct dt_infer *m, struct dt_arena *a);
int dt_infer_put(struct dt_infer *m, void *to, const void *from, size_t n, struct dt_err *err);
int dt_infer_side_open(struct dt_infer *m, struct dt_err *err);
void dt_infer_side_release(struct dt_infer *m);
/* Where a table of the step lies for ops that take the device's memory. */
const int32_t *dt_infer_there(const struct dt_infer *m, const int32_t *p);
int dt_infer_side_forward(struct dt_infer *m, const struct dt_infer_batch *b, float *logits,
			  struct dt_err *err);

/* infer_load.c: fills layer, embed, head, pos, norm. */
int dt_infer_load(struct dt_infer *m, struct dt_source *src, struct dt_err *err);
void dt_infer_unload(struct dt_infer *m);

/* infer_moe.c: delta = the layer's mixture of experts of norm. */
int dt_infer_experts(struct dt_infer *m, const struct dt_infer_layer *l, int64_t rows, struct dt_err *err);

#endif
