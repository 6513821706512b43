/* Marks of prompts on the blocks of the cache, and the log of what came and went. */
#include "serve/sched/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Keeps what a reader believes to be there: a count for each mark below 256. */
struct reader {
	uint64_t epoch, seq;
	int there[256];
	bool cleared;
	size_t n;
};

static void hear(struct reader *r, struct dt_kvmarks *m)
{
	struct dt_kvmark_event *e;

	assert_int_equal(dt_kvmarks_read(m, r->epoch, r->seq, &e, &r->n, &r->epoch, &r->seq, &r->cleared), 0);
	if (r->cleared)
		memset(r->there, 0, sizeof(r->there));
	for (size_t i = 0; i < r->n; i++) {
		assert_true(e[i].mark < 256);
		r->there[e[i].mark] += e[i].stored ? 1 : -1;
	}
	free(e);
}

static void test_log(void **state)
{
	struct dt_kvmarks *m = dt_kvmarks_new(4, 8);
	struct reader r = {0}, late = {0};

	dt_kvmarks_put(m, 0, 1);
	dt_kvmarks_put(m, 0, 2);
	dt_kvmarks_put(m, 0, 1); /* again */
	dt_kvmarks_put(m, 3, 1);
	hear(&r, m);
	assert_true(r.cleared);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.there[1], 1); /* of two blocks, once */
	hear(&r, m);
	assert_false(r.cleared);
	assert_int_equal(r.n, 0);
	hear(&late, m);
	dt_kvmarks_drop(m, 0);
	dt_kvmarks_drop(m, 0);
	dt_kvmarks_put(m, 1, 5);
	hear(&r, m);
	assert_false(r.cleared);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.there[1], 1); /* the other block has it */
	assert_int_equal(r.there[2], 0);
	assert_int_equal(r.there[5], 1);
	for (int i = 0; i < 6; i++) { /* more than the log holds */
		dt_kvmarks_put(m, 2, 100 + (uint64_t)i);
		dt_kvmarks_drop(m, 2);
	}
	hear(&late, m);
	assert_true(late.cleared);
	assert_memory_equal(late.there, r.there, sizeof(r.there));
	late.epoch++; /* another server's, or one before its restart */
	hear(&late, m);
	assert_true(late.cleared);
	assert_int_equal(late.epoch, r.epoch);
	dt_kvmarks_free(m);
}

/* By chance, against a plain table: the log and what a new reader hears say the same after every change. */
static void test_many_blocks_of_a_mark(void **state)
{
	enum { BLOCKS = 64, MARKS = 200 };
	static bool lies[BLOCKS][MARKS];
	struct dt_kvmarks *m = dt_kvmarks_new(BLOCKS, 100000);
	struct reader r = {0};
	uint32_t x = 1;

	for (int i = 0; i < 20000; i++) {
		struct reader fresh = {0};
		uint32_t block, mark;

		x = x * 1664525 + 1013904223;
		block = x >> 26;
		mark = (x >> 8) % MARKS;
		if ((x >> 16) % 32 == 0) {
			dt_kvmarks_drop(m, block);
			memset(lies[block], 0, sizeof(lies[block]));
		} else {
			dt_kvmarks_put(m, block, mark);
			lies[block][mark] = true;
		}
		if (i % 50)
			continue;
		hear(&r, m);
		assert_int_equal(r.cleared, i == 0);
		hear(&fresh, m);
		for (int k = 0; k < MARKS; k++) {
			int there = 0;

			for (int b = 0; b < BLOCKS; b++)
				there |= lies[b][k];
			assert_int_equal(r.there[k], there);
			assert_int_equal(fresh.there[k], there);
		}
	}
	dt_kvmarks_free(m);
}

/* What the engine does: everything planned is computed, who caught up gets a token. */
static void step(struct dt_sched *s)
{
	struct dt_sched_item it[4];
	int n = dt_sched_step(s, it);

	for (int i = 0; i < n; i++) {
		it[i].seq->computed += it[i].n;
		dt_sched_computed(s, it[i].seq, it[i].n);
	}
}

