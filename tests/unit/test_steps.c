/* Step lists run by a plain interpreter over all ranks: matched messages, exact results, the counts published
 * for each algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/simulate.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum dt_op_kind kinds[] = {DT_OP_ALL_REDUCE, DT_OP_REDUCE_SCATTER, DT_OP_ALL_GATHER,
					DT_OP_BROADCAST, DT_OP_REDUCE};

static int64_t input(int rank, size_t i)
{
	return (int64_t)(i * 31 + 7) * (rank + 3) % 1000003 + 1;
}

static int64_t total(int p, size_t i)
{
	int64_t v = 0;

	for (int r = 0; r < p; r++)
		v += input(r, i);
	return v;
}

/* Element i of rank's buffer before; -1 where nothing is known. */
static int64_t before(const struct dt_steps *s, int rank, size_t i)
{
	if (s->kind == DT_OP_BROADCAST)
		return rank == s->root ? input(rank, i) : -1;
	if (s->kind == DT_OP_ALL_GATHER)
		return i / (s->n / (size_t)s->p) == (size_t)rank ? input(rank, i) : -1;
	return input(rank, i);
}

static void check_result(const struct dt_steps *s, int rank, const int64_t *buf)
{
	size_t block = s->n / (size_t)s->p, lo = 0, hi = s->n;

	if (s->kind == DT_OP_REDUCE_SCATTER) {
		lo = (size_t)rank * block;
		hi = lo + block;
	}
	if (s->kind == DT_OP_REDUCE && rank != s->root)
		return;
	for (size_t i = lo; i < hi; i++) {
		int64_t want = s->kind == DT_OP_BROADCAST    ? input(s->root, i)
			       : s->kind == DT_OP_ALL_GATHER ? input((int)(i / block), i)
							     : total(s->p, i);
		char name[16];

		if (buf[i] != want)
			fail_msg("%s by %s, %d ranks, root %d, %zu elements: rank %d has %lld at %zu, want "
				 "%lld",
				 dt_op_name(s->kind), dt_alg_name(s->alg, name), s->p, s->root, s->n, rank,
				 (long long)buf[i], i, (long long)want);
	}
}

/* The number-th message from src to dst in a round, as the receiver must find it. */
static const struct dt_move *sent(const struct dt_moves *m, int dst, int number)
{
	for (int i = 0; i < m->n; i++)
		if (m->v[i].kind == DT_MOVE_SEND && m->v[i].peer == dst && number-- == 0)
			return &m->v[i];
	return NULL;
}

static void run(const struct dt_steps *s)
{
	size_t n = s->n ? s->n : 1, p = (size_t)s->p;
	int64_t *buf = calloc(p * n, sizeof(*buf)), *old = calloc(p * n, sizeof(*old));
	struct dt_moves *m = calloc(p, sizeof(*m));
	int *seen = calloc(p * p, sizeof(*seen));

	for (size_t r = 0; r < p; r++)
		for (size_t i = 0; i < s->n; i++)
			buf[r * n + i] = before(s, (int)r, i);
	for (int round = 0; round < s->rounds; round++) {
		long sends = 0, receives = 0;

		memcpy(old, buf, p * n * sizeof(*buf));
		memset(seen, 0, p * p * sizeof(*seen));
		for (size_t r = 0; r < p; r++) {
			m[r].n = 0;
			dt_steps_round(s, (int)r, round, &m[r]);
			assert_false(m[r].failed);
		}
		for (size_t r = 0; r < p; r++)
			for (int k = 0; k < m[r].n; k++) {
				const struct dt_move *v = &m[r].v[k], *from;

				assert_true(v->peer >= 0 && v->peer < s->p && v->peer != (int)r);
				assert_true(v->at + v->n <= s->n);
				if (v->kind == DT_MOVE_SEND) {
					sends++;
					continue;
				}
				receives++;
				from = sent(&m[v->peer], (int)r, seen[(size_t)v->peer * p + r]++);
				assert_non_null(from);
				assert_int_equal(from->n, v->n);
				assert_int_equal(from->at, v->at);
				for (size_t i = v->at; i < v->at + v->n; i++) {
					int64_t x = old[(size_t)v->peer * n + i];

					buf[r * n + i] = v->kind == DT_MOVE_REDUCE ? buf[r * n + i] + x : x;
				}
			}
		assert_int_equal(sends, receives);
	}
	for (size_t r = 0; r < p; r++) {
		check_result(s, (int)r, buf + r * n);
		free(m[r].v);
	}
	free(buf);
	free(old);
	free(m);
	free(seen);
}

