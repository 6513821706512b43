/* Windows score what they promise; answers are normalised as tasks say; the paired test's numbers. */
#include "eval/score.h"
#include "eval/windows.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Every token but the first once, in order, none with a look at itself, contexts as long as promised. */
static void rolling_scores_each_token_once(void **state)
{
	for (int64_t n = 2; n < 70; n++)
		for (int64_t seq = 2; seq < 20; seq++)
			for (int64_t stride = 1; stride <= seq; stride++) {
				struct dt_window *w = NULL;
				int64_t k = dt_windows_cut(DT_WINDOWS_ROLLING, n, seq, stride, &w, NULL),
					next = 1;

				assert_true(k > 0);
				for (int64_t i = 0; i < k; i++) {
					assert_int_equal(w[i].first, next);
					assert_true(w[i].last > w[i].first && w[i].end - w[i].begin <= seq);
					assert_int_equal(w[i].end, w[i].last - 1);
					assert_true(w[i].begin == 0 ||
						    w[i].first - w[i].begin >= seq - stride + 1);
					next = w[i].last;
				}
				assert_int_equal(next, n);
				free(w);
			}
}

/* The loop of transformers' page, and what it leaves out: the first token of each window without overlap. */
static void transformers_windows_are_its_loop(void **state)
{
	for (int64_t n = 2; n < 70; n++)
		for (int64_t seq = 2; seq < 20; seq++)
			for (int64_t stride = 1; stride <= seq; stride++) {
				struct dt_window *w = NULL;
				int64_t k = dt_windows_cut(DT_WINDOWS_TRANSFORMERS, n, seq, stride, &w, NULL);
				int64_t before = 0, at = 0;

				for (int64_t begin = 0; begin < n; begin += stride) {
					int64_t end = begin + seq < n ? begin + seq : n,
						length = end - before;
					int64_t first = end - length > begin ? end - length : begin + 1;

					if (first < end) {
						assert_int_equal(w[at].begin, begin);
						assert_int_equal(w[at].end, end);
						assert_int_equal(w[at].first, first);
						assert_int_equal(w[at].last, end);
						at++;
					}
					before = end;
					if (end == n)
						break;
				}
				assert_int_equal(k, at);
				free(w);
			}
}

static void too_short_is_told(void **state)
{
	struct dt_window *w = NULL;
	struct dt_err err = {0};

	assert_true(dt_windows_cut(DT_WINDOWS_ROLLING, 1, 8, 8, &w, &err) < 0);
	assert_non_null(strstr(err.msg, "1 token:"));
	assert_true(dt_windows_cut(DT_WINDOWS_LLAMA, 7, 8, 8, &w, &err) < 0);
	assert_null(w);
}

