/* Rows with a target, gathered in place: head and loss of a microbatch are computed for these alone. */
#include "nn/call_loss.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether the loss is the last reader of its input, and reads nothing else by row. */
static bool may_pick(const struct dt_exec *x, const struct dt_node *n, const struct dt_loss *l)
{
	return dt_dev_is_host(x->dev) && !x->flight->host_ce && !dt_loss_taught(x) &&
	       !(x->objective.value && l->value.data) && &x->p->step[x->p->value[n->in[0]].last].n == n;
}

static int64_t count(const int32_t *targets, int64_t rows)
{
	int64_t n = 0;

	for (int64_t i = 0; i < rows; i++)
		n += targets[i] >= 0;
	return n;
}

void dt_exec_pick_close(struct dt_exec_pick *p)
{
	free(p->row);
	free(p->targets);
	free(p->weights);
	*p = (struct dt_exec_pick){0};
}

static int open(struct dt_exec_pick *p, int64_t rows)
{
	if (p->rows >= rows)
		return 0;
	dt_exec_pick_close(p);
	p->row = malloc((size_t)rows * sizeof(*p->row));
	p->targets = malloc((size_t)rows * sizeof(*p->targets));
	p->weights = malloc((size_t)rows * sizeof(*p->weights));
	if (!p->row || !p->targets || !p->weights)
		return -ENOMEM;
	p->rows = rows;
	return 0;
}

int dt_loss_pick(struct dt_exec *x, const struct dt_node *n, struct dt_loss *l)
{
	struct dt_exec_pick *p = &x->pick;
	const int32_t *targets = l->host_targets;
	const int64_t all = l->in.dim[0], some = count(targets, all);
	const size_t row = (size_t)(l->in.dim[1] * dt_dtype_size(l->in.dtype));
	int rc;

	if ((all - some) * DT_LOSS_PICKS < all || !may_pick(x, n, l))
		return 0;
	rc = open(p, all);
	if (rc < 0)
		return rc;
	l->rows = 0;
	for (int64_t i = 0; i < all; i++) {
		if (targets[i] < 0)
			continue;
		p->row[l->rows] = (int32_t)i;
		p->targets[l->rows++] = targets[i];
	}
	rc = dt_call_pick(x->dev, l->in.data, l->in.data, row, p->row, l->rows);
	if (rc < 0)
		return rc;
	l->row = p->row;
	l->targets = l->host_targets = p->targets;
	if (x->objective.judge)
		memset(x->objective.logprob, 0, (size_t)all * sizeof(*x->objective.logprob));
	return 0;
}

/* Rows move from the last to the first: none is overwritten before it has moved. */
void dt_loss_unpick(const struct dt_exec *x, const struct dt_loss *l)
{
	const size_t row = (size_t)(l->din.dim[1] * dt_dtype_size(l->din.dtype));
	char *at = l->din.data;
	int64_t k = l->rows;

	if (!l->row || !x->loss_backward)
		return;
	for (int64_t i = l->din.dim[0] - 1; i >= 0; i--) {
		if (k == 0 || l->row[k - 1] != i)
			memset(at + (size_t)i * row, 0, row);
		else if (--k < i)
			memcpy(at + (size_t)i * row, at + (size_t)k * row, row);
	}
}

const float *dt_loss_weights(struct dt_exec *x, const struct dt_loss *l, const float *all)
{
	for (int64_t i = 0; l->row && i < l->rows; i++)
		x->pick.weights[i] = all[l->row[i]];
	return l->row ? x->pick.weights : all;
}
/* SPDX-License-Identifier: Apache-2.0 */
