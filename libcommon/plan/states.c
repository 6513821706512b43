#include "plan/states.h"

int64_t dt_states_share(const struct dt_states *s, int i, int64_t *first)
{
	const struct dt_local_param *p = &s->local->p[i];
	const struct dt_local_unit *u = &s->local->unit[p->unit];
	int64_t n = u->share, from = dt_unit_share_first(s->layout, u, s->at), start = p->flat - u->flat,
		lo = start > from ? start : from,
		hi = start + p->numel < from + n ? start + p->numel : from + n;

	*first = lo - start;
	return hi - lo > 0 ? hi - lo : 0;
}

bool dt_param_is_hidden(const struct dt_param *p)
{
	switch (p->role) {
	case DT_W_EMBED:
	case DT_W_POS:
	case DT_W_TYPES:
	case DT_W_LABELS:
	case DT_W_HEAD:
	case DT_W_CLASSES:
	case DT_W_ROUTER:
		return false;
	default:
		return p->ndim == 2;
	}
}

int64_t dt_states_count(const struct dt_states *s, const struct dt_optim_state *state, int i)
{
	const struct dt_local_param *p = &s->local->p[i];
	const struct dt_param *what = &s->table->p[p->index];
	int64_t first, n = dt_states_share(s, i, &first);

	if (s->local->unit[p->unit].frozen || (state->shape == DT_STATE_REST && dt_param_is_hidden(what)))
		return 0;
	switch (state->shape) {
	case DT_STATE_ROWS:
		return p->shape[0];
	case DT_STATE_COLS:
		return p->shape[1];
	case DT_STATE_BLOCKS:
		return dt_optim_state_bytes(state, 1, n);
	case DT_STATE_EACH:
	case DT_STATE_REST:
		return n;
	case DT_STATE_NONE:
		break;
	}
	return 0;
}

int64_t dt_states_place(const struct dt_states *s, const struct dt_optim_state *state, int64_t *ret_at)
{
	const int64_t each = state->shape == DT_STATE_BLOCKS ? 1 : dt_dtype_size(state->dtype);
	int64_t sum = 0;

	for (int i = 0; i < s->local->n; i++) {
		int64_t n = dt_states_count(s, state, i) * each;

		if (ret_at)
			ret_at[i] = n ? sum : -1;
		sum += (n + 63) / 64 * 64;
	}
	return sum;
}
/* SPDX-License-Identifier: Apache-2.0 */
