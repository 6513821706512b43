/* Mamba-2's mixer, of the sizes of mamba2-130m's: 2048 tokens, 24 heads of 64, a state of 128 x 64 each. */
#include "kernels.h"

#include "kernels/ssm.h"

void state_space(enum dt_dtype t)
{
	const struct dt_ssm p = {1, 2048, 24, 64, 1, 128, 4};
	const int64_t inner = dt_ssm_inner(&p), conv = dt_ssm_conv(&p), q = DT_SSM_CHUNK;
	const double size = dt_dtype_size(t), rows = (double)p.seq, h = (double)p.heads, d = 64, n = 128,
		     /* products of a row: those of a head, and those of the group's B and C */
		forward = h * ((double)q * d + 2 * n * d) + (double)q * n,
		     backward = h * (2 * (double)q * d + 5 * n * d) + 3 * (double)q * n;
	struct dt_tensor u = tensor(t, p.seq, conv), xbc = tensor(t, p.seq, conv),
			 du = tensor(t, p.seq, conv), y = tensor(t, p.seq, inner),
			 z = tensor(t, p.seq, inner), dy = tensor(t, p.seq, inner),
			 s = tensor(t, p.seq, p.heads), ds = tensor(t, p.seq, p.heads),
			 w = tensor(t, conv, p.kernel), b = tensor(t, 1, conv),
			 v = tensor(DT_F32, 1, p.heads), dw = tensor(DT_F32, conv, p.kernel),
			 db = tensor(DT_F32, 1, conv);
	double best;

	if (!wanted("ssm"))
		goto done;
	TIME(best, ops->ssm_conv(dev, xbc, u, w, b, &p));
	row("ssm_conv", "2048 x 1792", t, best, 0, 2 * size * rows * (double)conv);
	TIME(best, ops->ssm_conv_backward(dev, du, dw, db, xbc, u, w, b, &p));
	row("ssm_conv_backward", "2048 x 1792", t, best, 0, 3 * size * rows * (double)conv);
	TIME(best, ops->ssm_scan(dev, y, xbc, s, v, v, v, &p));
	row("ssm_scan", "T 2048, 24 x 64, state 128", t, best, 2 * rows * forward, 0);
	TIME(best, ops->ssm_scan_backward(dev, du, ds, v, v, v, dy, xbc, s, v, v, v, &p));
	row("ssm_scan_backward", "T 2048, 24 x 64, state 128", t, best, 2 * rows * backward, 0);
	TIME(best, ops->ssm_gate(dev, y, dy, z));
	row("ssm_gate", "2048 x 1536", t, best, 0, 3 * size * rows * (double)inner);
	TIME(best, ops->ssm_gate_backward(dev, y, dy, y, dy, z));
	row("ssm_gate_backward", "2048 x 1536", t, best, 0, 5 * size * rows * (double)inner);
done:
	free(u.data), free(xbc.data), free(du.data), free(y.data), free(z.data), free(dy.data), free(s.data);
	free(ds.data), free(w.data), free(b.data), free(v.data), free(dw.data), free(db.data);
}
/* SPDX-License-Identifier: Apache-2.0 */
