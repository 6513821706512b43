/* The transport and algorithm of an operation of a group. */
#include "comm/nccl.h"
#include "comm/steps.h"

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

void dt_comm_set_chooser(struct dt_comm *c, dt_comm_chooser *fn, void *arg)
{
	c->chooser = fn;
	c->chooser_arg = arg;
}

void dt_comm_mpi_only(struct dt_comm *c, bool on)
{
	c->mpi_only = on;
}

int dt_comm_set_algorithm(struct dt_comm *c, enum dt_alg alg, struct dt_err *err)
{
	char name[16];

	if (alg == DT_ALG_DIRECT && !c->shm && c->size > 1)
		return dt_err_set(err, -ENOTSUP, "algorithm %s: the ranks of group %s do not share memory",
				  dt_alg_name(alg, name), c->name);
	if (alg == DT_ALG_TWO_LEVEL && c->node_ranks == 0)
		return dt_err_set(err, -ENOTSUP,
				  "algorithm %s: group %s does not have equally many consecutive ranks on "
				  "every machine",
				  dt_alg_name(alg, name), c->name);
	c->alg = alg;
	return 0;
}

enum dt_alg dt_comm_choose(const struct dt_comm *c, enum dt_comm_op_kind kind, size_t n, enum dt_dtype t)
{
	bool blocks = kind == DT_COMM_ALL_GATHER || kind == DT_COMM_REDUCE_SCATTER;
	size_t bytes = n * (size_t)dt_dtype_size(t);

	if (c->size == 1)
		return DT_ALG_DIRECT;
	if (c->alg == DT_ALG_MPI || c->alg == DT_ALG_DIRECT || dt_comm_steps_have(kind, c->alg))
		return c->alg;
	if (c->shm)
		return DT_ALG_DIRECT;
	if (c->chooser)
		return c->chooser(c->chooser_arg, kind, bytes * (blocks ? (size_t)c->size : 1));
	if (c->w->opts.transport == DT_TRANSPORT_AUTO && c->node_ranks > 1 && c->node_ranks < c->size &&
	    kind == DT_COMM_ALL_REDUCE && bytes >= TWO_LEVEL_LEAST)
		return DT_ALG_TWO_LEVEL;
	return DT_ALG_MPI;
}

const struct dt_comm_transport *dt_comm_transport_of(const struct dt_comm *c, const struct dt_comm_op *o)
{
	const struct dt_comm_transport *cards = dt_comm_nccl_transport(c, o);
	enum dt_alg a;

	if (c->mpi_only && c->size > 1)
		return &dt_comm_transport_mpi;
	if (cards)
		return cards;
	if (o->kind == DT_COMM_SEND || o->kind == DT_COMM_RECV)
		return c->w->chans && c->size > 1 && c->local[o->root] >= 0 ? &dt_comm_transport_chan
									    : c->p2p;
	if (c->size == 1)
		return c->collectives;
	a = dt_comm_choose(c, o->kind, o->n, o->t);
	return a == DT_ALG_DIRECT ? &dt_comm_transport_shm
	       : a == DT_ALG_MPI  ? &dt_comm_transport_mpi
				  : &dt_comm_transport_steps;
}
/* SPDX-License-Identifier: Apache-2.0 */