static void every_list_gives_exact_results(void **state)
{
	static const size_t sizes[] = {0, 1, 5, 64, 1001};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++)
			for (int p = 1; p <= 33; p += p < 10 ? 1 : 3)
				for (size_t z = 0; z < sizeof(sizes) / sizeof(sizes[0]); z++) {
					bool blocks = kinds[k] == DT_OP_ALL_GATHER ||
						      kinds[k] == DT_OP_REDUCE_SCATTER;
					size_t n = blocks ? sizes[z] * (size_t)p : sizes[z];
					struct dt_steps s;

					if (!dt_steps_have(kinds[k], (enum dt_alg)a))
						continue;
					for (int g = 1; g <= p; g++) {
						if (g > 1 && (a != DT_ALG_TWO_LEVEL || p % g))
							continue;
						assert_int_equal(dt_steps_init(&s, kinds[k], (enum dt_alg)a,
									       p, (p * 2 / 3) % p, n, 64, g,
									       NULL),
								 0);
						run(&s);
					}
				}
}

static void what_does_not_exist_is_refused(void **state)
{
	struct dt_err err;
	struct dt_steps s;

	assert_int_equal(dt_steps_init(&s, DT_OP_BROADCAST, DT_ALG_RABENSEIFNER, 4, 0, 10, 0, 1, &err),
			 -ENOTSUP);
	assert_string_equal(err.msg, "there is no broadcast by algorithm rabenseifner");
	assert_int_equal(dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_TWO_LEVEL, 6, 0, 10, 0, 4, &err),
			 -ENOTSUP);
}

/* Bytes the busiest rank sends, and rounds, as the papers count them. */
static void count(const struct dt_steps *s, size_t *most, int *rounds)
{
	*most = 0;
	*rounds = s->rounds;
	for (int r = 0; r < s->p; r++) {
		struct dt_moves m = {0};
		size_t sent_n = 0;

		for (int round = 0; round < s->rounds; round++) {
			m.n = 0;
			dt_steps_round(s, r, round, &m);
			for (int i = 0; i < m.n; i++)
				sent_n += m.v[i].kind == DT_MOVE_SEND ? m.v[i].n : 0;
		}
		*most = sent_n > *most ? sent_n : *most;
		free(m.v);
	}
}

static void volumes_are_the_published_ones(void **state)
{
	const size_t n = 3 * 1 << 14;

	for (int lg = 1; lg <= 6; lg++) {
		int p = 1 << lg, rounds;
		size_t most, bound = 2 * n / (size_t)p * (size_t)(p - 1);
		struct dt_steps s;

		dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_RING, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, bound);
		assert_int_equal(rounds, 2 * (p - 1));
		dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_RABENSEIFNER, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, bound);
		assert_int_equal(rounds, 2 * lg);
		dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_DOUBLING, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, n * (size_t)lg);
		assert_int_equal(rounds, lg);
		dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_PS, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, n * (size_t)(p - 1));
		dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_DOUBLE_TREE, p, 0, n, 1024, 1, NULL);
		count(&s, &most, &rounds);
		assert_true(most <= 2 * n + 1024); /* full bandwidth: the whole once up, once down */
	}
}

static struct dt_topo topology(const char *s)
{
	struct dt_err err;
	struct dt_topo t;

	if (dt_topo_parse(s, &t, &err))
		fail_msg("%s: %s", s, err.msg);
	return t;
}

/* On a flat network the simulation gives the closed forms of the literature. */
static void simulation_equals_closed_forms(void **state)
{
	for (int p = 2; p <= 64; p *= 2)
		for (int a = DT_ALG_NAIVE; a < DT_ALG_N; a++)
			for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
				for (size_t n = 64; n <= 64 << 12; n <<= 6) {
					struct dt_topo t = topology("flat");
					double got, want;
					struct dt_steps s;
					char name[16];

					t.ranks = p;
					if (!dt_steps_have(kinds[k], (enum dt_alg)a))
						continue;
					dt_steps_init(&s, kinds[k], (enum dt_alg)a, p, 0, n, 0, 1, NULL);
					want = dt_simulate_closed(&s, &t, 4);
					if (want < 0)
						continue;
					assert_int_equal(dt_simulate(&s, &t, 4, &got, NULL), 0);
					if (fabs(got - want) > 1e-6 * want)
						fail_msg("%s by %s, %d ranks, %zu: %g s, closed form %g s",
							 dt_op_name(kinds[k]),
							 dt_alg_name((enum dt_alg)a, name), p, n, got, want);
				}
}

