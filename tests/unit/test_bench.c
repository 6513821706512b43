/* The benchmark without ranks: simulated step lists against the closed forms and published orders of the
 * literature, the fit of link costs, bandwidth factors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/links.h"
#include "bench/predict.h"

#include <errno.h>
#include <math.h>

static const enum dt_comm_op_kind kinds[] = {DT_COMM_ALL_REDUCE, DT_COMM_REDUCE_SCATTER, DT_COMM_ALL_GATHER,
					     DT_COMM_BROADCAST, DT_COMM_REDUCE};

static struct dt_bench_topo topology(const char *s)
{
	struct dt_err err;
	struct dt_bench_topo t;

	if (dt_bench_topo_parse(s, &t, &err))
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
					struct dt_bench_topo t = topology("flat");
					double got, want;
					struct dt_comm_steps s;
					char name[16];

					t.ranks = p;
					if (!dt_comm_steps_have(kinds[k], (enum dt_alg)a))
						continue;
					dt_comm_steps_init(&s, kinds[k], (enum dt_alg)a, p, 0, n, 0, 1, NULL);
					want = dt_bench_simulate_closed(&s, &t, 4);
					if (want < 0)
						continue;
					assert_int_equal(dt_bench_simulate(&s, &t, 4, &got, NULL), 0);
					if (fabs(got - want) > 1e-6 * want)
						fail_msg("%s by %s, %d ranks, %zu: %g s, closed form %g s",
							 dt_comm_op_name(kinds[k]),
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
			struct dt_bench_topo t = topology("fat-tree,node=1,ranks=2,hop_us=0,eager=1");
			double got, want, ps = 0;
			struct dt_comm_steps s;

			t.ranks = t.leaf = p;
			for (int i = 0; i < 4; i++) {
				dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, same[i], p, 0, n, 0, 1, NULL);
				assert_int_equal(dt_bench_simulate(&s, &t, 4, &got, NULL), 0);
				want = dt_bench_simulate_closed(&s, &t, 4);
				ps = same[i] == DT_ALG_PS ? want : ps;
				if (fabs(got - want) > 1e-6 * want)
					fail_msg("algorithm %d, %d ranks, %zu: %g s, closed form %g s",
						 same[i], p, n, got, want);
			}
			/* naive: all send at once, the root receives as fast as its port lets it */
			dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_NAIVE, p, 0, n, 0, 1, NULL);
			assert_int_equal(dt_bench_simulate(&s, &t, 4, &got, NULL), 0);
			if (got > ps * (1 + 1e-6) || got < 0.7 * ps)
				fail_msg("naive, %d ranks, %zu: %g s, parameter server %g s", p, n, got, ps);
		}
}

/* Two ranks of a node send over one port: by turns, so that both are through at the end of both. */
static void ranks_of_a_node_share_its_port(void **state)
{
	struct dt_bench_topo t =
		topology("fat-tree,node=2,ranks=4,hop_us=0,eager=1,shm_us=1,shm_gbs=100,net_us=1000,"
			 "net_gbs=0.125,reduce_gbs=50");
	double n = 4 << 20, got, local = 1e-6 + n / 100e9 + n / 50e9, want;
	struct dt_comm_steps s;

	dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_DOUBLING, 4, 0, (size_t)n / 4, 0, 2, NULL);
	assert_int_equal(dt_bench_simulate(&s, &t, 4, &got, NULL), 0);
	want = local + 1e-3 + 2 * n / 0.125e9 + n / 50e9;
	if (fabs(got - want) > 1e-6 * want)
		fail_msg("%g s, want %g s", got, want);
	/*
	 * one of the two alone has the port for itself: down a tree of two nodes n crosses it once each way
	 */
	t.ranks = 2;
	t.node = 1;
	dt_comm_steps_init(&s, DT_COMM_BROADCAST, DT_ALG_TREE, 2, 0, (size_t)n / 4, 0, 1, NULL);
	assert_int_equal(dt_bench_simulate(&s, &t, 4, &got, NULL), 0);
	want = 1e-3 + n / 0.125e9;
	if (fabs(got - want) > 1e-6 * want)
		fail_msg("%g s, want %g s", got, want);
}