/* Marks are heard of as soon as their block is full, and until it is used for something else. */
static void test_prompts(void **state)
{
	static const uint64_t mark[] = {10, 11, 12, 13}, other[] = {20, 21, 22, 23};
	static int32_t ids[40], ids2[40];
	struct dt_kv_salt salt = {1, 0, 0};
	struct reader r = {0};
	struct dt_kvpool p;
	struct dt_sched s;
	struct dt_seq a = {.tokens = ids,
			   .salt = salt,
			   .known = 32,
			   .max_rows = 33,
			   .mark = mark,
			   .nmarks = 4,
			   .mark_tokens = 7};
	struct dt_seq b = a, c = a;

	for (int i = 0; i < 40; i++) {
		ids[i] = i;
		ids2[i] = 1000 + i;
	}
	assert_int_equal(dt_kvpool_init(&p, 10, 4, true), 0);
	p.marks = dt_kvmarks_new(10, 100);
	assert_int_equal(dt_sched_init(&s, &p, 4, 16, NULL, 0, NULL), 0);
	assert_int_equal(dt_sched_submit(&s, &a, NULL), 0);
	step(&s); /* 16 tokens: four blocks; the marks end at 7, 14, 21 and 28 */
	hear(&r, p.marks);
	assert_int_equal(r.there[10] + r.there[11], 2);
	assert_int_equal(r.there[12] + r.there[13], 0);
	step(&s);
	hear(&r, p.marks);
	assert_int_equal(r.there[12] + r.there[13], 2);
	dt_sched_remove(&s, &a);
	hear(&r, p.marks);
	assert_int_equal(r.n, 0); /* still in the cache */
	b.tokens = ids2;
	b.mark = other;
	assert_int_equal(dt_sched_submit(&s, &b, NULL), 0);
	step(&s); /* takes the blocks that were used longest ago, of one text the last ones first */
	step(&s);
	hear(&r, p.marks);
	for (int i = 0; i < 4; i++)
		assert_int_equal(r.there[20 + i], 1);
	assert_int_equal(r.there[10], 1); /* 10 blocks: two of the first are left */
	assert_int_equal(r.there[11] + r.there[12] + r.there[13], 0);
	dt_sched_remove(&s, &b);
	assert_int_equal(dt_sched_submit(&s, &c, NULL), 0);
	step(&s);
	step(&s);
	assert_int_equal(c.cached, 8);
	hear(&r, p.marks);
	for (int i = 0; i < 4; i++)
		assert_int_equal(r.there[10 + i], 1);
	dt_sched_remove(&s, &c);
	dt_sched_release(&s);
	dt_kvmarks_free(p.marks);
	p.marks = NULL;
	dt_kvpool_release(&p);
}

/* One that comes after its text is computed tells its own names of the same blocks. */
static void test_found_blocks_get_marks(void **state)
{
	static const uint64_t mark[] = {1, 2};
	static int32_t ids[20];
	struct dt_seq a = {.tokens = ids, .known = 16, .max_rows = 17}, b = a;
	struct reader r = {0};
	struct dt_kvpool p;
	struct dt_sched s;

	dt_kvpool_init(&p, 20, 4, true);
	p.marks = dt_kvmarks_new(20, 100);
	dt_sched_init(&s, &p, 4, 64, NULL, 0, NULL);
	dt_sched_submit(&s, &a, NULL);
	step(&s);
	hear(&r, p.marks);
	assert_int_equal(r.n, 0);
	b.mark = mark;
	b.nmarks = 2;
	b.mark_tokens = 6;
	dt_sched_submit(&s, &b, NULL);
	step(&s);
	hear(&r, p.marks);
	assert_int_equal(r.there[1] + r.there[2], 2);
	dt_sched_remove(&s, &a);
	dt_sched_remove(&s, &b);
	dt_sched_release(&s);
	dt_kvmarks_free(p.marks);
	p.marks = NULL;
	dt_kvpool_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log),
		cmocka_unit_test(test_many_blocks_of_a_mark),
		cmocka_unit_test(test_prompts),
		cmocka_unit_test(test_found_blocks_get_marks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
