/* Removes backward work that frozen tensors make unnecessary. */
#include "model/op/rule.h"

#include <stdlib.h>
#include <string.h>

/* Whether a step adds to the gradient of a trained tensor. */
static bool trains(const struct dt_lower *lo, const struct dt_node *n)
{
	if (!(dt_node_op_flags(n->op) & DT_OPF_GRAD))
		return false;
	for (int i = 0; i < DT_NODE_PARAM; i++)
		if (n->param[i] >= 0 && !lo->s->graph->params.p[n->param[i]].frozen)
			return true;
	return false;
}

static bool is_read(const bool *read, const struct dt_node *n)
{
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] >= 0 && read[n->out[i]])
			return true;
	return false;
}

/* Keeps the steps of a list that train, or whose results are read later. */
static void prune(struct dt_lower *lo, enum dt_list l, bool *read)
{
	int n = 0;

	if (!lo->n[l])
		return;
	for (int i = lo->n[l] - 1; i >= 0; i--) {
		struct dt_step s = lo->list[l][i];

		if (!trains(lo, &s.n) && !is_read(read, &s.n))
			continue;
		for (int k = 0; k < DT_NODE_IN; k++)
			if (s.n.in[k] >= 0)
				read[s.n.in[k]] = true;
		lo->list[l][lo->n[l] - ++n] = s; /* stored at the end, past the steps still to be examined */
	}
	memmove(lo->list[l], lo->list[l] + lo->n[l] - n, (size_t)n * sizeof(*lo->list[l]));
	lo->n[l] = n;
}

void dt_lo_prune(struct dt_lower *lo)
{
	bool *read;

	if (lo->failed || !dt_params_any_frozen(&lo->s->graph->params))
		return;
	read = calloc((size_t)lo->p->nvalue + 1, sizeof(*read));
	if (!read) {
		lo->failed = true;
		return;
	}
	if (lo->p->grad_out >= 0)
		read[lo->p->grad_out] = true;
	prune(lo, DT_LIST_WEIGHTS, read);
	prune(lo, DT_LIST_BACKWARD, read);
	free(read);
}
/* SPDX-License-Identifier: Apache-2.0 */
