/* oneDNN has no product that gives both u and f(u), and blocks of rows that stay in a cache, from 64 to 1024,
 * were no faster than all rows of one and then of the other. */
#include "kernels/cpu/cpu.h"

/* All of type t, with rows by cols elements. */
static bool fits(struct dt_tensor x, enum dt_dtype t, int64_t rows, int64_t cols)
{
	return x.dtype == t && dt_rows(x) == rows && dt_cols(x) == cols;
}

int dt_cpu_matmul_act(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor u, struct dt_tensor x,
		      struct dt_tensor w, struct dt_tensor bias, enum dt_act_fn f)
{
	int rc;

	if (!fits(u, x.dtype, dt_rows(x), dt_rows(w)) || !fits(y, x.dtype, dt_rows(x), dt_rows(w)))
		return -EINVAL;
	rc = dt_cpu_matmul(dev, u, x, false, w, true, bias, false);
	return rc < 0 ? rc : dt_cpu_act_forward(dev, y, u, f);
}

int dt_cpu_matmul_act_backward(struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dy,
			       struct dt_tensor w, struct dt_tensor u, enum dt_act_fn f)
{
	int rc;

	if (!fits(u, dy.dtype, dt_rows(dy), dt_cols(w)) || !fits(du, dy.dtype, dt_rows(dy), dt_cols(w)))
		return -EINVAL;
	rc = dt_cpu_matmul(dev, du, dy, false, w, false, DT_NONE, false);
	return rc < 0 ? rc : dt_cpu_act_backward(dev, du, du, u, f);
}