/*
 * In the order of time the textbook's rounds are what they were where every rank waits for a message in each;
 * where ranks can send ahead, what is left is one latency and the narrow port.
 */
static void senders_do_not_wait(void **state)
{
	static const enum dt_alg same[] = {DT_ALG_RING, DT_ALG_DOUBLING, DT_ALG_RABENSEIFNER, DT_ALG_PS};

	for (int p = 2; p <= 16; p *= 2)
		for (size_t n = 64; n <= 64 << 12; n <<= 6) {
			struct dt_topo t = topology("fat-tree,node=1,ranks=2,hop_us=0,eager=1");
			double got, want, ps = 0;
			struct dt_steps s;

			t.ranks = t.leaf = p;
			for (int i = 0; i < 4; i++) {
				dt_steps_init(&s, DT_OP_ALL_REDUCE, same[i], p, 0, n, 0, 1, NULL);
				assert_int_equal(dt_simulate(&s, &t, 4, &got, NULL), 0);
				want = dt_simulate_closed(&s, &t, 4);
				ps = same[i] == DT_ALG_PS ? want : ps;
				if (fabs(got - want) > 1e-6 * want)
					fail_msg("algorithm %d, %d ranks, %zu: %g s, closed form %g s",
						 same[i], p, n, got, want);
			}
			/* naive: all send at once, the root receives as fast as its port lets it */
			dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_NAIVE, p, 0, n, 0, 1, NULL);
			assert_int_equal(dt_simulate(&s, &t, 4, &got, NULL), 0);
			if (got > ps * (1 + 1e-6) || got < 0.7 * ps)
				fail_msg("naive, %d ranks, %zu: %g s, parameter server %g s", p, n, got, ps);
		}
}

/* Two ranks of a node send over one port: by turns, so that both are through at the end of both. */
static void ranks_of_a_node_share_its_port(void **state)
{
	struct dt_topo t =
		topology("fat-tree,node=2,ranks=4,hop_us=0,eager=1,shm_us=1,shm_gbs=100,net_us=1000,"
			 "net_gbs=0.125,reduce_gbs=50");
	double n = 4 << 20, got, local = 1e-6 + n / 100e9 + n / 50e9, want;
	struct dt_steps s;

	dt_steps_init(&s, DT_OP_ALL_REDUCE, DT_ALG_DOUBLING, 4, 0, (size_t)n / 4, 0, 2, NULL);
	assert_int_equal(dt_simulate(&s, &t, 4, &got, NULL), 0);
	want = local + 1e-3 + 2 * n / 0.125e9 + n / 50e9;
	if (fabs(got - want) > 1e-6 * want)
		fail_msg("%g s, want %g s", got, want);
	/*
	 * one of the two alone has the port for itself: down a tree of two nodes n crosses it once each way
	 */
	t.ranks = 2;
	t.node = 1;
	dt_steps_init(&s, DT_OP_BROADCAST, DT_ALG_TREE, 2, 0, (size_t)n / 4, 0, 1, NULL);
	assert_int_equal(dt_simulate(&s, &t, 4, &got, NULL), 0);
	want = 1e-3 + n / 0.125e9;
	if (fabs(got - want) > 1e-6 * want)
		fail_msg("%g s, want %g s", got, want);
}

/* What is printed is read back to the same times. */
static void descriptions_are_read_back(void **state)
{
	struct dt_topo t = topology("fat-tree,ranks=8,node=2,leaf=4,net_us=1234,net_gbs=0.125,eager=1"), u;
	double a, b;
	char buf[512];
	struct dt_steps s;

	u = topology(dt_topo_format(&t, buf, sizeof(buf)));
	for (int alg = DT_ALG_NAIVE; alg < DT_ALG_N; alg++) {
		dt_steps_init(&s, DT_OP_ALL_REDUCE, (enum dt_alg)alg, 8, 0, 100001, 1000, 2, NULL);
		assert_int_equal(dt_simulate(&s, &t, 4, &a, NULL), 0);
		assert_int_equal(dt_simulate(&s, &u, 4, &b, NULL), 0);
		if (fabs(a - b) > 1e-3 * a)
			fail_msg("%s: %g s, then %g s", buf, a, b);
	}
}

