#include "comm/steps_priv.h"

#include <errno.h>

/* Ranks base, base + stride, ... work on elements [lo, lo + len), cut in q blocks; me is one of them. */
struct part {
	int q, me, base, stride;
	size_t lo, len;
};

static int log2_up(int p)
{
	return p > 1 ? 32 - __builtin_clz((unsigned)p - 1) : 0;
}

static size_t block_at(const struct part *t, int i)
{
	size_t q = (size_t)t->q, each = t->len / q, more = t->len % q;

	return t->lo + each * (size_t)i + ((size_t)i < more ? (size_t)i : more);
}

/* Adds moves for blocks first to first + count - 1, modulo q. */
static void add_blocks(struct dt_comm_moves *m, const struct part *t, enum dt_comm_move_kind kind, int with,
		       int first, int count)
{
	int peer = t->base + with * t->stride, end;

	first %= t->q;
	end = first + count < t->q ? first + count : t->q;
	dt_comm_moves_add(m, kind, peer, block_at(t, first), block_at(t, end) - block_at(t, first));
	if (first + count > t->q)
		dt_comm_moves_add(m, kind, peer, t->lo, block_at(t, first + count - t->q) - t->lo);
}

static void ring_scatter(const struct part *t, int round, struct dt_comm_moves *m)
{
	int q = t->q;

	add_blocks(m, t, DT_COMM_MOVE_SEND, (t->me + 1) % q, t->me + 2 * q - 1 - round, 1);
	add_blocks(m, t, DT_COMM_MOVE_REDUCE, (t->me + q - 1) % q, t->me + 2 * q - 2 - round, 1);
}

static void ring_gather(const struct part *t, int round, struct dt_comm_moves *m)
{
	int q = t->q;

	add_blocks(m, t, DT_COMM_MOVE_SEND, (t->me + 1) % q, t->me + q - round, 1);
	add_blocks(m, t, DT_COMM_MOVE_RECV, (t->me + q - 1) % q, t->me + 2 * q - 1 - round, 1);
}

/* Recursive doubling: with d = 2^round a rank has blocks me ... me + d - 1, and gets d from me + d. */
static void log_gather(const struct part *t, int round, struct dt_comm_moves *m)
{
	int q = t->q, d = 1 << round, count = d < q - d ? d : q - d;

	add_blocks(m, t, DT_COMM_MOVE_SEND, (t->me + q - d) % q, t->me, count);
	add_blocks(m, t, DT_COMM_MOVE_RECV, (t->me + d) % q, t->me + d, count);
}

/* The reverse of the all-gather: partial sums take the blocks' ways back. */
static void log_scatter(const struct part *t, int round, struct dt_comm_moves *m)
{
	int q = t->q, d = 1 << (log2_up(q) - 1 - round), count = d < q - d ? d : q - d;

	add_blocks(m, t, DT_COMM_MOVE_SEND, (t->me + d) % q, t->me + d, count);
	add_blocks(m, t, DT_COMM_MOVE_REDUCE, (t->me + q - d) % q, t->me, count);
}

/* Every rank exchanges with every other rank at once. */
static void all_pairs(const struct part *t, bool reduce, struct dt_comm_moves *m)
{
	for (int j = 0; j < t->q; j++) {
		if (j == t->me)
			continue;
		add_blocks(m, t, DT_COMM_MOVE_SEND, j, reduce ? j : t->me, 1);
		add_blocks(m, t, reduce ? DT_COMM_MOVE_REDUCE : DT_COMM_MOVE_RECV, j, reduce ? t->me : j, 1);
	}
}

static struct part whole(const struct dt_comm_steps *s, int rank)
{
	return (struct part){.q = s->p, .me = rank, .base = 0, .stride = 1, .lo = 0, .len = s->n};
}

