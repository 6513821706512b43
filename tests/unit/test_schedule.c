/* Pipeline tables: complete, free of deadlock, the bubbles and microbatches in flight that the papers give */
#include "plan/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_schedule make(enum dt_pipeline kind, int pp, int chunks, int mbs)
{
	struct dt_schedule s;
	struct dt_err err = {0};

	if (dt_schedule_make(kind, pp, chunks, mbs, &s, &err) < 0)
		fail_msg("%s", err.msg);
	return s;
}

/* Time of the table where F of a whole stage takes f, B b and W w, over what the work of one stage takes. */
static double idle(enum dt_pipeline kind, int pp, int chunks, int mbs, double f, double b, double w)
{
	struct dt_schedule s = make(kind, pp, chunks, mbs);
	struct dt_pipe_cost cost[64];
	double bubble, t;

	for (int v = 0; v < pp * chunks; v++)
		cost[v] = (struct dt_pipe_cost){f / chunks, b / chunks, w / chunks};
	t = dt_schedule_simulate(&s, cost, 0, &bubble);
	assert_true(t > 0);
	assert_true(bubble > -1e-12 && bubble < 1);
	assert_true(t * (1 - bubble) - mbs * (f + b + w) < 1e-9 * t &&
		    mbs * (f + b + w) - t * (1 - bubble) < 1e-9 * t);
	dt_schedule_release(&s);
	return t - mbs * (f + b + w);
}

static void near(double got, double want)
{
	if (got - want > 1e-9 || want - got > 1e-9)
		fail_msg("%g, expected %g", got, want);
}

static void test_bubbles(void **state)
{
	(void)state;
	for (int pp = 2; pp <= 8; pp++)
		for (int k = 1; k <= 3; k++) {
			int m = k * pp;

			/* Narayanan et al. 2021, section 2.2: (p - 1)(f + b), over v when interleaved */
			near(idle(DT_PIPE_GPIPE, pp, 1, m, 1, 2, 0), (pp - 1) * 3);
			near(idle(DT_PIPE_1F1B, pp, 1, m, 1, 2, 0), (pp - 1) * 3);
			near(idle(DT_PIPE_INTERLEAVED, pp, 2, m, 1, 2, 0), (pp - 1) * 3 / 2.0);
			near(idle(DT_PIPE_INTERLEAVED, pp, 4, m, 1, 2, 0), (pp - 1) * 3 / 4.0);
			/* Qi et al. 2023, table 2: (p - 1)(F + B - W) */
			near(idle(DT_PIPE_ZB_H1, pp, 1, m, 1, 1, 1), pp - 1);
		}
}

static void test_in_flight(void **state)
{
	(void)state;
	for (int pp = 1; pp <= 6; pp++)
		for (int m = 1; m <= 12; m++) {
			struct dt_schedule g = make(DT_PIPE_GPIPE, pp, 1, m),
					   o = make(DT_PIPE_1F1B, pp, 1, m),
					   z = make(DT_PIPE_ZB_H1, pp, 1, m);

			for (int i = 0; i < pp; i++) {
				assert_int_equal(dt_schedule_in_flight(&g, i, 0), m);
				assert_int_equal(dt_schedule_in_flight(&o, i, 0), m < pp - i ? m : pp - i);
				assert_int_equal(dt_schedule_in_flight(&z, i, 0), m < pp ? m : pp);
			}
			dt_schedule_release(&g);
			dt_schedule_release(&o);
			dt_schedule_release(&z);
		}
}

/* What a plan for a batch has room for, smaller batches need too (a batch that grows). */
static void test_fewer_need_less(void **state)
{
	(void)state;
	for (int pp = 2; pp <= 6; pp++)
		for (int chunks = 2; chunks <= 4; chunks++)
			for (int m = pp; m <= 6 * pp; m += pp) {
				struct dt_schedule few = make(DT_PIPE_INTERLEAVED, pp, chunks, m),
						   many = make(DT_PIPE_INTERLEAVED, pp, chunks, m + pp);

				for (int i = 0; i < pp; i++)
					for (int k = 0; k < chunks; k++)
						assert_true(dt_schedule_in_flight(&few, i, k) <=
							    dt_schedule_in_flight(&many, i, k));
				dt_schedule_release(&few);
				dt_schedule_release(&many);
			}
}

/* Every action of every table once, found by counting rather than by the checker. */
static void test_complete(void **state)
{
	static const enum dt_pipeline kinds[] = {DT_PIPE_GPIPE, DT_PIPE_1F1B, DT_PIPE_INTERLEAVED,
						 DT_PIPE_ZB_H1};

	(void)state;
	for (int k = 0; k < 4; k++)
		for (int pp = 1; pp <= 5; pp++) {
			int chunks = kinds[k] == DT_PIPE_INTERLEAVED ? 3 : 1, m = 2 * pp,
			    ops = kinds[k] == DT_PIPE_ZB_H1 ? 3 : 2;
			struct dt_schedule s = make(kinds[k], pp, chunks, m);

			for (int i = 0; i < pp; i++) {
				int seen[3][3][16] = {0};

				assert_int_equal(s.start[i + 1] - s.start[i], ops * m * chunks);
				for (int j = s.start[i]; j < s.start[i + 1]; j++)
					seen[s.a[j].op == 'F'	? 0
					     : s.a[j].op == 'B' ? 1
								: 2][s.a[j].chunk][s.a[j].mb]++;
				for (int o = 0; o < ops; o++)
					for (int c = 0; c < chunks; c++)
						for (int mb = 0; mb < m; mb++)
							assert_int_equal(seen[o][c][mb], 1);
			}
			dt_schedule_release(&s);
		}
}

