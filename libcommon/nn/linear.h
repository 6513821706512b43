/*
 * The linears of a layer, in the compute type, or in 8 bits where the pass has room for that (plan/fp8.h):
 * activations and weights E4M3, gradients E5M2, each tensor scaled by what is in it. The scales are this
 * rank's alone, also where tensor parallelism cuts a tensor: each multiplies a product of this rank's, so
 * nothing has to be agreed upon, and as powers of two they hardly change how a number rounds.
 */
#ifndef DT_NN_LINEAR_H
#define DT_NN_LINEAR_H

#include "nn/model.h"

/* y = x w^T + bias */
int dt_linear(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor y,
	      struct dt_tensor x, struct dt_tensor w, struct dt_tensor bias);

/* dw (+)= dy^T x, dbias += columns of dy; dx = dy w. Split: dw is left for dt_linear_weights. */
int dt_linear_backward(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor dx,
		       struct dt_tensor dw, struct dt_tensor dbias, struct dt_tensor dy, struct dt_tensor x,
		       struct dt_tensor w);
/* u = x w^T + bias, y = the model's activation of u; and the backward of a linear whose x is that y: du in
 * place of dx. */
int dt_linear_act(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor y,
		  struct dt_tensor u, struct dt_tensor x, struct dt_tensor w, struct dt_tensor bias);
int dt_linear_act_backward(struct dt_model *m, const struct dt_pass *p, enum dt_stash which,
			   struct dt_tensor du, struct dt_tensor dw, struct dt_tensor dbias,
			   struct dt_tensor dy, struct dt_tensor x, struct dt_tensor w, struct dt_tensor u);
int dt_linear_weights(struct dt_model *m, const struct dt_pass *p, enum dt_stash which, struct dt_tensor dw,
		      struct dt_tensor dy, struct dt_tensor x);

#endif
