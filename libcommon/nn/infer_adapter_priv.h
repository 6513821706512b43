/* Inside infer_adapter*.c. */
#ifndef DT_NN_INFER_ADAPTER_PRIV_H
#define DT_NN_INFER_ADAPTER_PRIV_H

#include "ckpt/adapter.h"
#include "nn/infer_adapter.h"
#include "nn/infer_priv.h"

#include <pthread.h>

/* What a rank has of an adapter, as it is sent. */
struct dt_infer_piece {
	char *p;
	size_t n;
};

/* What a piece begins with. */
struct dt_infer_piece_head {
	int64_t lanes, bytes, rows; /* of the numbers; magnitudes */
	int64_t own, own_bytes;	    /* tensors that it has whole */
};

/* In a piece: a linear, of which this is the rank's box. */
struct dt_infer_lane {
	int64_t local, rank, in, out;
	int64_t rows, above; /* magnitudes: out or 0; whether they are what lengths are above the base's */
	double scale;
};

/* In a piece: the rank's box of a tensor that the adapter has whole, n elements in dt_infer_whole_type. */
struct dt_infer_own {
	int64_t local, n;
};

/* On a card, once it is measured or a pass has had it. */
struct dt_infer_placed {
	struct dt_dev *dev;
	char *base;		 /* NULL: not yet */
	char *gains;		 /* where they go, while lengths are measured; NULL: they are there */
	struct dt_lora_lane *of; /* as the adapter's, of this memory */
};

struct dt_infer_adapter {
	struct dt_lora_lane *of;	/* by local parameter, without a place among columns; a NULL: none */
	struct dt_infer_placed *placed; /* NULL: the host computes */
	struct dt_infer_piece data;	/* of all lanes */
	const struct dt_infer_lane *lane; /* [lanes] in data */
	int lanes;
	float *rows; /* of each lane gains, which are magnitudes until they are measured, then shifts */
	/* what it has whole (infer_adapter_whole.c), by local parameter; NULL: nothing here */
	bool *own;		   /* it is the adapter's */
	struct dt_tensor *w;	   /* the base's plain tensors, and its own in their place */
	struct dt_packed **packed; /* by owner; NULL: the base's */
	char *plain;		   /* its own of w */
	char **kept;		   /* by local parameter: numbers that the card has not yet; NULL: none */
	int nlocal;
	bool any_whole; /* some rank has; on the one that reads */
	uint64_t bytes, sum;
	float *squares; /* [2, rows] of the lane that is being measured */
	/* what is measured by the thread that computes: all portions, those done, and how many a lane has */
	int portions, portion, parts;
	/* over ranks, on the one that reads */
	struct dt_infer_gone *gone;
	int32_t id;		     /* 0: one rank, or one that was sent it */
	struct dt_infer_piece *part; /* [nparts] the other ranks', by rank; NULL: they have them */
	int nparts;
	struct dt_infer_adapter *next; /* in gone */
};

/* What the ranks that were sent adapters are still to hear. */
struct dt_infer_gone {
	pthread_mutex_t mu;
	int32_t ids; /* given so far */
	struct dt_infer_adapter *first;
};

/* The linears of m's program, by local parameter: where their rows are, and their bias. */
struct dt_infer_linear {
	const struct dt_packed *w; /* NULL: it is no linear */
	int64_t at;
	int bias; /* local parameter, -1: none */
};
struct dt_infer_linear *dt_infer_linears(const struct dt_infer *m, struct dt_err *err);
/* That of one parameter. */
struct dt_infer_linear dt_infer_linear_of(const struct dt_infer *m, int param);

/* The piece of a rank that has these parameters. -ENOMEM */
int dt_infer_adapter_cut(const struct dt_infer *m, const struct dt_adapter *a, const struct dt_local *local,
			 struct dt_infer_piece *ret, struct dt_err *err);
/*
 * This rank's, of a piece that it takes over, also when it fails; with the threads of dev. -EPROTO where it
 * cannot be one.
 */
int dt_infer_adapter_lay(struct dt_infer_adapter *r, const struct dt_infer *m, struct dt_infer_piece piece,
			 struct dt_dev *dev, struct dt_err *err);

/*
 * Lengths of all rows, of one rank on the processor, by dev's threads: at once, or where the weights of
 * layers are not always in memory before the first pass with a, by the thread that computes.
 */
int dt_infer_adapter_measure_all(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_dev *dev,
				 struct dt_err *err);

/* infer_adapter_whole.c. check: -ENOTSUP, naming what cannot be served. type: of a box in a piece. */
int dt_infer_whole_check(const struct dt_infer *m, const struct dt_adapter *a, struct dt_err *err);
enum dt_dtype dt_infer_whole_type(const struct dt_infer *m, const struct dt_local_param *box);
/*
 * lay: fills own, w, packed and plain, and adds to bytes. from: by local parameter its numbers, or NULL,
 * which are rounded as the base's. For a card w, packed and plain are filled by place, by the thread that
 * computes.
 */
int dt_infer_whole_lay(struct dt_infer_adapter *r, const struct dt_infer *m, char *const *from,
		       struct dt_dev *dev, struct dt_err *err);
int dt_infer_whole_place(struct dt_infer_adapter *r, const struct dt_infer *m, struct dt_err *err);
void dt_infer_whole_release(struct dt_infer_adapter *r);
/* The pieces of the other ranks, and a number. */
int dt_infer_adapter_deal(struct dt_infer_adapter *r, const struct dt_infer *m, const struct dt_adapter *a,
			  struct dt_err *err);
/* Where element k of row i of a lane's a [rank, in] or b [out, rank] lies, on the ranks' devices. */
static inline int64_t dt_infer_a_at(const struct dt_infer *m, int64_t i, int64_t rank, int64_t k, int64_t in)
{
	return dt_dev_is_host(m->dev) ? dt_lora_panel_at(m->p.dtype, i, rank, k, in) : i * in + k;
}
static inline int64_t dt_infer_b_at(const struct dt_infer *m, int64_t i, int64_t out, int64_t k, int64_t rank)
{
	return dt_dev_is_host(m->dev) ? dt_lora_panel_at(m->p.dtype, i, out, k, rank) : k * out + i;
}
float dt_infer_number(struct dt_tensor t, int64_t i); /* element i of f32, bf16 or f16 */
/* The lanes of an adapter, or of none (NULL), at the linears of a node; false: it has none there. */
bool dt_infer_lanes(const struct dt_infer *m, const struct dt_node *n, const struct dt_infer_adapter *a,
		    struct dt_lora_lane lane[DT_LORA_LANES]);
/* Whether rows of a node's product may have adapters. */
static inline bool dt_infer_adapted(const struct dt_node *n)
{
	return (n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_GATED) && n->out[2] >= 0;
}
/* The table of node n in the step under way, side.nparts parts (infer_adapter_device.c). */
const struct dt_lora_part *dt_infer_side_parts(const struct dt_infer *m, const struct dt_node *n);
/*
 * Adapters on a card. open: makes a->placed, empty; on the processor nothing. numbers: copies all but gains
 * to the card, unless they are there; called by the thread that computes.
 */
int dt_infer_placed_open(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err);
int dt_infer_placed_numbers(const struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err);
void dt_infer_placed_free(struct dt_infer_placed *p); /* NULL is allowed */
void dt_infer_adapter_free(struct dt_infer_adapter *a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
