/* Parts of an adapter: a reader's matrices, copied into dt's row order. */
#include "ckpt/adapter_priv.h"

#include "kernels/rope.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool all_finite(const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!isfinite(x[i]))
			return false;
	return true;
}

float *adapter_room(int64_t n)
{
	return malloc((size_t)n * sizeof(float));
}

static void release(const struct dt_adapter_part *p)
{
	free(p->a);
	free(p->b);
	free(p->m);
}

int adapter_add(struct adapter_in *in, int i, const struct adapter_part_in *from, struct dt_err *err)
{
	const struct dt_param *p = &in->params->p[i];
	const int64_t rank = from->rank, cols = p->shape[1], rows = p->shape[0];
	struct dt_adapter_part part = {.param = i,
				       .rank = rank,
				       .in = cols,
				       .out = rows,
				       .scale = from->scale,
				       .above = from->above};
	struct dt_adapter_part *more = realloc(in->a->part, ((size_t)in->a->n + 1) * sizeof(*in->a->part));
	bool turned = dt_param_is_rotary(in->c, p);

	if (more)
		in->a->part = more;
	part.a = adapter_room(rank * cols);
	part.b = adapter_room(rank * rows);
	part.m = from->m ? adapter_room(rows) : NULL;
	if (!more || !part.a || !part.b || (from->m && !part.m)) {
		release(&part);
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", in->a->path);
	}
	memcpy(part.a, from->a, (size_t)(rank * cols) * sizeof(float));
	for (int64_t r = 0; r < rows; r++) {
		int64_t at = turned ? dt_rope_row(r, in->c->head_dim, in->pairing, in->c->rope_pairing) : r;

		at = from->at ? dt_place_row(from->at, at) : at;
		memcpy(part.b + r * rank, from->b + at * rank, (size_t)rank * sizeof(float));
		if (part.m)
			part.m[r] = from->m[at];
	}
	in->a->part[in->a->n++] = part;
	if (!all_finite(part.a, rank * cols) || !all_finite(part.b, rank * rows) ||
	    (part.m && !all_finite(part.m, rows)))
		return dt_err_set(err, -EINVAL, "adapter '%s': the update of '%s' has NaN or Inf",
				  in->a->path, p->name);
	return 0;
}

bool adapter_place(const struct adapter_in *in, enum dt_names scheme, int i, struct dt_place_in_file *ret)
{
	const struct dt_param *p = &in->params->p[i];
	size_t n, end = strlen(".weight");

	if (p->ndim != 2 || p->experts || p->role == DT_W_EMBED || p->role == DT_W_POS ||
	    p->role == DT_W_TYPES || !dt_names_place(scheme, in->c, p, 0, ret) || ret->split != 1)
		return false;
	n = strlen(ret->name);
	if (n <= end || strcmp(ret->name + n - end, ".weight"))
		return false;
	ret->name[n - end] = '\0';
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
