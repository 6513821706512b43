/*
 * The places where a tensor-parallel layer talks to its group. Between them the residual stream, and what is
 * computed along it row by row (norms), is held whole by every rank; or, with sequence parallelism
 * (Korthikanti et al. 2022, section 4.2.2), each rank holds rows / tp consecutive rows of it: an all-reduce
 * becomes a reduce-scatter on the way out of a cut matmul and an all-gather on the way into the next.
 */
#ifndef DT_NN_CUT_H
#define DT_NN_CUT_H

#include "nn/model.h"

/* Rows of the residual stream that this rank holds. */
static inline int64_t dt_stream_rows(const struct dt_model *m, const struct dt_pass *p)
{
	return m->seq_parallel ? p->rows / dt_comm_size(m->tp) : p->rows;
}

/* *ret: all rows of x, gathered into p->gather where x is a part of the stream. */
int dt_cut_enter(struct dt_model *m, const struct dt_pass *p, const void *x, const void **ret,
		 const char *what, struct dt_err *err);

/* Where a cut matmul should write the partial sums that will leave for dst. */
void *dt_cut_room(const struct dt_model *m, const struct dt_pass *p, void *dst);

/*
 * Adds up the partial sums [rows, hidden] of all ranks; dst gets all rows, or this rank's. partial is dst
 * itself or what dt_cut_room said; undefined afterwards.
 */
int dt_cut_leave(struct dt_model *m, const struct dt_pass *p, void *dst, void *partial, const char *what,
		 struct dt_err *err);

/*
 * Each rank has the logits of its share of the vocabulary: makes the row statistics those of all of it.
 * target has room for rows more elements behind its own.
 */
int dt_cut_stats(struct dt_model *m, float *rowmax, float *sumexp, float *target, int64_t rows,
		 struct dt_err *err);

#endif