static void answers_are_normalised(void **state)
{
	static const struct {
		enum dt_task_match how;
		const char *text, *want;
	} rows[] = {
		{DT_MATCH_EXACT, "  The Cat. \n", "The Cat."},
		{DT_MATCH_LOOSE, "  The  Cat's an  animal. \n", "cats animal"},
		{DT_MATCH_LOOSE, "a", ""},
		{DT_MATCH_NUMBER, "so 3 + 4 makes 1,234.5.", "1234.5"},
		{DT_MATCH_NUMBER, "it is -7", "-7"},
		{DT_MATCH_NUMBER, "none at all", ""},
		{DT_MATCH_NUMBER, "$18.00", "18"},
		{DT_MATCH_NUMBER, "007.50", "7.5"},
		{DT_MATCH_NUMBER, "-0.0", "0"},
		{DT_MATCH_NUMBER, "100", "100"},
		{DT_MATCH_NUMBER, "so 0.05", ".05"},
		{DT_MATCH_NUMBER, "it is -.50.", "-.5"},
		{DT_MATCH_NUMBER, "the end.5", "5"},
		{DT_MATCH_NUMBER, "version 1.2.0", "1.2.0"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *got = dt_task_normal(rows[i].how, rows[i].text);

		assert_string_equal(got, rows[i].want);
		free(got);
	}
}

/* Numbers are equal by value, and a text without one equals nothing. */
static void numbers_are_compared(void **state)
{
	char *accepted[] = {(char *)"0.50"};
	const struct dt_task t = {.match = DT_MATCH_NUMBER};
	const struct dt_task_item item = {.accepted = accepted, .naccepted = 1};

	assert_true(dt_task_matches(&t, &item, "half: .5"));
	assert_false(dt_task_matches(&t, &item, "50"));
	accepted[0] = (char *)"none";
	assert_false(dt_task_matches(&t, &item, "nothing"));
}

static void templates_are_filled(void **state)
{
	json_t *o = json_pack("{s:s, s:i, s:[i,i]}", "q", "why", "n", 3, "l", 1, 2);
	struct dt_err err = {0};
	char *got = dt_task_fill("{{{q}}} {n}: {l}", o, &err);

	assert_string_equal(got, "{why} 3: [1,2]");
	free(got);
	assert_null(dt_task_fill("{x}", o, &err));
	assert_null(dt_task_fill("{q", o, &err));
	json_decref(o);
}

/* McNemar's exact test: 2 and 8 of ten that differ give 2 * (1 + 10 + 45) / 1024. */
static void the_paired_test(void **state)
{
	double a[20] = {0}, b[20] = {0};
	const struct dt_score sa = {.n = 20, .right = a}, sb = {.n = 20, .right = b};
	struct dt_score_pair p;
	double mean = 6.0 / 20;

	for (int i = 0; i < 10; i++) {
		a[i] = i < 2;
		b[i] = i >= 2;
		a[10 + i] = b[10 + i] = i % 2;
	}
	dt_score_compare(&sa, &sb, &p);
	assert_int_equal(p.only_a, 2);
	assert_int_equal(p.only_b, 8);
	assert_true(fabs(p.p - 112.0 / 1024) < 1e-12);
	assert_true(fabs(p.difference - mean) < 1e-15);
	assert_true(fabs(p.error - sqrt((10.0 / 20 - mean * mean) / 19)) < 1e-15);
	dt_score_compare(&sa, &sa, &p);
	assert_true(p.p == 1 && p.difference == 0);
}

static int say_half(struct dt_asker *a, struct dt_question *q, int64_t n, struct dt_err *err)
{
	for (int64_t i = 0; i < n; i++)
		q[i].text = strdup("caf\xc3");
	return 0;
}

/* An answer that ends within a character is kept, as far as it goes. */
static void half_a_character_is_written(void **state)
{
	struct dt_asker a = {.ask = say_half};
	char *accepted[] = {(char *)"x"}, *line = NULL;
	struct dt_task_item item = {.line = 7, .question = (char *)"q", .accepted = accepted, .naccepted = 1};
	struct dt_task t = {.kind = DT_TASK_GENERATE, .n = 1, .item = &item, .max_tokens = 4};
	size_t n = 0;
	FILE *f = open_memstream(&line, &n);
	struct dt_score_query q = {.size = 1, .predictions = f};
	struct dt_score s;
	struct dt_err err = {0};

	if (dt_score_run(&t, &a, &q, &s, &err) < 0)
		fail_msg("%s", err.msg);
	fclose(f);
	assert_string_equal(line, "{\"line\":7,\"right\":false,\"text\":\"caf\xef\xbf\xbd\"}\n");
	dt_score_release(&s);
	free(line);
}

/* Counts questions whose context is the examples and the item's own text. */
static int see_contexts(struct dt_asker *a, struct dt_question *q, int64_t n, struct dt_err *err)
{
	for (int64_t i = 0; i < n; i++) {
		char end[64];
		size_t len = strlen(q[i].context);

		snprintf(end, sizeof(end), "tail\n\nQ: item %lld", (long long)q[i].line - 2);
		assert_true(len > 20 * 2000 && len < 21 * 2100);
		assert_memory_equal(q[i].context, "Q: shot 0 aaa", 13);
		assert_string_equal(q[i].context + len - strlen(end), end);
		assert_string_equal(q[i].continuation, i % 2 ? " tail" : " head");
		assert_ptr_equal(q[i].context, q[i & ~1].context);
		q[i].logprob = i % 2;
	}
	return 0;
}

/* 20 examples of 2 kB before 10,000 items: they are in memory once, 400 MB less than in every item. */
static void items_share_the_examples(void **state)
{
	char path[] = "/tmp/dt-eval-XXXXXX", pad[2000];
	struct dt_asker a = {.ask = see_contexts};
	struct dt_score_query q = {.size = 1};
	struct dt_score s;
	struct dt_task t;
	struct dt_err err = {0};
	FILE *f = fdopen(mkstemp(path), "w");
	size_t before = mallinfo2().uordblks, used;

	memset(pad, 'a', sizeof(pad));
	fprintf(f, "{\"task\":\"x\",\"template\":\"Q: {q}\",\"choices\":[\"head\",\"tail\"],\"shots\":[");
	for (int i = 0; i < 20; i++)
		fprintf(f, "%s{\"q\":\"shot %d %.*s\",\"answer\":1}", i ? "," : "", i, (int)sizeof(pad), pad);
	fprintf(f, "]}\n");
	for (int i = 0; i < 10000; i++)
		fprintf(f, "{\"q\":\"item %d\",\"answer\":1}\n", i);
	fclose(f);
	if (dt_task_read(path, 0, &t, &err) < 0)
		fail_msg("%s", err.msg);
	unlink(path);
	used = mallinfo2().uordblks - before;
	assert_int_equal(t.n, 10000);
	if (used > 4000000)
		fail_msg("the task takes %zu bytes", used);
	if (dt_score_run(&t, &a, &q, &s, &err) < 0)
		fail_msg("%s", err.msg);
	for (int64_t i = 0; i < s.n; i++)
		assert_true(s.right[i] > 0);
	dt_score_release(&s);
	dt_task_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rolling_scores_each_token_once),
		cmocka_unit_test(transformers_windows_are_its_loop),
		cmocka_unit_test(too_short_is_told),
		cmocka_unit_test(answers_are_normalised),
		cmocka_unit_test(numbers_are_compared),
		cmocka_unit_test(templates_are_filled),
		cmocka_unit_test(the_paired_test),
		cmocka_unit_test(half_a_character_is_written),
		cmocka_unit_test(items_share_the_examples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
