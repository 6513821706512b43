/* Private to infer_adapter*.c. */
#ifndef DT_NN_INFER_ADAPTER_PRIV_H
#define DT_NN_INFER_ADAPTER_PRIV_H

#include "ckpt/adapter.h"
#include "nn/infer_adapter.h"
#include "nn/infer_priv.h"

#include <pthread.h>

/* A rank's part of an adapter, in the form in which it is sent: n bytes at p. */
struct dt_infer_piece {
	char *p;
	size_t n;
};

/* The head of a piece. */
struct dt_infer_piece_head {
	int64_t lanes, bytes, rows; /* bytes of all lanes' a and b; number of magnitudes */
	int64_t own, own_bytes;	    /* tensors replaced as a whole, and their bytes */
};

/* A lane of a piece: the a and b of one linear, of which this rank has a box. */
struct dt_infer_lane {
	int64_t local, rank, in, out;
	int64_t rows, above; /* magnitudes: out or 0; above: they are added to the norms of base rows */
	double scale;
};

/* In a piece: this rank's box of a tensor that the adapter replaces, n elements of dt_infer_whole_type. */
struct dt_infer_own {
	int64_t local, n;
};

/* An adapter's copy in device memory, made when it is measured or first used in a pass. */
struct dt_infer_placed {
	struct dt_dev *dev;
	char *base;		 /* NULL: not allocated yet */
	char *gains;		 /* where gains will go, until norms are measured; NULL: they are there */
	struct dt_lora_lane *of; /* like the adapter's of, with addresses in this memory */
};

struct dt_infer_adapter {
	struct dt_lora_lane *of;	  /* by local parameter, without column offset; a NULL: no adapter */
	struct dt_infer_placed *placed;	  /* NULL: the host computes */
	struct dt_infer_piece data;	  /* the piece, with all lanes */
	const struct dt_infer_lane *lane; /* [lanes], inside data */
	int lanes;
	float *rows; /* per lane: gains (magnitudes until they are measured), then shifts */
	/* tensors that it replaces (infer_adapter_whole.c), by local parameter; NULL: none on this rank */
	bool *own;		   /* whether the adapter replaces it */
	struct dt_tensor *w;	   /* plain tensors: the adapter's where it replaces them, else the base's */
	struct dt_packed **packed; /* by owner; NULL: the base's */
	char *plain;		   /* memory of the adapter's own tensors in w */
	char **kept;		   /* by local parameter: values not copied to the device yet; NULL: none */
	int nlocal;
	bool any_whole; /* whether any rank has some; set on the rank that reads the adapter */
	uint64_t bytes, sum;
	float *squares; /* [2, rows] of the lane being measured */
	/* measuring, by the computing thread: all portions, the next one, and portions per lane */
	int portions, portion, parts;
	/* with several ranks, on the rank that reads the adapter */
	struct dt_infer_gone *gone;
	int32_t id;		     /* 0: one rank, or received from another rank */
	struct dt_infer_piece *part; /* [nparts] other ranks' pieces, by rank; NULL: they have been sent */
	int nparts;
	struct dt_infer_adapter *next; /* in the list of gone */
};

/* Closed adapters that the other ranks have not been told to close yet. */
struct dt_infer_gone {
	pthread_mutex_t mu;
	int32_t ids; /* ids assigned so far */
	struct dt_infer_adapter *first;
};

/* The linears of m's program, by local parameter: their packed weights, first row and bias. */
struct dt_infer_linear {
	const struct dt_packed *w; /* NULL: not a linear */
	int64_t at;
	int bias; /* local parameter; -1: none */
};
struct dt_infer_linear *dt_infer_linears(const struct dt_infer *m, struct dt_err *err);
/* The linear of one parameter. */
struct dt_infer_linear dt_infer_linear_of(const struct dt_infer *m, int param);

/* Makes the piece of a rank that has the parameters of local. -ENOMEM */
int dt_infer_adapter_cut(const struct dt_infer *m, const struct dt_adapter *a, const struct dt_local *local,
			 struct dt_infer_piece *ret, struct dt_err *err);
/*
 * Makes r from this rank's piece, and takes ownership of it also on failure; packs with dev's threads.
 * -EPROTO if it cannot be this rank's piece.
 */
int dt_infer_adapter_lay(struct dt_infer_adapter *r, const struct dt_infer *m, struct dt_infer_piece piece,
			 struct dt_dev *dev, struct dt_err *err);

/*
 * Measures the norms of all rows, for one rank on the CPU, with dev's threads. If the weights of layers are
 * not always in memory, the computing thread does it before the first pass with a instead.
 */
int dt_infer_adapter_measure_all(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_dev *dev,
				 struct dt_err *err);

/* infer_adapter_whole.c. check: -ENOTSUP, with the tensor's name. type: of a box in a piece. */
int dt_infer_whole_check(const struct dt_infer *m, const struct dt_adapter *a, struct dt_err *err);
enum dt_dtype dt_infer_whole_type(const struct dt_infer *m, const struct dt_local_param *box);
/*
 * lay: fills own, w, packed and plain, and adds to bytes. from: by local parameter the adapter's values,
 * NULL: the base's; they are quantized or rounded like the base's. On a device, lay keeps copies of the
 * values and place, called by the computing thread, fills w, packed and plain.
 */
int dt_infer_whole_lay(struct dt_infer_adapter *r, const struct dt_infer *m, char *const *from,
		       struct dt_dev *dev, struct dt_err *err);
int dt_infer_whole_place(struct dt_infer_adapter *r, const struct dt_infer *m, struct dt_err *err);
void dt_infer_whole_release(struct dt_infer_adapter *r);
/* Makes the pieces of the other ranks, and assigns the adapter's id. */
int dt_infer_adapter_deal(struct dt_infer_adapter *r, const struct dt_infer *m, const struct dt_adapter *a,
			  struct dt_err *err);
/* The index of element k of row i of a lane's a [rank, in] or b [out, rank] in the layout of m's device. */
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
/* Whether adapters may apply to the node's product. */
static inline bool dt_infer_adapted(const struct dt_node *n)
{
	return (n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_GATED) && n->out[2] >= 0;
}
/* The table of adapters at node n in the current step, side.nparts parts (infer_adapter_device.c). */
const struct dt_lora_part *dt_infer_side_parts(const struct dt_infer *m, const struct dt_node *n);
/*
 * Adapters in device memory. open: makes a->placed, empty; does nothing on the CPU. numbers: copies
 * everything except gains to the device, if not done yet; called by the computing thread.
 */
int dt_infer_placed_open(struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err);
int dt_infer_placed_numbers(const struct dt_infer_adapter *a, const struct dt_infer *m, struct dt_err *err);
void dt_infer_placed_free(struct dt_infer_placed *p); /* p may be NULL */
void dt_infer_adapter_free(struct dt_infer_adapter *a);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