/* One message between the root and another rank: to the root (in) or from it. */
static void star(const struct dt_comm_steps *s, int rank, int other, bool in, struct dt_comm_moves *m)
{
	int root = s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE ? s->root : 0;
	struct part t = whole(s, other);
	size_t at = 0, n = s->n;
	bool sends = in ? rank == other : rank == root, gather = s->kind == DT_COMM_ALL_GATHER;

	if (rank != other && rank != root)
		return;
	if ((gather && in) || (s->kind == DT_COMM_REDUCE_SCATTER && !in)) {
		at = block_at(&t, other);
		n = block_at(&t, other + 1) - at;
	}
	dt_comm_moves_add(m,
			  sends		  ? DT_COMM_MOVE_SEND
			  : in && !gather ? DT_COMM_MOVE_REDUCE
					  : DT_COMM_MOVE_RECV,
			  rank == root ? other : root, at, n);
}

/* The rank that exchanges with the root in this round of naive; *in: to the root. */
static int naive_other(const struct dt_comm_steps *s, int round, bool *in)
{
	int root = s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE ? s->root : 0, k;

	*in = dt_comm_steps_inward(s) && round < s->p - 1;
	k = round % (s->p - 1);
	return (root + 1 + k) % s->p;
}

static void ps_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	int root = s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE ? s->root : 0;
	bool in = dt_comm_steps_inward(s) && round == 0;

	if (rank != root) {
		star(s, rank, rank, in, m);
		return;
	}
	for (int j = 0; j < s->p; j++)
		if (j != root)
			star(s, rank, j, in, m);
}

/* Two levels: reduce-scatter inside a node, all-reduce between ranks at the same place, all-gather inside. */
static void two_level_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	int g = s->node_ranks, nodes = s->p / g, lg = log2_up(nodes), inner = g > 1;
	struct part in = {.q = g, .me = rank % g, .base = rank / g * g, .stride = 1, .lo = 0, .len = s->n};
	struct part out = {.q = nodes, .me = rank / g, .base = rank % g, .stride = g};

	out.lo = block_at(&in, in.me);
	out.len = block_at(&in, in.me + 1) - out.lo;
	if (inner && (round == 0 || round == s->rounds - 1))
		all_pairs(&in, round == 0, m);
	else if (round - inner < lg)
		log_scatter(&out, round - inner, m);
	else
		log_gather(&out, round - inner - lg, m);
}

static void ring_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	struct part t = whole(s, rank);
	int first = s->kind == DT_COMM_ALL_GATHER ? 0 : s->p - 1;

	if (s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE)
		dt_comm_chain_round(s, rank, round, m);
	else if (round < first)
		ring_scatter(&t, round, m);
	else
		ring_gather(&t, round - first, m);
}

static void log_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	struct part t = whole(s, rank);
	int lg = s->kind == DT_COMM_ALL_GATHER ? 0 : log2_up(s->p);

	if (round < lg)
		log_scatter(&t, round, m);
	else
		log_gather(&t, round - lg, m);
}

void dt_comm_steps_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *out)
{
	bool in;
	int other;

	switch (s->alg) {
	case DT_ALG_NAIVE:
		other = naive_other(s, round, &in);
		star(s, rank, other, in, out);
		break;
	case DT_ALG_PS:
		ps_round(s, rank, round, out);
		break;
	case DT_ALG_RING:
		ring_round(s, rank, round, out);
		break;
	case DT_ALG_DOUBLING:
		if (s->kind == DT_COMM_ALL_GATHER)
			log_round(s, rank, round, out);
		else
			dt_comm_doubling_round(s, rank, round, out);
		break;
	case DT_ALG_RABENSEIFNER:
		log_round(s, rank, round, out);
		break;
	case DT_ALG_TREE:
		dt_comm_tree_round(s, rank, round, out);
		break;
	case DT_ALG_DOUBLE_TREE:
		dt_comm_two_trees_round(s, rank, round, out);
		break;
	case DT_ALG_TWO_LEVEL:
		two_level_round(s, rank, round, out);
		break;
	default:
		break;
	}
}

