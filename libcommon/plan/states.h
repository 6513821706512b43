/*
 * Layout of a rank's optimizer states. A state with one value per element has the layout of the masters:
 * whole units, or with ZeRO this rank's share of each. All others are stored parameter by parameter: states
 * by row or column for the rank's box of a matrix, also with ZeRO; blocks and the states of the rest
 * (DT_STATE_REST) for the elements in this rank's share.
 */
#ifndef DT_PLAN_STATES_H
#define DT_PLAN_STATES_H

#include "kernels/optim.h"
#include "model/params.h"
#include "plan/layout.h"

/* The rank whose states these are. */
struct dt_states {
	const struct dt_params *table;
	const struct dt_local *local;
	const struct dt_layout *layout;
	struct dt_coords at;
};

/*
 * Elements of local parameter i that are this rank's to update; *first is the first of them in the
 * parameter.
 */
int64_t dt_states_share(const struct dt_states *s, int i, int64_t *first);

/*
 * Whether a matrix maps the stream to itself: muon's; not an embedding, a head, a router, a norm or a
 * bias.
 */
bool dt_param_is_hidden(const struct dt_param *p);

/*
 * The type in which muon makes matrices orthogonal: bf16 where the run computes in bf16 (or in fp8), else
 * f32. f16 would lose small elements: the sum of a matrix's squares is 1.
 */
static inline enum dt_dtype dt_whole_type(enum dt_dtype compute)
{
	return compute == DT_BF16 ? DT_BF16 : DT_F32;
}

/* Bytes beside a matrix for that: the next iterate (bf16: two), two squares of the shorter side. */
static inline int64_t dt_whole_room(int64_t rows, int64_t cols, enum dt_dtype t)
{
	const int64_t side = rows < cols ? rows : cols;

	return rows * cols * 4 + 2 * side * side * dt_dtype_size(t);
}

/*
 * Bytes of a state that does not lie flat. ret_at [local->n] (NULL: not wanted): where each parameter's
 * begins, a multiple of 64; -1: it has none.
 */
int64_t dt_states_place(const struct dt_states *s, const struct dt_optim_state *state, int64_t *ret_at);

/* Elements, or bytes of blocks, of local parameter i in that state. */
int64_t dt_states_count(const struct dt_states *s, const struct dt_optim_state *state, int i);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
