/* Prompts that begin alike and come at once: one waits for what another computes, where that saves work. */
#include "serve/sched/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_seq seq_of(int prompt, int out)
{
	return (struct dt_seq){.known = prompt, .max_rows = prompt + out - 1};
}

/* Of prompts that begin alike and come at once, the common part is computed once, whoever leaves. */
static void test_common_part_is_computed_once(void **state)
{
	int32_t text[2][100] = {{0}};
	struct dt_seq q[3] = {seq_of(100, 4), seq_of(100, 4), seq_of(100, 4)};
	struct dt_sched_item it[4];
	struct dt_kvpool p;
	struct dt_sched s;

	text[1][80] = 1;
	dt_kvpool_init(&p, 100, 4, true);
	dt_sched_init(&s, &p, 4, 40, NULL, 0, NULL);
	for (int i = 0; i < 3; i++) {
		q[i].tokens = text[i == 1];
		assert_int_equal(dt_sched_submit(&s, &q[i], NULL), 0);
	}
	assert_int_equal(dt_sched_step(&s, it), 1);
	assert_int_equal(it[0].n, 40);
	q[0].computed = 40;
	dt_sched_computed(&s, &q[0], 40);
	dt_sched_remove(&s, &q[0]); /* the second continues behind what the first has left */
	assert_int_equal(dt_sched_step(&s, it), 1);
	assert_int_equal(it[0].first, 40);
	q[1].computed = 80;
	dt_sched_computed(&s, &q[1], 40);
	assert_int_equal(dt_sched_step(&s, it), 2);
	assert_ptr_equal(it[1].seq, &q[2]);
	assert_int_equal(it[1].first, 80);
	for (int i = 1; i < 3; i++)
		dt_sched_remove(&s, &q[i]);
	dt_sched_release(&s);
	dt_kvpool_release(&p);
}

/*
 * Two replicas; q[0] computes on the first what q[3] needs. q[3] waits for that only if it can run there: the
 * first replica has no room for another sequence (full), or not the blocks.
 */
static void on_the_other(bool full)
{
	static int32_t text[100];
	struct dt_seq q[4] = {seq_of(100, 4), seq_of(8, 4), seq_of(full ? 8 : 192, 4), seq_of(100, 4)};
	struct dt_kvpool p[2];
	struct dt_sched_item it[6];
	struct dt_sched s;

	for (int i = 0; i < 2; i++)
		dt_kvpool_init(&p[i], 75, 4, true);
	dt_sched_init(&s, p, full ? 4 : 6, 40, NULL, 0, NULL);
	s.replicas = 2;
	q[0].tokens = q[3].tokens = text;
	for (int i = 0; i < 3; i++)
		assert_int_equal(dt_sched_submit(&s, &q[i], NULL), 0);
	assert_int_equal(dt_sched_step(&s, it), 3);
	assert_int_equal(q[2].replica, 0);
	assert_int_equal(dt_sched_submit(&s, &q[3], NULL), 0);
	assert_int_equal(dt_sched_step(&s, it), 4);
	assert_int_equal(q[3].replica, 1);
	for (int i = 0; i < 4; i++)
		dt_sched_remove(&s, &q[i]);
	dt_sched_release(&s);
	for (int i = 0; i < 2; i++)
		dt_kvpool_release(&p[i]);
}

static void test_another_replica_has_room(void **state)
{
	on_the_other(true);
	on_the_other(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_common_part_is_computed_once),
		cmocka_unit_test(test_another_replica_has_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