/* Field by field: the padding behind op has any value. */
static void same_action(const struct dt_action *a, const struct dt_action *b)
{
	assert_int_equal(a->op, b->op);
	assert_int_equal(a->mb, b->mb);
	assert_int_equal(a->chunk, b->chunk);
}

/* A table of one stage has the row of the whole table, and holds as many microbatches. */
static void test_one_stage(void **state)
{
	static const enum dt_pipeline kinds[] = {DT_PIPE_GPIPE, DT_PIPE_1F1B, DT_PIPE_INTERLEAVED,
						 DT_PIPE_ZB_H1};
	const double weight[] = {1, 2.5, 4};

	(void)state;
	for (int k = 0; k < 4; k++)
		for (int pp = 1; pp <= 5; pp++) {
			int chunks = kinds[k] == DT_PIPE_INTERLEAVED ? 3 : 1;
			struct dt_schedule all = make(kinds[k], pp, chunks, 3 * pp), one;

			for (int i = 0; i < pp; i++) {
				int n = all.start[i + 1] - all.start[i];

				assert_int_equal(
					dt_schedule_make_stage(kinds[k], pp, chunks, 3 * pp, i, &one, NULL),
					0);
				for (int j = 0; j < pp; j++)
					assert_int_equal(one.start[j + 1] - one.start[j], j == i ? n : 0);
				for (int j = 0; j < n; j++)
					same_action(&one.a[j], &all.a[all.start[i] + j]);
				for (int c = 0; c < chunks; c++)
					assert_int_equal(dt_schedule_in_flight(&one, i, c),
							 dt_schedule_in_flight(&all, i, c));
				near(dt_schedule_held(&one, i, weight), dt_schedule_held(&all, i, weight));
				dt_schedule_release(&one);
			}
			dt_schedule_release(&all);
		}
}

static void test_text(void **state)
{
	(void)state;
	for (int k = 0; k < 2; k++) {
		struct dt_schedule s = make(k ? DT_PIPE_INTERLEAVED : DT_PIPE_ZB_H1, 3, k ? 2 : 1, 6), back,
				   copy;
		struct dt_err err = {0};
		char *text;
		size_t n;
		FILE *f = open_memstream(&text, &n);

		dt_schedule_print(&s, f);
		fclose(f);
		if (dt_schedule_read(text, "memory", 3, k ? 2 : 1, 6, &back, &err) < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(dt_schedule_copy(&back, &copy, &err), 0);
		assert_int_equal(copy.split, s.split);
		assert_memory_equal(copy.start, s.start, 4 * sizeof(int));
		for (int i = 0; i < s.start[3]; i++)
			assert_true(copy.a[i].op == s.a[i].op && copy.a[i].mb == s.a[i].mb &&
				    copy.a[i].chunk == s.a[i].chunk);
		free(text);
		dt_schedule_release(&s);
		dt_schedule_release(&back);
		dt_schedule_release(&copy);
	}
}

static void refused(const char *text, const char *word)
{
	struct dt_schedule s = {0};
	struct dt_err err = {0};
	int rc = dt_schedule_read(text, "memory", 2, 1, 2, &s, &err);

	if (rc == 0)
		rc = dt_schedule_check(&s, &err);
	dt_schedule_release(&s);
	if (rc == 0)
		fail_msg("taken: %s", text);
	if (!strstr(err.msg, word))
		fail_msg("'%s' does not speak of '%s'", err.msg, word);
}

static void test_refused(void **state)
{
	(void)state;
	refused("F0 B0 F1 B1\nF0 B0 F1\n", "3 actions, not 4"); /* incomplete */
	refused("F0 B0 F1 F1\nF0 B0 F1 B1\n", "twice");
	refused("F0 B0 F1 B1\nF1 B1 F0 B0\n", ""); /* each waits for the other */
	refused("F0 B0 F1 B1\n", "");		   /* a stage is missing */
	refused("F0 B0 F1 B2\nF0 B0 F1 B1\n", "B2");
	refused("F0 X0\nF0\n", "an action is");
	refused("", "");
	refused("F0 B0 F1 B1\nF4294967296 B0 F1 B1\n", "out of range"); /* not F0 */
	refused("F0 B0 F1 B1\nF0.4294967296 B0 F1 B1\n", "out of range");
}

/* Letters of a comment are no actions. */
static void test_comment(void **state)
{
	static const char *const text[] = {
		"# Written by hand, Without splits\nF0 B0 F1 B1 # W\nF0 B0 F1 B1\n",
		"F0 B0 W0 F1 B1 W1 # so\nF0 B0 W0 F1 B1 W1\n#"};
	struct dt_err err = {0};

	for (int i = 0; i < 2; i++) {
		struct dt_schedule s = {0};

		if (dt_schedule_read(text[i], "memory", 2, 1, 2, &s, &err) < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(s.split, i);
		dt_schedule_release(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bubbles),		cmocka_unit_test(test_in_flight),
		cmocka_unit_test(test_fewer_need_less), cmocka_unit_test(test_complete),
		cmocka_unit_test(test_one_stage),	cmocka_unit_test(test_text),
		cmocka_unit_test(test_refused),		cmocka_unit_test(test_comment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
