/* Step lists run by a plain interpreter over all ranks: matched messages, exact results, the counts published
 * for each algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/steps.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const enum dt_comm_op_kind kinds[] = {DT_COMM_ALL_REDUCE, DT_COMM_REDUCE_SCATTER, DT_COMM_ALL_GATHER,
					     DT_COMM_BROADCAST, DT_COMM_REDUCE};

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
static int64_t before(const struct dt_comm_steps *s, int rank, size_t i)
{
	if (s->kind == DT_COMM_BROADCAST)
		return rank == s->root ? input(rank, i) : -1;
	if (s->kind == DT_COMM_ALL_GATHER)
		return i / (s->n / (size_t)s->p) == (size_t)rank ? input(rank, i) : -1;
	return input(rank, i);
}

static void check_result(const struct dt_comm_steps *s, int rank, const int64_t *buf)
{
	size_t block = s->n / (size_t)s->p, lo = 0, hi = s->n;

	if (s->kind == DT_COMM_REDUCE_SCATTER) {
		lo = (size_t)rank * block;
		hi = lo + block;
	}
	if (s->kind == DT_COMM_REDUCE && rank != s->root)
		return;
	for (size_t i = lo; i < hi; i++) {
		int64_t want = s->kind == DT_COMM_BROADCAST    ? input(s->root, i)
			       : s->kind == DT_COMM_ALL_GATHER ? input((int)(i / block), i)
							       : total(s->p, i);
		char name[16];

		if (buf[i] != want)
			fail_msg("%s by %s, %d ranks, root %d, %zu elements: rank %d has %lld at %zu, want "
				 "%lld",
				 dt_comm_op_name(s->kind), dt_alg_name(s->alg, name), s->p, s->root, s->n,
				 rank, (long long)buf[i], i, (long long)want);
	}
}

/* The number-th message from src to dst in a round, as the receiver must find it. */
static const struct dt_comm_move *sent(const struct dt_comm_moves *m, int dst, int number)
{
	for (int i = 0; i < m->n; i++)
		if (m->v[i].kind == DT_COMM_MOVE_SEND && m->v[i].peer == dst && number-- == 0)
			return &m->v[i];
	return NULL;
}

static void run(const struct dt_comm_steps *s)
{
	size_t n = s->n ? s->n : 1, p = (size_t)s->p;
	int64_t *buf = calloc(p * n, sizeof(*buf)), *old = calloc(p * n, sizeof(*old));
	struct dt_comm_moves *m = calloc(p, sizeof(*m));
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
			dt_comm_steps_round(s, (int)r, round, &m[r]);
			assert_false(m[r].failed);
		}
		for (size_t r = 0; r < p; r++)
			for (int k = 0; k < m[r].n; k++) {
				const struct dt_comm_move *v = &m[r].v[k], *from;

				assert_true(v->peer >= 0 && v->peer < s->p && v->peer != (int)r);
				assert_true(v->at + v->n <= s->n);
				if (v->kind == DT_COMM_MOVE_SEND) {
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

					buf[r * n + i] =
						v->kind == DT_COMM_MOVE_REDUCE ? buf[r * n + i] + x : x;
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
					bool blocks = kinds[k] == DT_COMM_ALL_GATHER ||
						      kinds[k] == DT_COMM_REDUCE_SCATTER;
					size_t n = blocks ? sizes[z] * (size_t)p : sizes[z];
					struct dt_comm_steps s;

					if (!dt_comm_steps_have(kinds[k], (enum dt_alg)a))
						continue;
					for (int g = 1; g <= p; g++) {
						if (g > 1 && (a != DT_ALG_TWO_LEVEL || p % g))
							continue;
						assert_int_equal(
							dt_comm_steps_init(&s, kinds[k], (enum dt_alg)a, p,
									   (p * 2 / 3) % p, n, 64, g, NULL),
							0);
						run(&s);
					}
				}
}

static void what_does_not_exist_is_refused(void **state)
{
	struct dt_err err;
	struct dt_comm_steps s;

	assert_int_equal(dt_comm_steps_init(&s, DT_COMM_BROADCAST, DT_ALG_RABENSEIFNER, 4, 0, 10, 0, 1, &err),
			 -ENOTSUP);
	assert_string_equal(err.msg, "there is no broadcast by algorithm rabenseifner");
	assert_int_equal(dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_TWO_LEVEL, 6, 0, 10, 0, 4, &err),
			 -ENOTSUP);
}

/* Bytes the busiest rank sends, and rounds, as the papers count them. */
static void count(const struct dt_comm_steps *s, size_t *most, int *rounds)
{
	*most = 0;
	*rounds = s->rounds;
	for (int r = 0; r < s->p; r++) {
		struct dt_comm_moves m = {0};
		size_t sent_n = 0;

		for (int round = 0; round < s->rounds; round++) {
			m.n = 0;
			dt_comm_steps_round(s, r, round, &m);
			for (int i = 0; i < m.n; i++)
				sent_n += m.v[i].kind == DT_COMM_MOVE_SEND ? m.v[i].n : 0;
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
		struct dt_comm_steps s;

		dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_RING, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, bound);
		assert_int_equal(rounds, 2 * (p - 1));
		dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_RABENSEIFNER, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, bound);
		assert_int_equal(rounds, 2 * lg);
		dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_DOUBLING, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, n * (size_t)lg);
		assert_int_equal(rounds, lg);
		dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_PS, p, 0, n, 0, 1, NULL);
		count(&s, &most, &rounds);
		assert_int_equal(most, n * (size_t)(p - 1));
		dt_comm_steps_init(&s, DT_COMM_ALL_REDUCE, DT_ALG_DOUBLE_TREE, p, 0, n, 1024, 1, NULL);
		count(&s, &most, &rounds);
		assert_true(most <= 2 * n + 1024); /* full bandwidth: the whole once up, once down */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_list_gives_exact_results),
		cmocka_unit_test(what_does_not_exist_is_refused),
		cmocka_unit_test(volumes_are_the_published_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
