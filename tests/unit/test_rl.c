/* Tasks and their scores, rollouts as lines, rewards from programs that misbehave. */
#include "rl/reward.h"
#include "rl/stats.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static double score(const char *spec, const char *prompt, const char *answer)
{
	struct dt_rl_task t;
	struct dt_err err = {0};
	double r = -1;

	assert_int_equal(dt_rl_task_parse(spec, &t, &err), 0);
	assert_int_equal(dt_rl_task_score(&t, prompt, answer, &r, &err), 0);
	return r;
}

/* Every task's own solutions are right, prompts repeat by index alone, and most differ. */
static void test_solutions(void **state)
{
	static const char *const spec[] = {"sort:1",	  "sort:100",	"add:1",       "add:100",
					   "copy:7",	  "count:12",	"countdown:1", "countdown:2",
					   "countdown:4", "countdown:6"};
	struct dt_err err = {0};

	for (size_t k = 0; k < sizeof(spec) / sizeof(spec[0]); k++) {
		char p[2][DT_RL_TASK_TEXT], s[2][DT_RL_TASK_TEXT], last[DT_RL_TASK_TEXT] = "";
		struct dt_rl_task t;
		int changed = 0;

		assert_int_equal(dt_rl_task_parse(spec[k], &t, &err), 0);
		for (uint64_t i = 0; i < 200; i++) {
			double r = 0;

			dt_rl_task_make(&t, 5, i, p[0], s[0]);
			dt_rl_task_make(&t, 5, i, p[1], s[1]);
			assert_string_equal(p[0], p[1]);
			assert_int_equal(dt_rl_task_score(&t, p[0], s[0], &r, &err), 0);
			if (r != 1)
				fail_msg("%s: '%s' is not the answer to '%s'", spec[k], s[0], p[0]);
			changed += strcmp(last, p[0]) != 0;
			strcpy(last, p[0]);
		}
		assert_true(changed > 150);
	}
}

static void test_scores(void **state)
{
	assert_float_equal(score("sort:4", "3142>", "1234"), 1, 0);
	assert_float_equal(score("sort:4", "3142>", " 1234\n"), 1, 0);
	assert_float_equal(score("sort:4", "3142>", "12344"), 0, 0);
	assert_float_equal(score("sort:4", "3142>", ""), 0, 0);
	assert_float_equal(score("add:3", "123+456=", "975"), 1, 0);
	assert_float_equal(score("add:3", "999+001=", "0001"), 1, 0);
	assert_float_equal(score("add:3", "123+456=", "579"), 0, 0);
	assert_float_equal(score("count:4", "abba>", "2"), 1, 0);
	assert_float_equal(score("copy:3", "xyz>", "xyz"), 1, 0);
}

/* Expressions: every number once, exact fractions, and nothing that is gamed. */
static void test_countdown(void **state)
{
	static const struct {
		const char *answer;
		double reward;
	} t[] = {
		{"3*7+25", 1},
		{"25 + 7 * 3", 1},
		{"(3*7)+25", 1},
		{"46", 0.1},
		{"25+21", 0.1},
		{"3*7+25+0", 0.1},
		{"3*7+24", 0.1},
		{"3*7+25=46", 0},
		{"3*7+", 0},
		{"", 0},
		{"(3*7+25", 0},
		{"3*7+25)", 0},
		{"3/0+25", 0},
		{"1e9", 0},
		{"-3", 0},
		{"3*7+25;", 0},
		{"99999999999999999999", 0},
		{"__import__('os')", 0},
		{"3 7 25=46:", 0},
	};
	char deep[4000];

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		double r = score("countdown:3", "3 7 25=46:", t[i].answer);

		if (r != t[i].reward)
			fail_msg("'%s' is worth %g, not %g", t[i].answer, t[i].reward, r);
	}
	assert_float_equal(score("countdown:4", "8 3 8 3=24:", "8/(3-8/3)"), 1, 0);
	memset(deep, '(', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	assert_float_equal(score("countdown:3", "3 7 25=46:", deep), 0, 0);
}

