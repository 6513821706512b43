#include "rl/net.h"

#include "base/arena.h"
#include "nn/exec.h"

#include <errno.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct dt_layout one = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};

struct net {
	struct dt_net out; /* the public part, which must be first */
	struct dt_net_opts o;
	struct dt_config config;
	struct dt_params table;
	struct dt_local local;
	struct dt_dev *dev;
	float *state[DT_OPTIM_STATES];
};

struct dt_pass {
	struct net *net;
	struct dt_run run;
	struct dt_memory_plan plan;
	struct dt_arena arena;
	struct dt_exec x;
	struct dt_flight flight;
	int64_t rows;
	float *y; /* [rows, outputs] */
	dt_pass_judge *judge;
	void *arg;
};

static struct net *of(struct dt_net *n)
{
	return (struct net *)n;
}

static int describe(struct net *net, struct dt_err *err)
{
	struct dt_config *c = &net->config;

	snprintf(c->name, sizeof(c->name), "policy");
	snprintf(c->family, sizeof(c->family), "policy");
	if ((size_t)snprintf(c->blocks, sizeof(c->blocks), "%s", net->o.hidden) >= sizeof(c->blocks))
		return dt_err_set(err, -EINVAL, "'%s': too many layer widths", net->o.hidden);
	c->vocab = net->o.outputs;
	c->channels = net->o.observation;
	c->image_size = 1;
	c->norm_eps = 1e-5;
	dt_config_complete_image(c);
	return dt_config_check(c, err);
}

int dt_net_check_hidden(const char *hidden, struct dt_err *err)
{
	struct net net = {.o = {.observation = 1, .outputs = 2, .hidden = hidden}};

	return describe(&net, NULL) < 0
		       ? dt_err_set(err, -EINVAL, "'%.80s' is not a list of layer widths, as in 64-64",
				    hidden)
		       : 0;
}

static void first_weights(struct net *net)
{
	for (int i = 0; i < net->local.n; i++) {
		const struct dt_local_param *lp = &net->local.p[i];

		dt_param_init(&net->table.p[lp->index], lp, net->o.seed, 0, lp->numel,
			      net->out.weights + lp->flat);
	}
}

static int open_net(struct net *net, struct dt_err *err)
{
	struct dt_coords at = {0};
	int rc = describe(net, err);
	size_t n;

	omp_set_num_threads(1); /* OpenMP threads do not survive a later fork */
	if (rc == 0)
		rc = dt_model_params(&net->config, &net->table, err);
	if (rc == 0)
		rc = dt_local_build(&net->table, &net->config, &one, at, &net->local, err);
	if (rc == 0 && (rc = dt_dev_open(&net->dev, DT_DEV_CPU, 0, 1)) < 0)
		rc = dt_err_sys(err, rc, "cannot open the device");
	if (rc < 0)
		return rc;
	net->dev->batch_invariant = true; /* an actor's samples must not depend on its other environments */
	net->out.config = &net->config;
	net->out.n = net->local.numel;
	n = (size_t)net->local.numel * sizeof(float);
	net->out.weights = aligned_alloc(DT_ALIGN, dt_align_up(n));
	net->out.grads = aligned_alloc(DT_ALIGN, dt_align_up(n));
	for (int k = 0; k < DT_OPTIM_STATES; k++)
		net->state[k] = calloc(1, n);
	if (!net->out.weights || !net->out.grads || !net->state[0] || !net->state[1])
		return dt_err_sys(err, -ENOMEM, "cannot open a net");
	memset(net->out.weights, 0, n);
	memset(net->out.grads, 0, n);
	first_weights(net);
	return 0;
}

int dt_net_open(struct dt_net **ret, const struct dt_net_opts *o, struct dt_err *err)
{
	struct net *net = calloc(1, sizeof(*net));
	int rc;

	if (!net)
		return dt_err_sys(err, -ENOMEM, "cannot open a net");
	net->o = *o;
	rc = open_net(net, err);
	if (rc < 0)
		dt_net_close(&net->out);
	else
		*ret = &net->out;
	return rc;
}

void dt_net_close(struct dt_net *n)
{
	struct net *net = of(n);

	if (!net)
		return;
	for (int k = 0; k < DT_OPTIM_STATES; k++)
		free(net->state[k]);
	free(net->out.weights);
	free(net->out.grads);
	if (net->dev)
		dt_dev_close(net->dev);
	dt_local_release(&net->local);
	dt_params_release(&net->table);
	free(net);
}

float *dt_net_state(struct dt_net *n, int k)
{
	return k < dt_optim_states(of(n)->o.optim.kind) ? of(n)->state[k] : NULL;
}

int64_t dt_net_updates(const struct dt_net *n)
{
	return ((const struct net *)n)->o.optim.t;
}

void dt_net_go_on(struct dt_net *n, int64_t updates)
{
	of(n)->o.optim.t = updates;
}

enum dt_optim_kind dt_net_rule(const struct dt_net *n)
{
	return ((const struct net *)n)->o.optim.kind;
}

bool dt_net_tensor(const struct dt_net *n, int i, const struct dt_param **ret, int64_t *at)
{
	const struct net *net = (const struct net *)n;

	if (i >= net->local.n)
		return false;
	*ret = &net->table.p[net->local.p[i].index];
	*at = net->local.p[i].flat;
	return true;
}

double dt_net_norm(const struct dt_net *n)
{
	double sum = 0;

	for (int64_t i = 0; i < n->n; i++)
		sum += (double)n->grads[i] * (double)n->grads[i];
	return sqrt(sum);
}