/* What is printed is read back to the same times. */
static void descriptions_are_read_back(void **state)
{
	struct dt_bench_topo t = topology("fat-tree,ranks=8,node=2,leaf=4,net_us=1234,net_gbs=0.125,eager=1"),
			     u;
	double a, b;
	char buf[512];
	struct dt_comm_steps s;

	u = topology(dt_bench_topo_format(&t, buf, sizeof(buf)));
	for (int alg = DT_ALG_NAIVE; alg < DT_ALG_N; alg++) {
		dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, (enum dt_alg)alg, 8, 0, 100001, 1000, 2, NULL);
		assert_int_equal(dt_bench_simulate(&s, &t, 4, &a, NULL), 0);
		assert_int_equal(dt_bench_simulate(&s, &u, 4, &b, NULL), 0);
		if (fabs(a - b) > 1e-3 * a)
			fail_msg("%s: %g s, then %g s", buf, a, b);
	}
}

/* Rates carry their unit where one is written: bits or bytes. */
static void rates_have_units(void **state)
{
	struct dt_bench_topo a = topology("flat,ranks=4,net_gbs=25"),
			     b = topology("flat,ranks=4,net_gbs=200Gb/s"),
			     c = topology("flat,ranks=4,net_gbs=25GB/s");

	assert_true(fabs(a.net_s * 25e9 - 1) < 1e-12);
	assert_true(a.net_s == b.net_s && a.net_s == c.net_s);
}

static double all_reduce_s(enum dt_alg a, const char *topo, size_t bytes)
{
	struct dt_bench_topo t = topology(topo);
	struct dt_comm_steps s;
	double got;

	dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, a, t.ranks, 0, bytes / 4,
			   dt_bench_topo_chunk(&t, bytes) / 4, t.node, NULL);
	assert_int_equal(dt_bench_simulate(&s, &t, 4, &got, NULL), 0);
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
	struct dt_bench_topo t;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (dt_bench_topo_parse(bad[i], &t, NULL) != -EINVAL &&
		    dt_bench_topo_parse(bad[i], &t, NULL) != -ERANGE)
			fail_msg("'%s' was taken", bad[i]);
}

static void line_is_recovered(void **state)
{
	double x[5] = {1e3, 1e4, 1e5, 1e6, 1e7}, t[5], a, b, error;

	for (int i = 0; i < 5; i++)
		t[i] = 3e-6 + x[i] * 2e-10;
	error = dt_bench_fit_line(x, t, 5, &a, &b);
	assert_true(fabs(a - 3e-6) < 1e-12 && fabs(b - 2e-10) < 1e-16);
	assert_true(error < 1e-6);
	for (int i = 0; i < 5; i++) /* falling: no negative bandwidth comes out */
		t[i] = 1e-5 - 1e-7 * i;
	dt_bench_fit_line(x, t, 5, &a, &b);
	assert_true(a > 0 && b == 0);
}

static void factors_are_those_of_nccl_tests(void **state)
{
	assert_true(fabs(dt_bench_bus_factor(DT_BENCH_ALL_REDUCE, 8) - 1.75) < 1e-12);
	assert_true(fabs(dt_bench_bus_factor(DT_BENCH_ALL_GATHER, 8) - 0.875) < 1e-12);
	assert_true(fabs(dt_bench_bus_factor(DT_BENCH_BROADCAST, 8) - 1) < 1e-12);
	assert_true(dt_bench_bus_factor(DT_BENCH_ALL_REDUCE, 1) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(simulation_equals_closed_forms),
		cmocka_unit_test(senders_do_not_wait),
		cmocka_unit_test(ranks_of_a_node_share_its_port),
		cmocka_unit_test(descriptions_are_read_back),
		cmocka_unit_test(rates_have_units),
		cmocka_unit_test(rings_win_large_trees_win_many),
		cmocka_unit_test(contention_is_counted),
		cmocka_unit_test(topologies_are_checked),
		cmocka_unit_test(line_is_recovered),
		cmocka_unit_test(factors_are_those_of_nccl_tests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
