/*
 * A net of the family "policy" that is trained in this process: weights, an optimizer, and any number of
 * passes over them, each for a fixed number of rows. On the CPU in fp32, with one thread.
 */
#ifndef DT_RL_NET_H
#define DT_RL_NET_H

#include "kernels/optim.h"
#include "model/params.h"

struct dt_net_opts {
	int64_t observation, outputs;
	const char *hidden; /* widths of layers: "64-64" */
	uint64_t seed;	    /* of the first weights */
	struct dt_optim optim;
	double clip; /* the norm of gradients at most; 0: as they are */
};

struct dt_net {
	float *weights, *grads; /* [n] */
	int64_t n;		/* elements, with what lies between tensors */
	const struct dt_config *config;
};

/* -EINVAL where these are no widths of layers. */
int dt_net_check_hidden(const char *hidden, struct dt_err *err);
int dt_net_open(struct dt_net **ret, const struct dt_net_opts *o, struct dt_err *err);
void dt_net_close(struct dt_net *net); /* NULL is allowed */
/* The norm of the current gradients. */
double dt_net_norm(const struct dt_net *net);
/*
 * One optimizer step with the current gradients. norm: their norm, or the norm of all gradients of nets that
 * learn together, which are clipped together; -EDOM if it is not finite.
 */
int dt_net_update(struct dt_net *net, double norm, struct dt_err *err);
/* Optimizer state k, [n] as weights; NULL: the optimizer has no such state. */
float *dt_net_state(struct dt_net *net, int k);
/* The number of updates so far, which the optimizer counts; go_on sets it. */
int64_t dt_net_updates(const struct dt_net *net);
void dt_net_go_on(struct dt_net *net, int64_t updates);
enum dt_optim_kind dt_net_rule(const struct dt_net *net);
/* Tensor i, and where it lies in weights; false past the last. */
bool dt_net_tensor(const struct dt_net *net, int i, const struct dt_param **ret, int64_t *at);

struct dt_pass;

/* A pass over rows; weights: of the net, or others as long. learns: backward too. Closed before its net. */
int dt_pass_open(struct dt_pass **ret, struct dt_net *net, int64_t rows, float *weights, bool learns,
		 struct dt_err *err);
void dt_pass_close(struct dt_pass *p); /* NULL is allowed */
/* [rows, outputs] from in [rows, observation]; they stay until the next pass. */
int dt_pass_forward(struct dt_pass *p, const float *in, const float **ret, struct dt_err *err);

/* dy [rows, outputs]: derivatives of the loss by outputs y, to be written; adds to *loss. */
typedef int dt_pass_judge(void *arg, const float *y, float *dy, double *loss, struct dt_err *err);
/* Forward, judge and backward: the net's gradients are those of this loss. */
int dt_pass_learn(struct dt_pass *p, const float *in, dt_pass_judge *judge, void *arg, double *ret_loss,
		  struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