int dt_net_update(struct dt_net *n, double norm, struct dt_err *err)
{
	struct net *net = of(n);
	struct dt_tensor t[4];
	int rc;

	if (!isfinite(norm))
		return dt_err_set(err, -EDOM, "the gradient is not finite");
	net->o.optim.t++;
	net->o.optim.grad_scale = net->o.clip > 0 && norm > net->o.clip ? (float)(net->o.clip / norm) : 1.0f;
	t[0] = dt_t1(n->weights, DT_F32, n->n);
	t[1] = dt_t1(n->grads, DT_F32, n->n);
	for (int k = 0; k < 2; k++)
		t[2 + k] =
			k < dt_optim_states(net->o.optim.kind) ? dt_t1(net->state[k], DT_F32, n->n) : DT_NONE;
	rc = net->dev->ops->optim_step(net->dev, &net->o.optim, DT_NONE, t[0], t[1], t[2], t[3]);
	return rc < 0 ? dt_kernel_check(rc, "optim_step(", err) : 0;
}

/* Stores the outputs of the last layer and, with dy, asks the judge for the loss. */
static int outputs(void *arg, int64_t rows, const float *y, float *dy, double *loss, struct dt_err *err)
{
	struct dt_pass *p = arg;

	memcpy(p->y, y, (size_t)(rows * p->net->o.outputs) * sizeof(*y));
	return dy ? p->judge(p->arg, p->y, dy, loss, err) : 0;
}

/* Binds the weights and gradients of each unit. */
static int bind(struct dt_pass *p, float *weights, bool learns, struct dt_err *err)
{
	const struct dt_local *l = &p->net->local;
	void **w = calloc((size_t)l->nunit, sizeof(*w));
	float **g = calloc((size_t)l->nunit, sizeof(*g));
	struct dt_coords at = {0};
	int rc = w && g ? 0 : dt_err_sys(err, -ENOMEM, "cannot open a pass");

	for (int u = 0; u < l->nunit && rc == 0; u++) {
		w[u] = weights + l->unit[u].flat;
		g[u] = p->net->out.grads + l->unit[u].flat;
	}
	if (rc == 0)
		rc = dt_exec_open(&p->x, &p->run, at, &p->plan, p->arena.base, NULL, p->net->dev, w,
				  learns ? g : NULL, err);
	free(w);
	free(g);
	return rc;
}

int dt_pass_open(struct dt_pass **ret, struct dt_net *net, int64_t rows, float *weights, bool learns,
		 struct dt_err *err)
{
	struct dt_pass *p = calloc(1, sizeof(*p));
	struct dt_coords at = {0};
	int rc;

	if (!p)
		return dt_err_sys(err, -ENOMEM, "cannot open a pass");
	p->net = of(net);
	p->rows = rows;
	p->run = (struct dt_run){.config = &p->net->config,
				 .layout = one,
				 .microbatch = rows,
				 .seq = 1,
				 .compute = DT_F32,
				 .optim.kind = DT_OPTIM_SGD,
				 .loss_chunk = rows};
	p->y = calloc((size_t)(rows * p->net->o.outputs), sizeof(*p->y));
	rc = p->y ? dt_memory_plan(&p->run, at, &p->plan, err)
		  : dt_err_sys(err, -ENOMEM, "cannot open a pass");
	if (rc == 0)
		rc = dt_arena_init(&p->arena, p->plan.arena_bytes, err);
	if (rc == 0)
		rc = bind(p, weights, learns, err);
	if (rc == 0)
		rc = dt_flight_open(&p->flight, &p->x, 0, 0, err);
	p->x.objective.outputs = outputs;
	p->x.objective.arg = p;
	p->x.loss_scale = 1;
	p->x.training = true;
	if (rc < 0)
		dt_pass_close(p);
	else
		*ret = p;
	return rc;
}

void dt_pass_close(struct dt_pass *p)
{
	if (!p)
		return;
	dt_flight_close(&p->flight, p->net->dev);
	dt_exec_close(&p->x);
	dt_arena_release(&p->arena);
	dt_memory_plan_release(&p->plan);
	free(p->y);
	free(p);
}

static int run(struct dt_pass *p, const float *in, enum dt_list last, struct dt_err *err)
{
	int rc = 0;

	memcpy(p->flight.pixels, in, (size_t)(p->rows * p->net->o.observation) * sizeof(*in));
	p->x.loss_backward = last > DT_LIST_LOSS;
	p->x.loss_sum = 0;
	if (p->x.loss_backward)
		rc = dt_exec_zero_grads(&p->x, 0, p->net->local.nunit, err);
	for (int l = 0; l <= (int)last && rc == 0; l++)
		rc = dt_exec_run(&p->x, &p->flight, (enum dt_list)l, NULL, err);
	return rc;
}

int dt_pass_forward(struct dt_pass *p, const float *in, const float **ret, struct dt_err *err)
{
	int rc = run(p, in, DT_LIST_LOSS, err);

	*ret = p->y;
	return rc;
}

int dt_pass_learn(struct dt_pass *p, const float *in, dt_pass_judge *judge, void *arg, double *ret_loss,
		  struct dt_err *err)
{
	int rc;

	p->judge = judge;
	p->arg = arg;
	rc = run(p, in, DT_LIST_WEIGHTS, err);
	if (ret_loss)
		*ret_loss = p->x.loss_sum;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
