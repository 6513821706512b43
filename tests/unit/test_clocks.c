/* Who is where in a stretch of training by servers, by threads in place of ranks. */
#include "train/clocks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, AHEAD = 2 };

static struct clocks *c;
static _Atomic int taken[10000];
static int64_t told;	     /* steps whose line is read */
static _Atomic int64_t most; /* steps that a rank was ahead */

static int setup(void **state)
{
	c = aligned_alloc(64, DT_CLOCKS_ALL + RANKS * DT_CLOCKS_RANK);
	return c ? 0 : -1;
}

static int teardown(void **state)
{
	free(c);
	return 0;
}

static void together(void *(*fn)(void *))
{
	pthread_t t[RANKS];

	for (intptr_t r = 0; r < RANKS; r++)
		assert_int_equal(pthread_create(&t[r], NULL, fn, (void *)r), 0);
	for (int r = 0; r < RANKS; r++)
		pthread_join(t[r], NULL);
}

static void *take_parts(void *arg)
{
	const struct clocks_line one = {.loss = 1, .targets = 2, .ages = 3, .gradients = 1, .oldest = 4};

	for (int64_t n; (n = clocks_take(c)) >= 0;) {
		atomic_fetch_add(&taken[n], 1);
		clocks_say(c, 0, &one);
		if (n == 4001) /* all that is begun, rounded up to a whole step */
			clocks_end(c, RANKS);
	}
	return arg;
}

static void test_parts(void **state)
{
	struct clocks_line l;

	clocks_begin(c, RANKS, 10000);
	together(take_parts);
	assert_true(c->limit > 4001 && c->limit <= 4001 + 2 * RANKS + 1 && c->limit % RANKS == 0);
	for (int64_t n = 0; n < 10000; n++)
		assert_int_equal(taken[n], n < c->limit);
	assert_false(clocks_read(c, 0, c->limit, &l)); /* the stretch has ended */
	assert_true(clocks_read(c, 0, INT64_MAX, &l));
	assert_int_equal(l.gradients, c->limit);
	assert_true(l.loss == (double)c->limit && l.targets == 2 * l.loss && l.ages == 3 * l.loss &&
		    l.oldest == 4);
	assert_true(clocks_read(c, 0, INT64_MAX, &l) && l.gradients == 0);
}

static void *take_steps(void *arg)
{
	const intptr_t r = (intptr_t)arg;

	for (int64_t own = 0; clocks_turn(c, RANKS, own, AHEAD).may; own++) {
		int64_t ahead;

		for (int n = 0; clocks_turn(c, RANKS, own, AHEAD).may < 0; n++)
			clocks_wait(n);
		ahead = own - clocks_slowest(c, RANKS);
		for (int64_t m = most; ahead > m && !atomic_compare_exchange_weak(&most, &m, ahead);)
			;
		if (r == 1)
			usleep(300);
		clocks_say(c, own, &(struct clocks_line){.gradients = 1, .loss = (double)own});
		atomic_store(&c->rank[r].done, own + 1);
		for (struct clocks_line l; r == 0 && told < clocks_slowest(c, RANKS); told++) {
			assert_true(clocks_read(c, told, INT64_MAX, &l));
			assert_true(l.gradients == RANKS && l.loss == (double)(RANKS * told));
		}
		if (r == 0 && own == 200)
			clocks_end(c, 1);
	}
	return NULL;
}

static void test_steps(void **state)
{
	struct clocks_line l;

	clocks_begin(c, RANKS, 500);
	together(take_steps);
	assert_true(c->limit > 200 && c->limit <= 201 + 2 * AHEAD);
	assert_int_equal(clocks_slowest(c, RANKS), c->limit);
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(c->rank[r].done, c->limit);
	assert_true(most <= AHEAD);
	for (; told < c->limit; told++)
		assert_true(clocks_read(c, told, INT64_MAX, &l) && l.gradients == RANKS);
}

static void *count(void *arg)
{
	for (int i = 0; i < 20000; i++) {
		clocks_lock(&c->rank[2].lock);
		c->rank[2].arrived[0]++;
		clocks_unlock(&c->rank[2].lock);
	}
	return arg;
}

static void test_lock(void **state)
{
	clocks_begin(c, RANKS, 1);
	together(count);
	assert_int_equal(c->rank[2].arrived[0], RANKS * 20000);
}

/* Asked to end before anything is begun: a step is made all the same. */
static void test_end_first(void **state)
{
	clocks_begin(c, RANKS, 100);
	clocks_end(c, RANKS);
	assert_int_equal(c->limit, RANKS);
	assert_int_equal(clocks_turn(c, RANKS, 0, 0).may, 1);
	assert_int_equal(clocks_turn(c, RANKS, 1, 0).may, -1);
	assert_int_equal(clocks_turn(c, RANKS, RANKS, 0).may, 0);
	c->rank[0].done = c->rank[1].done = c->rank[3].done = 3;
	c->rank[2].done = 2;
	assert_int_equal(clocks_turn(c, RANKS, 3, 0).may, -1);
	assert_int_equal(clocks_turn(c, RANKS, 3, 0).rank, 2);
	assert_int_equal(clocks_turn(c, RANKS, 3, 0).done, 2);
	assert_int_equal(clocks_turn(c, RANKS, 3, 1).may, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_end_first),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
