/* What latent.h asks of its arguments. */
#include "kernels/check.h"

static bool fits(struct dt_tensor t, struct dt_tensor qkv, int64_t cols)
{
	return dt_is(t, qkv.dtype, dt_rows(qkv) * cols) && dt_cols(t) == cols;
}

static int check(struct dt_tensor qkv, struct dt_tensor q, struct dt_tensor key, struct dt_tensor kv,
		 const struct dt_latent *p)
{
	if (!dt_is_compute(qkv.dtype) || p->heads < 1 || p->nope < 0 || p->rope < 1 || p->value < 1 ||
	    dt_cols(qkv) != p->heads * (2 * (p->nope + p->rope) + p->value) ||
	    !fits(q, qkv, p->heads * (p->nope + p->rope)) || !fits(key, qkv, p->rope) ||
	    !fits(kv, qkv, p->heads * (p->nope + p->value)))
		return -EINVAL;
	return dt_rows(qkv) ? 0 : DT_EMPTY;
}

int dt_check_latent_join(const struct dt_dev *dev, struct dt_tensor qkv, struct dt_tensor q,
			 struct dt_tensor key, struct dt_tensor kv, const struct dt_latent *p)
{
	return check(qkv, q, key, kv, p);
}

int dt_check_latent_join_backward(const struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkey,
				  struct dt_tensor dkv, struct dt_tensor dqkv, const struct dt_latent *p)
{
	return check(dqkv, dq, dkey, dkv, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
