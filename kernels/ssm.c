/* Argument checks of ssm.h. */
#include "kernels/check.h"

/* 0, DT_EMPTY or -EINVAL of the sizes and x, u or xbc. */
static int check(struct dt_tensor u, const struct dt_ssm *p)
{
	if (p->batch < 0 || p->seq < 0 || p->heads < 1 || p->head_dim < 1 || p->groups < 1 || p->state < 1 ||
	    p->heads % p->groups || p->kernel < 1 || p->kernel > DT_SSM_KERNEL || !dt_is_compute(u.dtype))
		return -EINVAL;
	if (!p->batch || !p->seq)
		return DT_EMPTY;
	return dt_is(u, u.dtype, p->batch * p->seq * dt_ssm_conv(p)) ? 0 : -EINVAL;
}

/* A matrix of `cols` columns beside u. */
static bool matrix(struct dt_tensor t, struct dt_tensor u, const struct dt_ssm *p, int64_t cols)
{
	return dt_is(t, u.dtype, p->batch * p->seq * cols);
}

static bool weight(struct dt_tensor t, struct dt_tensor u, int64_t n)
{
	return dt_is(t, u.dtype, n) || dt_is(t, DT_F32, n);
}

int dt_check_ssm_conv(const struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u, struct dt_tensor w,
		      struct dt_tensor bias, const struct dt_ssm *p)
{
	const int64_t n = dt_ssm_conv(p);
	const int rc = check(u, p);

	return rc ? rc
	       : matrix(xbc, u, p, n) && weight(w, u, n * p->kernel) && (!bias.data || weight(bias, u, n))
		       ? 0
		       : -EINVAL;
}

int dt_check_ssm_conv_backward(const struct dt_dev *dev, struct dt_tensor du, struct dt_tensor dw,
			       struct dt_tensor dbias, struct dt_tensor dxbc, struct dt_tensor u,
			       struct dt_tensor w, struct dt_tensor bias, const struct dt_ssm *p)
{
	const int64_t n = dt_ssm_conv(p);
	const int rc = dt_check_ssm_conv(dev, dxbc, u, w, bias, p);

	return rc ? rc
	       : matrix(du, u, p, n) && dt_is_or_absent(dw, DT_F32, n * p->kernel) &&
			       dt_is_or_absent(dbias, DT_F32, n)
		       ? 0
		       : -EINVAL;
}

int dt_check_ssm_scan(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc, struct dt_tensor t,
		      struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
		      const struct dt_ssm *p)
{
	const int rc = check(xbc, p);

	return rc ? rc
	       : matrix(y, xbc, p, dt_ssm_inner(p)) && matrix(t, xbc, p, p->heads) &&
			       weight(dt_bias, xbc, p->heads) && weight(a_log, xbc, p->heads) &&
			       weight(d, xbc, p->heads)
		       ? 0
		       : -EINVAL;
}

int dt_check_ssm_scan_backward(const struct dt_dev *dev, struct dt_tensor dxbc, struct dt_tensor dt,
			       struct dt_tensor ddt_bias, struct dt_tensor da_log, struct dt_tensor dd,
			       struct dt_tensor dy, struct dt_tensor xbc, struct dt_tensor t,
			       struct dt_tensor dt_bias, struct dt_tensor a_log, struct dt_tensor d,
			       const struct dt_ssm *p)
{
	const int rc = dt_check_ssm_scan(dev, dy, xbc, t, dt_bias, a_log, d, p);

	return rc ? rc
	       : matrix(dxbc, xbc, p, dt_ssm_conv(p)) && matrix(dt, xbc, p, p->heads) &&
			       dt_is_or_absent(ddt_bias, DT_F32, p->heads) &&
			       dt_is_or_absent(da_log, DT_F32, p->heads) &&
			       dt_is_or_absent(dd, DT_F32, p->heads)
		       ? 0
		       : -EINVAL;
}

static bool has_slots(const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	return p->batch == 1 && s->nseq > 0 && s->q_start && s->pos && s->slot && s->slots > 0 && s->base;
}

int dt_check_ssm_conv_step(const struct dt_dev *dev, struct dt_tensor xbc, struct dt_tensor u,
			   struct dt_tensor w, struct dt_tensor bias, const struct dt_ssm *p,
			   const struct dt_ssm_slots *s)
{
	const int rc = dt_check_ssm_conv(dev, xbc, u, w, bias, p);

	return rc ? rc : has_slots(p, s) ? 0 : -EINVAL;
}

int dt_check_ssm_scan_step(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor xbc,
			   struct dt_tensor t, struct dt_tensor dt_bias, struct dt_tensor a_log,
			   struct dt_tensor d, const struct dt_ssm *p, const struct dt_ssm_slots *s)
{
	const int rc = dt_check_ssm_scan(dev, y, xbc, t, dt_bias, a_log, d, p);

	return rc ? rc : has_slots(p, s) ? 0 : -EINVAL;
}

int dt_check_ssm_gate(const struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, struct dt_tensor z)
{
	const int64_t n = dt_numel(x);

	if (!n)
		return DT_EMPTY;
	return dt_is_compute(x.dtype) && dt_is(y, x.dtype, n) && dt_is(x, x.dtype, n) && dt_is(z, x.dtype, n)
		       ? 0
		       : -EINVAL;
}

int dt_check_ssm_gate_backward(const struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dz,
			       struct dt_tensor dy, struct dt_tensor x, struct dt_tensor z)
{
	const int rc = dt_check_ssm_gate(dev, dx, x, z);

	return rc ? rc : dt_check_ssm_gate(dev, dz, dy, z);
}
/* SPDX-License-Identifier: Apache-2.0 */
