/* Runs the ops one after another: the CPU has no launches to save. */
#include "kernels/step.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/team.h"

#include <stdatomic.h>

/* What is rotated and written to the cache. */
struct heads {
	struct dt_tensor kcache, vcache, qkv;
	const struct dt_attn *p;
	const int64_t *slot;
	const struct dt_rope *rope; /* NULL: no rotation */
	const int32_t *pos;
};

/* Rows [first, last). */
static int turn_and_write(struct dt_dev *dev, const struct heads *a, int64_t first, int64_t last)
{
	const int64_t cols = dt_cols(a->qkv);
	const struct dt_tensor x = dt_t2(dt_at(a->qkv, first * cols), a->qkv.dtype, last - first, cols);
	const int rc = a->rope ? dt_cpu_rope(dev, x, a->rope, a->pos + first, false) : 0;

	return rc ? rc : dt_cpu_kv_write(dev, a->kcache, a->vcache, x, a->p, a->slot + first);
}

struct turn {
	struct dt_dev *dev;
	const struct heads *a;
	atomic_int rc;
};

static void turn_some(void *arg, int t, int64_t first, int64_t last)
{
	struct turn *w = arg;
	const int rc = first < last ? turn_and_write(w->dev, w->a, first, last) : 0;

	if (rc < 0)
		atomic_store(&w->rc, rc);
}

/* Each thread rotates and writes its own rows, without a barrier in between: inside the parallel region the
 * ops' own loops run on one thread. */
static int turn_and_write_all(struct dt_dev *dev, const struct heads *a)
{
	const int64_t rows = dt_rows(a->qkv);
	struct turn w = {dev, a, 0};

	if (a->rope && !dt_rope_has(a->rope, a->pos, rows))
		return -EINVAL;
	dt_cpu_rows(dev, rows, dt_cols(a->qkv), turn_some, &w);
	return w.rc;
}

int dt_cpu_step_heads(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		      struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot,
		      const struct dt_rope *rope, const int32_t *pos, struct dt_tensor wq,
		      struct dt_tensor wk, bool plus_one, float eps)
{
	const struct dt_heads q = {0, p->heads, p->head_dim}, k = {p->heads, p->kv_heads, p->head_dim};
	const struct heads a = {kcache, vcache, qkv, p, slot, rope, pos};
	int rc = p->value_dim ? -ENOTSUP : 0;

	if (!rc && wq.data)
		rc = dt_cpu_heads_norm_forward(dev, qkv, DT_NONE, DT_NONE, qkv, wq, plus_one, eps, &q);
	if (!rc && wq.data)
		rc = dt_cpu_heads_norm_forward(dev, qkv, DT_NONE, DT_NONE, qkv, wk, plus_one, eps, &k);
	return rc ? rc : turn_and_write_all(dev, &a);
}

int dt_cpu_step_norm(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor sum, struct dt_tensor delta,
		     struct dt_tensor x, struct dt_tensor in, const struct dt_packed *w,
		     struct dt_tensor bias, struct dt_tensor g, bool plus_one, float eps)
{
	const int rc = dt_cpu_packed_matmul(dev, delta, in, w, bias);

	return rc ? rc : dt_cpu_rmsnorm_forward(dev, y, DT_NONE, sum, x, delta, g, plus_one, eps);
}
/* SPDX-License-Identifier: Apache-2.0 */
