#include "nn/linear.h"

enum { SCALE_ROWS, SCALE_TURNED, SCALE_WEIGHT }; /* of p->fp8.scale */

int dt_linear(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor y,
	      struct dt_tensor x, struct dt_tensor w, struct dt_tensor bias)
{
	const struct dt_ops *o = m->dev->ops;
	const struct dt_fp8_room *f = &p->fp8;
	struct dt_tensor x8 = dt_t2(f->rows, DT_E4M3, x.dim[0], x.dim[1]),
			 w8 = dt_t2(f->weight, DT_E4M3, w.dim[0], w.dim[1]);
	int rc;

	if (!f->used[which])
		return o->matmul(m->dev, y, x, false, w, true, bias, false);
	rc = o->fp8_quantize(m->dev, x8, DT_NONE, &f->scale[SCALE_ROWS], x);
	if (rc == 0)
		rc = o->fp8_quantize(m->dev, w8, DT_NONE, &f->scale[SCALE_WEIGHT], w);
	if (rc == 0)
		rc = o->fp8_matmul(m->dev, y, x8, &f->scale[SCALE_ROWS], w8, &f->scale[SCALE_WEIGHT], bias,
				   false);
	return rc;
}

/* dw (+)= dy^T x, where dy is in 8 bits and transposed already. */
static int weights_in_8(struct dt_model *m, const struct dt_pass *p, struct dt_tensor dw, struct dt_tensor dy,
			struct dt_tensor x)
{
	const struct dt_ops *o = m->dev->ops;
	const struct dt_fp8_room *f = &p->fp8;
	struct dt_tensor dyt = dt_t2(f->turned, DT_E5M2, dy.dim[1], dy.dim[0]),
			 xt = dt_t2(f->rows, DT_E4M3, x.dim[1], x.dim[0]);
	int rc = o->fp8_quantize(m->dev, DT_NONE, xt, &f->scale[SCALE_ROWS], x);

	return rc < 0 ? rc
		      : o->fp8_matmul(m->dev, dw, dyt, &f->scale[SCALE_TURNED], xt, &f->scale[SCALE_ROWS],
				      DT_NONE, p->accumulate);
}

static int backward_in_8(struct dt_model *m, const struct dt_pass *p, struct dt_tensor dx,
			 struct dt_tensor dw, struct dt_tensor dy, struct dt_tensor x, struct dt_tensor w)
{
	const struct dt_ops *o = m->dev->ops;
	const struct dt_fp8_room *f = &p->fp8;
	struct dt_tensor dy8 = dt_t2(f->rows, DT_E5M2, dy.dim[0], dy.dim[1]),
			 dyt = dt_t2(f->turned, DT_E5M2, dy.dim[1], dy.dim[0]),
			 wt = dt_t2(f->weight, DT_E4M3, w.dim[1], w.dim[0]);
	int rc = o->fp8_quantize(m->dev, dy8, p->split ? DT_NONE : dyt, &f->scale[SCALE_TURNED], dy);

	if (rc == 0)
		rc = o->fp8_quantize(m->dev, DT_NONE, wt, &f->scale[SCALE_WEIGHT], w);
	if (rc == 0)
		rc = o->fp8_matmul(m->dev, dx, dy8, &f->scale[SCALE_TURNED], wt, &f->scale[SCALE_WEIGHT],
				   DT_NONE, false);
	return rc < 0 || p->split ? rc : weights_in_8(m, p, dw, dy, x);
}

int dt_linear_backward(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor dx,
		       struct dt_tensor dw, struct dt_tensor dbias, struct dt_tensor dy, struct dt_tensor x,
		       struct dt_tensor w)
{
	const struct dt_ops *o = m->dev->ops;
	int rc = dbias.data ? o->colsum(m->dev, dbias, dy) : 0;

	if (rc < 0)
		return rc;
	if (p->fp8.used[which])
		return backward_in_8(m, p, dx, dw, dy, x, w);
	rc = p->split ? 0 : o->matmul(m->dev, dw, dy, true, x, false, DT_NONE, p->accumulate);
	return rc < 0 ? rc : o->matmul(m->dev, dx, dy, false, w, false, DT_NONE, false);
}

int dt_linear_act(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor y,
		  struct dt_tensor u, struct dt_tensor x, struct dt_tensor w, struct dt_tensor bias)
{
	const struct dt_ops *o = m->dev->ops;
	const enum dt_act_fn f = (enum dt_act_fn)m->c->act;
	int rc;

	if (!p->fp8.used[which])
		return o->matmul_act(m->dev, y, u, x, w, bias, f);
	rc = dt_linear(m, p, which, u, x, w, bias);
	return rc < 0 ? rc : o->act_forward(m->dev, y, u, f);
}

int dt_linear_act_backward(struct dt_model *m, const struct dt_pass *p, enum dt_stash which,
			   struct dt_tensor du, struct dt_tensor dw, struct dt_tensor dbias,
			   struct dt_tensor dy, struct dt_tensor x, struct dt_tensor w, struct dt_tensor u)
{
	const struct dt_ops *o = m->dev->ops;
	const enum dt_act_fn f = (enum dt_act_fn)m->c->act;
	int rc;

	if (p->fp8.used[which]) {
		rc = dt_linear_backward(m, p, which, du, dw, dbias, dy, x, w);
		return rc < 0 ? rc : o->act_backward(m->dev, du, du, u, f);
	}
	rc = dbias.data ? o->colsum(m->dev, dbias, dy) : 0;
	if (rc == 0 && !p->split)
		rc = o->matmul(m->dev, dw, dy, true, x, false, DT_NONE, p->accumulate);
	return rc < 0 ? rc : o->matmul_act_backward(m->dev, du, dy, w, u, f);
}

int dt_linear_weights(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor dw,
		      struct dt_tensor dy, struct dt_tensor x)
{
	const struct dt_ops *o = m->dev->ops;
	const struct dt_fp8_room *f = &p->fp8;
	int rc;

	if (!f->used[which])
		return o->matmul(m->dev, dw, dy, true, x, false, DT_NONE, p->accumulate);
	rc = o->fp8_quantize(m->dev, DT_NONE, dt_t2(f->turned, DT_E5M2, dy.dim[1], dy.dim[0]),
			     &f->scale[SCALE_TURNED], dy);
	return rc < 0 ? rc : weights_in_8(m, p, dw, dy, x);
}
