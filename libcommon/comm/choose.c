/* Which transport and algorithm an operation of a group takes. */
#include "comm/steps.h"

#include <errno.h>
#include <stdio.h>
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
	if (c->w->opts.transport == DT_TRANSPORT_AUTO && c->node_ranks > 1 && c->node_ranks < c->size &&
	    o->kind == DT_OP_ALL_REDUCE && bytes >= TWO_LEVEL_LEAST)
		return DT_ALG_TWO_LEVEL;
	return DT_ALG_MPI;
}

const struct dt_transport *dt_transport_of(const struct dt_comm *c, const struct dt_op *o)
{
	enum dt_alg a;

	if (o->kind == DT_OP_SEND || o->kind == DT_OP_RECV)
		return c->p2p;
	if (c->size == 1)
		return c->collectives;
	a = dt_choose(c, o);
	return a == DT_ALG_DIRECT ? &dt_transport_shm
	       : a == DT_ALG_MPI  ? &dt_transport_mpi
				  : &dt_transport_steps;
}