static void test_specs(void **state)
{
	static const char *const bad[] = {"",	     "sort",	"sort:",   "sort:0",	  "sort:101",
					  "sort:7x", "sort:-1", "sortx:3", "countdown:7", "sort: 7"};
	struct dt_rl_task t;
	struct dt_err err = {0};
	double r;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (dt_rl_task_parse(bad[i], &t, &err) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	assert_int_equal(dt_rl_task_parse("sort:3", &t, &err), 0);
	assert_int_equal(dt_rl_task_score(&t, "12>", "12", &r, &err), -EINVAL);
	assert_int_equal(dt_rl_task_score(&t, "12a>", "12", &r, &err), -EINVAL);
}

/* A group of n answers to sort:3. */
static struct dt_group make_group(int n)
{
	struct dt_group g = {.index = 3, .step = 7, .weights = "ab", .temperature = 1, .nprompt = 4, .n = n};

	g.prompt = strdup("312>");
	g.prompt_ids = calloc(4, sizeof(*g.prompt_ids));
	g.answer = calloc((size_t)n, sizeof(*g.answer));
	for (int i = 0; i < n; i++) {
		struct dt_answer *a = &g.answer[i];

		a->n = 2 + i % 3;
		a->ids = calloc((size_t)a->n, sizeof(*a->ids));
		a->logprob = calloc((size_t)a->n, sizeof(*a->logprob));
		for (int k = 0; k < a->n; k++) {
			a->ids[k] = 100 + k;
			a->logprob[k] = -0.1f * (float)(k + 1);
		}
		a->text = strdup(i % 2 ? "123" : "321");
		strcpy(a->finish, i == 2 ? "length" : "stop");
		a->reward = (double)NAN;
	}
	return g;
}

/* A line is read as it was written, log-probabilities to the bit; what is out of order is refused by name. */
static void test_lines(void **state)
{
	static const struct {
		const char *key, *value, *says;
	} bad[] = {
		{"rollout", "null", "not a rollout"},
		{"prompt_ids", "[]", "prompt_ids"},
		{"prompt_ids", "[1, -2]", "prompt_ids"},
		{"prompt_ids", "[1, 2.5]", "prompt_ids"},
		{"prompt_ids", "[300]", "vocabulary"},
		{"max_tokens", "0", "max_tokens"},
		{"answers", "[]", "answers"},
		{"answers", "[3]", "not a JSON object"},
		{"answers", "[{\"ids\": [1]}, {\"ids\": []}]", "answer 1"},
		{"answers", "[{\"ids\": [1, 2], \"logprobs\": [-1]}]", "as long as"},
		{"answers", "[{\"ids\": [1], \"logprobs\": [1]}]", "not a log-probability"},
		{"answers", "[{\"ids\": [1], \"logprobs\": [\"x\"]}]", "not a log-probability"},
		{"answers", "[{\"ids\": [1], \"reward\": \"x\"}]", "not a number"},
	};
	struct dt_group g = make_group(3), back = {0};
	struct dt_err err = {0};
	json_t *o;

	g.answer[1].reward = 0.5;
	g.answer[2].fail = "it ended";
	g.max_tokens = 9;
	o = dt_group_json(&g);
	assert_non_null(o);
	assert_int_equal(dt_group_parse(o, 257, &back, &err), 0);
	assert_int_equal(back.n, 3);
	assert_int_equal(back.step, 7);
	assert_int_equal(back.max_tokens, 9);
	assert_string_equal(back.weights, "ab");
	assert_true(isnan(back.answer[0].reward) && back.answer[1].reward == 0.5);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(back.answer[i].n, g.answer[i].n);
		assert_memory_equal(back.answer[i].logprob, g.answer[i].logprob, (size_t)g.answer[i].n * 4);
		assert_memory_equal(back.answer[i].ids, g.answer[i].ids, (size_t)g.answer[i].n * 4);
	}
	dt_group_release(&back);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		json_t *copy = json_copy(o);

		json_object_set_new(copy, bad[i].key, json_loads(bad[i].value, JSON_DECODE_ANY, NULL));
		assert_int_equal(dt_group_parse(copy, 257, &back, &err), -EINVAL);
		if (!strstr(err.msg, bad[i].says))
			fail_msg("%s %s: '%s'", bad[i].key, bad[i].value, err.msg);
		dt_group_release(&back);
		json_decref(copy);
	}
	json_decref(o);
	dt_group_release(&g);
}

