/* Which transport and algorithm an operation of a group takes. */
#include "comm/nccl.h"
#include "comm/simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TWO_LEVEL_LEAST ((size_t)256 << 10)

const char *dt_alg_name(enum dt_alg a, char buf[16])
{
	const char *s = DT_ALG_CHOICES;

	for (int i = 0; i < (int)a && s; i++)
		s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL;
	snprintf(buf, 16, "%.*s", s ? (int)strcspn(s, "|") : 1, s ? s : "?");
	return buf;
}

/* What the measured costs say for operations of up to 2^i bytes; AUTO: not asked yet. */
struct dt_costs {
	struct dt_topo topo;
	enum dt_alg best[DT_OP_FINISH][48];
};

int dt_comm_set_costs(struct dt_comm *c, const struct dt_topo *t, struct dt_err *err)
{
	struct dt_costs *k = calloc(1, sizeof(*k));

	if (!k || t->ranks != c->size) {
		free(k);
		return k ? dt_err_set(err, -EINVAL, "costs of %d ranks for a group of %d", t->ranks, c->size)
			 : dt_err_sys(err, -ENOMEM, "costs");
	}
	k->topo = *t;
	free(c->costs);
	c->costs = k;
	return 0;
}

/* The cheapest step list by the measured costs; every rank has the same costs and so the same answer. */
static enum dt_alg cheapest(const struct dt_comm *c, enum dt_op_kind kind, size_t bytes)
{
	enum dt_alg best = DT_ALG_MPI;
	double least = 0, t;
	struct dt_steps s;
	int i = 0;

	while (i < 47 && (size_t)1 << i < bytes)
		i++;
	if (c->costs->best[kind][i] != DT_ALG_AUTO)
		return c->costs->best[kind][i];
	for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++) {
		if (!dt_steps_have(kind, (enum dt_alg)a) || (a == DT_ALG_TWO_LEVEL && !c->node_ranks) ||
		    dt_steps_init(&s, kind, (enum dt_alg)a, c->size, 0, (size_t)1 << i, DT_EXEC_CHUNK_BYTES,
				  c->node_ranks, NULL) ||
		    dt_simulate(&s, &c->costs->topo, 1, &t, NULL) || (least > 0 && t >= least))
			continue;
		least = t;
		best = (enum dt_alg)a;
	}
	c->costs->best[kind][i] = best;
	return best;
}

int dt_comm_set_algorithm(struct dt_comm *c, enum dt_alg alg, struct dt_err *err)
{
	char name[16];

	if (alg == DT_ALG_DIRECT && !c->shm && c->size > 1)
		return dt_err_set(err, -ENOTSUP, "algorithm %s: the ranks of group %s do not share memory",
				  dt_alg_name(alg, name), c->name);
	if (alg == DT_ALG_TWO_LEVEL && c->node_ranks == 0)
		return dt_err_set(
			err, -ENOTSUP,
			"algorithm %s: group %s does not have as many ranks on every machine, in order",
			dt_alg_name(alg, name), c->name);
	c->alg = alg;
	return 0;
}

enum dt_alg dt_choose(const struct dt_comm *c, const struct dt_op *o)
{
	size_t bytes = o->n * (size_t)dt_dtype_size(o->t);

	if (c->alg == DT_ALG_MPI || c->alg == DT_ALG_DIRECT || dt_steps_have(o->kind, c->alg))
		return c->alg;
	if (c->shm)
		return DT_ALG_DIRECT;
	if (c->costs)
		return cheapest(c, o->kind,
				bytes * (o->kind == DT_OP_ALL_GATHER || o->kind == DT_OP_REDUCE_SCATTER
						 ? (size_t)c->size
						 : 1));
	if (c->w->opts.transport == DT_TRANSPORT_AUTO && c->node_ranks > 1 && c->node_ranks < c->size &&
	    o->kind == DT_OP_ALL_REDUCE && bytes >= TWO_LEVEL_LEAST)
		return DT_ALG_TWO_LEVEL;
	return DT_ALG_MPI;
}

const struct dt_transport *dt_transport_of(const struct dt_comm *c, const struct dt_op *o)
{
	const struct dt_transport *cards = dt_nccl_transport(c, o);
	enum dt_alg a;

	if (cards)
		return cards;
	if (o->kind == DT_OP_SEND || o->kind == DT_OP_RECV)
		return c->w->chans && c->size > 1 && c->local[o->root] >= 0 ? &dt_transport_chan : c->p2p;
	if (c->size == 1)
		return c->collectives;
	a = dt_choose(c, o);
	return a == DT_ALG_DIRECT ? &dt_transport_shm
	       : a == DT_ALG_MPI  ? &dt_transport_mpi
				  : &dt_transport_steps;
}
