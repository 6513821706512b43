/* Argument checks of step.h: those of the fused ops. */
#include "kernels/step.h"

#include "kernels/check.h"

int dt_check_step_heads(const struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
			struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot,
			const struct dt_rope *rope, const int32_t *pos, struct dt_tensor wq,
			struct dt_tensor wk, bool plus_one, float eps)
{
	const struct dt_heads q = {0, p->heads, p->head_dim}, k = {p->heads, p->kv_heads, p->head_dim};
	int rc = dt_check_kv_write(dev, kcache, vcache, qkv, p, slot);

	if (!rc && wq.data)
		rc = dt_check_heads_norm_forward(dev, qkv, DT_NONE, DT_NONE, qkv, wq, plus_one, eps, &q);
	if (!rc && wq.data)
		rc = dt_check_heads_norm_forward(dev, qkv, DT_NONE, DT_NONE, qkv, wk, plus_one, eps, &k);
	if (!rc && rope)
		rc = dt_check_rope(dev, qkv, rope, pos, false);
	if (!rc && (!wq.data != !wk.data || (wq.data && wq.dtype != wk.dtype)))
		rc = -EINVAL;
	return rc;
}

int dt_check_step_norm(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum,
		       struct dt_tensor delta, struct dt_tensor x, struct dt_tensor in,
		       const struct dt_packed *w, struct dt_tensor bias, struct dt_tensor g, bool plus_one,
		       float eps)
{
	const int rc = dt_check_packed_matmul(dev, delta, in, w, bias);

	return rc ? rc : dt_check_rmsnorm_forward(dev, y, DT_NONE, sum, x, delta, g, plus_one, eps);
}
/* SPDX-License-Identifier: Apache-2.0 */