static double all_reduce_s(enum dt_alg a, const char *topo, size_t bytes)
{
	struct dt_topo t = topology(topo);
	struct dt_steps s;
	double got;

	dt_steps_init(&s, DT_OP_ALL_REDUCE, a, t.ranks, 0, bytes / 4, dt_topo_chunk(&t, bytes) / 4, t.node,
		      NULL);
	assert_int_equal(dt_simulate(&s, &t, 4, &got, NULL), 0);
	return got;
}

/* What the reference says about who wins where. */
static void rings_win_large_trees_win_many(void **state)
{
	assert_true(all_reduce_s(DT_ALG_RING, "flat:8", 1 << 28) <
		    all_reduce_s(DT_ALG_TREE, "flat:8", 1 << 28));
	assert_true(all_reduce_s(DT_ALG_DOUBLING, "flat:64", 64) < all_reduce_s(DT_ALG_RING, "flat:64", 64));
	assert_true(all_reduce_s(DT_ALG_DOUBLE_TREE, "flat:1024", 1 << 22) <
		    all_reduce_s(DT_ALG_RING, "flat:1024", 1 << 22));
	assert_true(all_reduce_s(DT_ALG_RING, "flat:16", 1 << 24) <
		    all_reduce_s(DT_ALG_PS, "flat:16", 1 << 24));
	assert_true(all_reduce_s(DT_ALG_TWO_LEVEL, "fat-tree,ranks=256,node=8", 1 << 24) <
		    all_reduce_s(DT_ALG_RING, "fat-tree,ranks=256,node=8", 1 << 24));
}

/* Bytes cross the narrow place at its speed and no faster. */
static void contention_is_counted(void **state)
{
	double full = all_reduce_s(DT_ALG_RABENSEIFNER, "fat-tree,ranks=64,node=1,leaf=8,taper=1", 1 << 26);
	double thin = all_reduce_s(DT_ALG_RABENSEIFNER, "fat-tree,ranks=64,node=1,leaf=8,taper=8", 1 << 26);
	double rail = all_reduce_s(DT_ALG_TWO_LEVEL, "rail,ranks=64,node=8", 1 << 26);
	double one = all_reduce_s(DT_ALG_TWO_LEVEL, "fat-tree,ranks=64,node=8", 1 << 26);

	assert_true(thin > 3 * full && thin < 8.1 * full);
	assert_true(rail < one / 2); /* eight ports a node for one */
	for (const char *const *s = (const char *const[]){"torus:4096", "dragonfly:4096", "fat-tree:16384",
							  "rail:16384", NULL};
	     *s; s++) {
		double t = all_reduce_s(DT_ALG_TWO_LEVEL, *s, 1 << 24), least = 2.0 * (1 << 24) / 8 / 25e9;

		if (!(t > least && t < 1))
			fail_msg("%s: %g s, at least %g s", *s, t, least);
	}
}

static void topologies_are_checked(void **state)
{
	static const char *const bad[] = {"",
					  "mesh",
					  "flat:0",
					  "flat:99999",
					  "flat,speed=3",
					  "rail,ranks=10,node=8",
					  "torus,net_gbs=0",
					  "flat,eager=2",
					  "flat,ranks=x"};
	struct dt_topo t;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (dt_topo_parse(bad[i], &t, NULL) != -EINVAL && dt_topo_parse(bad[i], &t, NULL) != -ERANGE)
			fail_msg("'%s' was taken", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_list_gives_exact_results),
		cmocka_unit_test(what_does_not_exist_is_refused),
		cmocka_unit_test(volumes_are_the_published_ones),
		cmocka_unit_test(simulation_equals_closed_forms),
		cmocka_unit_test(senders_do_not_wait),
		cmocka_unit_test(ranks_of_a_node_share_its_port),
		cmocka_unit_test(descriptions_are_read_back),
		cmocka_unit_test(rings_win_large_trees_win_many),
		cmocka_unit_test(contention_is_counted),
		cmocka_unit_test(topologies_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