static int judge(const char *command, struct dt_group *g, double timeout, struct dt_err *err)
{
	const struct dt_reward_opts o = {.command = command, .workers = 3, .timeout = timeout};
	struct dt_reward *r = NULL;
	int rc = dt_reward_open(&o, &r, err);

	if (rc == 0)
		rc = dt_reward_score(r, g, 1, err);
	dt_reward_close(r);
	return rc;
}

#define LOOP "while IFS= read -r line; do "

static void test_command(void **state)
{
	struct dt_group g = make_group(20);
	struct dt_rl_stats s = {0};
	struct dt_err err = {0};

	assert_int_equal(
		judge(LOOP "case $line in *'\"123\"'*) echo 1.5;; *) echo '{\"reward\": -2}';; esac; done",
		      &g, 20, &err),
		0);
	for (int i = 0; i < 20; i++)
		assert_float_equal(g.answer[i].reward, (i % 2 ? 1.5 : -2), 0);
	dt_rl_count(&s, &g, 1);
	assert_int_equal(s.answers, 20);
	assert_float_equal(dt_rl_mean(&s), -0.25, 1e-12);
	assert_float_equal(dt_rl_std(&s), 1.75, 1e-12);
	assert_int_equal(s.flat, 0);
	assert_int_equal(s.truncated, 1);
	dt_group_release(&g);
}

/* What is late, dies, or is no number costs its own answers alone. */
static void test_hostile(void **state)
{
	static const struct {
		const char *bad, *why;
		double timeout;
	} t[] = {
		{"sleep 100", "too long", 3},	       {"exit 3", "ended", 20},
		{"kill -9 $$", "ended", 20},	       {"echo rubbish", "not a number", 20},
		{"echo NaN", "not a number", 20},      {"echo 1e999", "not a number", 20},
		{"echo '{}'", "not a number", 20},     {"echo", "not a number", 20},
		{"printf '1\\n2\\n'", "one line", 20}, {"printf %70000d 1", "not a number", 20},
	};
	char command[300];

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct dt_group g = make_group(6);
		struct dt_rl_stats s = {0};
		struct dt_err err = {0};

		snprintf(command, sizeof(command), LOOP "case $line in *length*) %s;; *) echo 1;; esac; done",
			 t[i].bad);
		assert_int_equal(judge(command, &g, t[i].timeout, &err), 0);
		for (int k = 0; k < 6; k++)
			if (k == 2 ? !isnan(g.answer[k].reward) || !strstr(g.answer[k].fail, t[i].why)
				   : g.answer[k].reward != 1)
				fail_msg("%s: answer %d has %g, %s", t[i].bad, k, g.answer[k].reward,
					 g.answer[k].fail ? g.answer[k].fail : "no reason");
		dt_rl_count(&s, &g, 1);
		assert_int_equal(s.unscored, 1);
		assert_int_equal(s.flat, 1);
		dt_group_release(&g);
	}
}

/* A program that never gives a number is an error, with the command's name. */
static void test_useless(void **state)
{
	struct dt_group g = make_group(100);
	struct dt_err err = {0};

	assert_int_equal(judge("/no/such/program", &g, 20, &err), -EIO);
	assert_non_null(strstr(err.msg, "/no/such/program"));
	dt_group_release(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_solutions), cmocka_unit_test(test_scores),
		cmocka_unit_test(test_countdown), cmocka_unit_test(test_specs),
		cmocka_unit_test(test_lines),	  cmocka_unit_test(test_command),
		cmocka_unit_test(test_hostile),	  cmocka_unit_test(test_useless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
