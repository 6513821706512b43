/* The scratch of a product, by the way it takes (matmul_path.h). */
#include "kernels/cpu/matmul_path.h"

static struct dt_matmul_key key_of(const struct dt_scratch_on *on, const struct dt_product *p)
{
	return (struct dt_matmul_key){.m = p->m,
				      .n = p->n,
				      .k = p->k,
				      .lda = p->ta ? p->m : p->k,
				      .nthreads = on->threads,
				      .ta = p->ta,
				      .tb = p->tb,
				      .in = (uint8_t)p->in,
				      .out = (uint8_t)p->out,
				      .bias = p->bias,
				      .accumulate = p->accumulate};
}

/* Whether operands are copied to f32. */
static bool widens(const struct dt_scratch_on *on, const struct dt_matmul_key *key)
{
	return dt_scratch_widens(on, (enum dt_dtype)key->in);
}

/* Whether batch invariance is required, and oneDNN's product lacks it (matmul_onednn.c: entry_make). */
static bool is_bound(const struct dt_scratch_on *on, const struct dt_matmul_key *key)
{
	const bool invariant = on->brgemm && !widens(on, key) && !key->ta &&
			       (key->in == DT_F32 || !on->amx_onednn) && !dt_matmul_is_small(key);

	return on->batch_invariant && !invariant;
}

static void whole(const struct dt_scratch_on *on, const struct dt_matmul_key *key, struct dt_scratch *s)
{
	struct dt_matmul_key wide = *key;
	const bool bound = is_bound(on, key);

	if (bound && dt_matmul_rows_takes_on(key, on->amx_onednn)) {
		dt_scratch_raise(s, DT_SCRATCH_PANELS, dt_matmul_panels_bytes(key, on->threads));
	} else if (widens(on, key) || bound) {
		dt_scratch_raise(s, DT_SCRATCH_WIDE, dt_matmul_wide_bytes(key));
		wide.in = wide.out = DT_F32;
		whole(on, &wide, s);
	} else if (dt_matmul_is_small(key) || on->tiles_only) {
		dt_scratch_raise(s, DT_SCRATCH_PANELS, dt_matmul_panels_bytes(key, on->threads));
	} else if (on->brgemm && !on->amx_onednn && dt_matmul_packs(key)) {
		dt_scratch_raise(s, DT_SCRATCH_PANELS, dt_matmul_packed_bytes(key));
	}
}

void dt_matmul_scratch(const struct dt_scratch_on *on, const struct dt_product *p, struct dt_scratch *s)
{
	const struct dt_matmul_key key = key_of(on, p);
	const bool onednn = !widens(on, &key) && !is_bound(on, &key);

	if (!key.k || !key.m || !key.n)
		return;
	if (dt_thin_pays(&key) && widens(on, &key) && !on->batch_invariant) {
		dt_scratch_raise(s, DT_SCRATCH_WIDE, dt_thin_bytes(&key));
		return;
	}
	if (dt_matmul_in_blocks(&key, on->batch_invariant) && onednn)
		return;
	if (!dt_matmul_in_blocks(&key, on->batch_invariant) && dt_matmul_is_deep(&key)) {
		dt_scratch_raise(s, DT_SCRATCH_WIDE, dt_matmul_deep_bytes(&key));
		if (onednn)
			return;
	}
	whole(on, &key, s);
}

bool dt_columns_matmul_scratch(const struct dt_scratch_on *on, const struct dt_product *p,
			       struct dt_scratch *s)
{
	const struct dt_matmul_key key = key_of(on, p);

	if (dt_thin_shape_of(&key) == DT_THIN_NONE || !widens(on, &key) || on->batch_invariant)
		return false;
	dt_scratch_raise(s, DT_SCRATCH_WIDE, dt_thin_bytes(&key));
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