bool dt_comm_steps_have(enum dt_comm_op_kind kind, enum dt_alg alg)
{
	bool any = kind == DT_COMM_ALL_REDUCE || kind == DT_COMM_REDUCE_SCATTER ||
		   kind == DT_COMM_ALL_GATHER || kind == DT_COMM_BROADCAST || kind == DT_COMM_REDUCE;

	switch (alg) {
	case DT_ALG_NAIVE:
	case DT_ALG_PS:
	case DT_ALG_RING:
		return any;
	case DT_ALG_DOUBLING:
		return kind == DT_COMM_ALL_REDUCE || kind == DT_COMM_ALL_GATHER;
	case DT_ALG_RABENSEIFNER:
		return kind == DT_COMM_ALL_REDUCE || kind == DT_COMM_REDUCE_SCATTER;
	case DT_ALG_TREE:
		return kind == DT_COMM_ALL_REDUCE || kind == DT_COMM_BROADCAST || kind == DT_COMM_REDUCE;
	case DT_ALG_DOUBLE_TREE:
	case DT_ALG_TWO_LEVEL:
		return kind == DT_COMM_ALL_REDUCE;
	default:
		return false;
	}
}

static int count_rounds(struct dt_comm_steps *s)
{
	bool both = s->kind == DT_COMM_ALL_REDUCE || s->kind == DT_COMM_ALL_GATHER ||
		    s->kind == DT_COMM_REDUCE_SCATTER;
	bool reduce = s->kind == DT_COMM_ALL_REDUCE;
	int lg = dt_comm_log2_down(s->p), extra = s->p - (1 << lg), nodes = s->p / s->node_ranks;

	switch (s->alg) {
	case DT_ALG_NAIVE:
		return (s->p - 1) * (both ? 2 : 1);
	case DT_ALG_PS:
		return both ? 2 : 1;
	case DT_ALG_RING:
		if (s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE)
			return s->chunks + s->p - 2;
		return (s->p - 1) * (reduce ? 2 : 1);
	case DT_ALG_DOUBLING:
		return reduce ? lg + (extra ? 2 : 0) : log2_up(s->p);
	case DT_ALG_RABENSEIFNER:
		return log2_up(s->p) * (reduce ? 2 : 1);
	case DT_ALG_TREE:
		s->depth = dt_comm_log2_down(s->p);
		return s->depth * (reduce ? 2 : 1);
	case DT_ALG_DOUBLE_TREE:
		s->depth = dt_comm_in_order_depth(s->p);
		return s->chunks + 2 * s->depth - 1;
	default:
		return 2 * log2_up(nodes) + (s->node_ranks > 1 ? 2 : 0);
	}
}

int dt_comm_steps_init(struct dt_comm_steps *ret, enum dt_comm_op_kind kind, enum dt_alg alg, int p, int root,
		       size_t n, size_t chunk, int node_ranks, struct dt_err *err)
{
	struct dt_comm_steps s = {.kind = kind, .alg = alg, .p = p, .root = root, .n = n, .chunk = chunk};
	size_t part = alg == DT_ALG_DOUBLE_TREE ? n - n / 2 : n;
	char name[16];

	s.node_ranks = node_ranks > 0 ? node_ranks : 1;
	if (!dt_comm_steps_have(kind, alg))
		return dt_err_set(err, -ENOTSUP, "there is no %s by algorithm %s", dt_comm_op_name(kind),
				  dt_alg_name(alg, name));
	if (alg == DT_ALG_TWO_LEVEL && p % s.node_ranks)
		return dt_err_set(err, -ENOTSUP, "two-level needs equally many ranks on every machine");
	s.chunks = chunk && part > chunk ? (int)((part + chunk - 1) / chunk) : 1;
	if (p > 1)
		s.rounds = count_rounds(&s);
	*ret = s;
	return 0;
}

int dt_comm_steps_alike(const struct dt_comm_steps *s, int round)
{
	int half = s->p - 1;

	if (s->alg != DT_ALG_RING || s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE)
		return 1;
	return round < half ? half - round : s->rounds - round;
}

bool dt_comm_steps_pair(const struct dt_comm_steps *s, int round, int who[2])
{
	bool in;

	if (s->alg != DT_ALG_NAIVE)
		return false;
	who[0] = naive_other(s, round, &in);
	who[1] = s->kind == DT_COMM_BROADCAST || s->kind == DT_COMM_REDUCE ? s->root : 0;
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
