/*
 * The chunked scan of ssm.h: what forward and backward share. A chunk is up to DT_SSM_CHUNK rows of a
 * sequence; matrices are f32, row-major. For a head, with cs_i the sum of dt A over the chunk's rows up to i:
 *   L_ij = exp(cs_i - cs_j)  for j <= i in i's document
 *   e_i  = exp(cs_i)         if i's document began in front of the chunk, else 0
 *   w_j  = exp(cs_last - cs_j)   for j in the document of the chunk's last row, else 0
 *   y    = (L o C B^T o dt) x + e o (C S) + D x;     S' = e_last S + B^T (w o dt o x),  S [state, head_dim]
 */
#ifndef DT_KERNELS_CPU_SSD_H
#define DT_KERNELS_CPU_SSD_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec.h"

/* Rows of a block of the convolution's backward. */
enum { DT_SSM_ROWS = 64 };

struct dt_ssd {
	const struct dt_ssm *p;
	struct dt_tensor xbc, t;
	int64_t chunks;	     /* of a sequence */
	float *dt, *cs;	     /* [batch, heads, seq] */
	float *states;	     /* [batch, chunks, heads, state, head_dim]: S in front of each chunk */
	float *a, *bias, *d; /* [heads] A, dt_bias and D */
	float *own;	     /* of each thread: own_each */
	int64_t own_each;
};

struct dt_ssd_chunk {
	int64_t row, n;		   /* first row of all, and rows */
	int64_t at;		   /* position of the first row in its sequence */
	int64_t low[DT_SSM_CHUNK]; /* first row in i's document; -1: it began in front of the chunk */
};

/* Bytes that dt_ssd_open takes of scratch, with `extra` elements and `own` elements for each thread. */
size_t dt_ssd_bytes(const struct dt_scratch_on *on, const struct dt_ssm *p, int64_t extra, int64_t own);
/* Elements of a thread, and of all, in forward and in backward. */
int64_t dt_ssd_own(const struct dt_ssm *p, bool backward);
int64_t dt_ssd_extra(const struct dt_ssm *p, bool backward);
static inline int64_t dt_ssd_chunks(const struct dt_ssm *p)
{
	return dt_ceil_div(p->seq, DT_SSM_CHUNK);
}
static inline int64_t dt_ssd_state_size(const struct dt_ssm *p)
{
	return p->batch * dt_ssd_chunks(p) * p->heads * p->state * p->head_dim;
}

/* Fills in s in the scratch at `room`; computes dt, cs and the states. Returns the rest of the scratch. */
float *dt_ssd_open(struct dt_dev *dev, struct dt_ssd *s, float *room, struct dt_tensor dt_bias,
		   struct dt_tensor a_log, struct dt_tensor d, bool backward);

struct dt_ssd_chunk dt_ssd_chunk(const struct dt_ssd *s, int64_t batch, int64_t chunk);
static inline float *dt_ssd_state(const struct dt_ssd *s, float *states, int64_t batch, int64_t chunk,
				  int64_t head)
{
	return states + ((batch * s->chunks + chunk) * s->p->heads + head) * s->p->state * s->p->head_dim;
}

/* e and w of a head's chunk; returns e_last's factor of the state. */
float dt_ssd_factors(const struct dt_ssd *s, const struct dt_ssd_chunk *c, int64_t batch, int64_t head,
		     float *e, float *w);
/* m_ij = L_ij dt_j g_ij, or L_ij if g is NULL, [n, n] with rows of DT_SSM_CHUNK; 0 for j > i. */
void dt_ssd_mask(float *m, const float *g, const struct dt_ssd *s, const struct dt_ssd_chunk *c,
		 int64_t batch, int64_t head);

/* c [m, n] = (add ? c : 0) + a b; a_ik at a[i ai + k ak], b [k, n] with rows of ldb. Products
 * of tile.h, for any n. */
void dt_ssd_mul(float *c, int64_t ldc, const float *a, int64_t ai, int64_t ak, const float *b, int64_t ldb,
		int64_t m, int64_t n, int64_t k, bool add);
/* Columns [at, at + cols) of n rows of t from `row` on, as f32; and the other way. */
void dt_ssd_get(float *to, struct dt_tensor t, int64_t wide, int64_t row, int64_t n, int64_t at,
		int64_t cols);
void dt_ssd_put(struct dt_tensor t, int64_t wide, int64_t row, int64_t n, int64_t at, int64_t cols,
		const float *from);
/* to [cols, rows] of rows of ldt = from [rows, cols] */
void dt_ssd_turn(float *to, int64_t ldt, const float *from, int64_t rows, int64_t cols);
/* x [n, cols] times f_i, row by row. */
void dt_ssd_scale(float *x, const float *f, int64_t n, int64_t cols);

/* taps [kernel + 1, conv] f32 of w, the bias last; x / (1 + exp(-x)). */
void dt_ssm_taps(const struct dt_ssm *p, float *taps, struct dt_tensor w, struct dt_tensor bias);
void dt_ssm_silu(float *x, int64_t n);
/* out += w x */
void dt_ssm_add_times(float *sum, const float *a, const float *b, int64_t n);
/* log(1 + exp(v)) */
float dt_ssm_softplus(float v);

/* A vector of n elements of any compute type as f32. */
void dt_ssm_vector(float *to, struct dt_tensor t, int64_t n);
/* to [3, heads]: A, dt_bias and D. */
void dt_ssm_vectors(float *to, int64_t heads, struct dt_tensor a_log, struct dt_tensor dt_bias,
		    struct dt_tensor d);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
