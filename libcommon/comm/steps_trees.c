/* Rounds in which whole messages are passed on: recursive doubling, chains and trees. */
#include "comm/steps_priv.h"

#include "base/room.h"

#include <stdlib.h>

void dt_comm_moves_add(struct dt_comm_moves *m, enum dt_comm_move_kind kind, int peer, size_t at, size_t n)
{
	if (DT_ROOM(m->v, m->n, m->room, 16))
		m->v[m->n++] = (struct dt_comm_move){kind, peer, at, n};
	else
		m->failed = true;
}

/* Recursive doubling; ranks beyond a power of two first send to a neighbour, and receive the result last. */
void dt_comm_doubling_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	int lg = dt_comm_log2_down(s->p), extra = s->p - (1 << lg), last = s->rounds - 1, v, w;
	bool folded = rank < 2 * extra;

	if (extra && (round == 0 || round == last)) {
		bool in = round == 0;

		if (folded && rank % 2 == 0)
			dt_comm_moves_add(m, in ? DT_COMM_MOVE_SEND : DT_COMM_MOVE_RECV, rank + 1, 0, s->n);
		else if (folded)
			dt_comm_moves_add(m, in ? DT_COMM_MOVE_REDUCE : DT_COMM_MOVE_SEND, rank - 1, 0, s->n);
		return;
	}
	if (folded && rank % 2 == 0)
		return;
	v = folded ? rank / 2 : rank - extra;
	w = v ^ 1 << (round - (extra > 0));
	w = w < extra ? 2 * w + 1 : w + extra;
	dt_comm_moves_add(m, DT_COMM_MOVE_SEND, w, 0, s->n);
	dt_comm_moves_add(m, DT_COMM_MOVE_REDUCE, w, 0, s->n);
}

/* Binary tree in heap order around the root. */
void dt_comm_tree_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	int root = s->kind == DT_COMM_ALL_REDUCE ? 0 : s->root, v = (rank - root + s->p) % s->p;
	int depth = dt_comm_log2_down(v + 1), at;
	bool up = dt_comm_steps_inward(s) && round < s->depth;

	at = up ? s->depth - round
		: round - (dt_comm_steps_inward(s) ? s->depth : 0) + 1; /* depth of the children */
	if (depth == at && v)
		dt_comm_moves_add(m, up ? DT_COMM_MOVE_SEND : DT_COMM_MOVE_RECV, ((v - 1) / 2 + root) % s->p,
				  0, s->n);
	for (int c = 2 * v + 1; c <= 2 * v + 2 && c < s->p && depth == at - 1; c++)
		dt_comm_moves_add(m, up ? DT_COMM_MOVE_REDUCE : DT_COMM_MOVE_SEND, (c + root) % s->p, 0,
				  s->n);
}

static void add_chunk(const struct dt_comm_steps *s, struct dt_comm_moves *m, enum dt_comm_move_kind kind,
		      int peer, size_t lo, size_t len, int c)
{
	size_t k = (size_t)s->chunks, each = (len + k - 1) / k, from = each * (size_t)c;

	from = from < len ? from : len;
	dt_comm_moves_add(m, kind, peer, lo + from, from + each < len ? each : len - from);
}

/* A chain around the root: chunk c moves from place v to the next in round c + v. */
void dt_comm_chain_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	bool in = s->kind == DT_COMM_REDUCE;
	int v = (rank - s->root + s->p) % s->p, c;

	if (in)
		v = s->p - 1 - v; /* the farthest rank begins, the root ends */
	c = round - v;
	if (v < s->p - 1 && c >= 0 && c < s->chunks)
		add_chunk(s, m, DT_COMM_MOVE_SEND, (rank + (in ? s->p - 1 : 1)) % s->p, 0, s->n, c);
	c = round - v + 1;
	if (v > 0 && c >= 0 && c < s->chunks)
		add_chunk(s, m, in ? DT_COMM_MOVE_REDUCE : DT_COMM_MOVE_RECV,
			  (rank + (in ? 1 : s->p - 1)) % s->p, 0, s->n, c);
}

/* In-order tree over places 1 ... p: leaves have odd places. */
static int in_order_parent(int i, int p)
{
	int bit = i & -i, up = (i ^ bit) | bit << 1;

	return up > p ? i ^ bit : up;
}

static int in_order_depth(int i, int p)
{
	int d = 0;

	for (; in_order_parent(i, p); i = in_order_parent(i, p))
		d++;
	return d;
}

/* The second tree is the first one mirrored or shifted, so that its inner ranks are leaves of the first. */
static int place_of(const struct dt_comm_steps *s, int tree, int rank)
{
	return !tree ? rank + 1 : s->p % 2 ? (rank + 1) % s->p + 1 : s->p - rank;
}

static int rank_at(const struct dt_comm_steps *s, int tree, int place)
{
	return !tree ? place - 1 : s->p % 2 ? (place - 2 + s->p) % s->p : s->p - place;
}

static void one_of_two_trees(const struct dt_comm_steps *s, int rank, int round, int tree,
			     struct dt_comm_moves *m)
{
	int i = place_of(s, tree, rank), depth = in_order_depth(i, s->p), parent = in_order_parent(i, s->p);
	size_t half = s->n / 2, lo = tree ? half : 0, len = tree ? s->n - half : half;
	int kid[2] = {0, 0}, bit = i & -i, up = round - (s->depth - depth), down = round - s->depth - depth;

	if (bit > 1) {
		kid[0] = i - bit / 2;
		for (int b = bit / 2; b && !kid[1]; b /= 2)
			kid[1] = i + b <= s->p ? i + b : 0;
	}
	parent = parent ? rank_at(s, tree, parent) : -1;
	if (parent >= 0 && up >= 0 && up < s->chunks)
		add_chunk(s, m, DT_COMM_MOVE_SEND, parent, lo, len, up);
	for (int k = 0; k < 2; k++) {
		if (!kid[k])
			continue;
		if (up + 1 >= 0 && up + 1 < s->chunks)
			add_chunk(s, m, DT_COMM_MOVE_REDUCE, rank_at(s, tree, kid[k]), lo, len, up + 1);
		if (down >= 0 && down < s->chunks)
			add_chunk(s, m, DT_COMM_MOVE_SEND, rank_at(s, tree, kid[k]), lo, len, down);
	}
	if (parent >= 0 && down + 1 >= 0 && down + 1 < s->chunks)
		add_chunk(s, m, DT_COMM_MOVE_RECV, parent, lo, len, down + 1);
}
void dt_comm_two_trees_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m)
{
	one_of_two_trees(s, rank, round, 0, m);
	one_of_two_trees(s, rank, round, 1, m);
}

int dt_comm_in_order_depth(int p)
{
	int most = 0;

	for (int i = 1; i <= p; i++) {
		int d = in_order_depth(i, p);

		most = d > most ? d : most;
	}
	return most;
}
/* SPDX-License-Identifier: Apache-2.0 */
