/*
 * Constrained answers beside others: a grammar that takes long stops nobody else, and changes no answer. What
 * takes long is a grammar whose lock the test holds.
 */
#include "grammar/matcher_priv.h"
#include "serve_engine.h"

#include "base/cond.h"

enum { PLAIN = 3, OUT = 40 };

static struct dt_grammar *grammar_of(const char *pattern)
{
	struct dt_grammar *g = NULL;
	struct dt_err err;

	if (dt_grammar_regex(pattern, &g, &err) < 0)
		fail_msg("%s", err.msg);
	return g;
}

/* Request i, which follows g: its prompt of i + 1 tokens is a function of i. */
static struct dt_call *constrained(struct dt_grammar *g, int i, int max_tokens)
{
	struct dt_call *c = dt_call_new(1);
	int32_t ids[16];

	for (int k = 0; k <= i; k++)
		ids[k] = (i * 5 + k * 3) % 256;
	dt_serve_req_set_prompt(&c->req[0], ids, (size_t)i + 1, max_tokens);
	c->ask.sampling.temperature = 0.8;
	c->ask.sampling.seed = (uint64_t)i;
	c->ask.grammar = dt_grammar_ref(g);
	c->req[0].matcher = dt_matcher_new(g);
	return c;
}

/* Waits until every request of c has ended; a stalled engine fails the test. */
static void wait_done(struct dt_call *c)
{
	const double until = dt_now() + 30;

	pthread_mutex_lock(&c->mu);
	while (c->open > 0)
		if (dt_cond_wait_until(&c->cond, &c->mu, until) < 0)
			fail_msg("the request was stalled after %d tokens", c->req[0].nout);
	pthread_mutex_unlock(&c->mu);
}

static void wait_tokens(struct dt_call *c, int n)
{
	const double until = dt_now() + 30;

	pthread_mutex_lock(&c->mu);
	while (c->req[0].nout < n)
		if (dt_cond_wait_until(&c->cond, &c->mu, until) < 0)
			fail_msg("%d tokens, not %d", c->req[0].nout, n);
	pthread_mutex_unlock(&c->mu);
}

/* The answer to request i when nothing else runs. */
static void alone(const char *pattern, int i, int max_tokens, char *text, int *ret_n)
{
	struct dt_grammar *g = grammar_of(pattern);
	struct dt_call *c = constrained(g, i, max_tokens);
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 64, 8);

	submit(e, c);
	wait_done(c);
	*ret_n = (int)c->req[0].detok.n;
	memcpy(text, c->req[0].detok.text, c->req[0].detok.n);
	dt_call_drop(c);
	dt_grammar_drop(g);
	finish(e, &f);
}

static void assert_text(const struct dt_call *c, const char *text, int n)
{
	assert_int_equal(c->req[0].detok.n, n);
	assert_memory_equal(c->req[0].detok.text, text, (size_t)n);
}

static struct dt_call *plain(int i)
{
	struct dt_call *c = ask_alike(i, 1, 10, OUT);

	c->ask.ignore_eos = true;
	return c;
}

/* Runs plain streams beside `slow`, whose grammar the caller has locked or not; returns the steps it took. */
static int steps_of_plain(struct dt_engine *e, struct fake *f)
{
	struct dt_call *p[PLAIN];
	int before = f->steps;

	for (int i = 0; i < PLAIN; i++)
		submit(e, p[i] = plain(i));
	for (int i = 0; i < PLAIN; i++) {
		wait_done(p[i]);
		assert_right(&p[i]->req[0]);
		dt_call_drop(p[i]);
	}
	return f->steps - before;
}

/*
 * While no mask can be had, all plain streams run to their end, in the steps that they take without the
 * constrained one and its single discarded row; then that one goes on and ends as it does alone.
 */
static void test_slow_beside_plain(void **state)
{
	static const char pattern[] = "([a-f]+ ){3,6}[a-z]+";
	struct dt_grammar *g = grammar_of(pattern);
	struct dt_call *c, *busy;
	char text[200];
	struct fake f;
	struct dt_engine *e;
	int n, with, without;

	alone(pattern, 2, 30, text, &n);
	e = start(&f, 100, 8, 64, 16);
	f.sleep_us = 2000; /* steps are counted: long beside a delay of this thread */
	submit(e, busy = ask_alike(7, 1, 10, 100)); /* the first plain stream starts beside another */
	wait_tokens(busy, 1);
	c = constrained(g, 2, 30);
	pthread_mutex_lock(&g->mu);
	submit(e, c);
	with = steps_of_plain(e, &f);
	assert_int_equal(c->req[0].nout, 0);
	pthread_mutex_unlock(&g->mu);
	wait_done(c);
	assert_text(c, text, n);
	dt_call_drop(c);
	without = steps_of_plain(e, &f);
	/* submissions arrive one after another, so the streams may be up to PLAIN steps apart */
	assert_in_range(with, OUT, OUT + 4 * PLAIN + (overlaps ? 3 * OUT : 0));
	assert_in_range(without, OUT, OUT + 4 * PLAIN + (overlaps ? 3 * OUT : 0));
	wait_done(busy);
	dt_call_drop(busy);
	dt_grammar_drop(g);
	finish(e, &f);
}

/* The same in the middle of an answer: every token of it may find the grammar locked. */
static void test_locked_now_and_then(void **state)
{
	static const char pattern[] = "[a-f ]{25}";
	struct dt_grammar *g = grammar_of(pattern);
	struct dt_call *c[4], *p;
	char text[4][200];
	struct fake f;
	struct dt_engine *e;
	int n[4];

	for (int i = 0; i < 4; i++)
		alone(pattern, i, 30, text[i], &n[i]);
	e = start(&f, 100, 8, 64, 16);
	f.sleep_us = 100;
	for (int i = 0; i < 4; i++)
		submit(e, c[i] = constrained(g, i, 30));
	submit(e, p = ask_alike(7, 1, 10, 100));
	for (int k = 1; k < 20; k++) {
		wait_tokens(c[k % 4], k);
		pthread_mutex_lock(&g->mu);
		wait_tokens(p, 4 * k); /* goes on */
		pthread_mutex_unlock(&g->mu);
	}
	for (int i = 0; i < 4; i++) {
		wait_done(c[i]);
		assert_int_equal(c[i]->req[0].finish, DT_FINISH_STOP);
		assert_text(c[i], text[i], n[i]);
		dt_call_drop(c[i]);
	}
	wait_done(p);
	dt_call_drop(p);
	dt_grammar_drop(g);
	finish(e, &f);
}

/* Choices of one prompt whose first mask is late: each is the answer that it is without waiting. */
static void choices(struct dt_grammar *g, bool late, char text[3][200], int n[3])
{
	struct dt_call *c = dt_call_new(3);
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 64, 16);
	int32_t ids[8];

	for (int k = 0; k < 8; k++)
		ids[k] = k * 9;
	for (int i = 0; i < 3; i++) {
		dt_serve_req_set_prompt(&c->req[i], ids, 8, 20);
		c->req[i].choice = (uint32_t)i;
		c->req[i].matcher = dt_matcher_new(g);
	}
	c->ask.grammar = dt_grammar_ref(g);
	if (late)
		pthread_mutex_lock(&g->mu);
	submit(e, c);
	if (late) {
		while (f.steps < 1)
			usleep(1000);
		usleep(100000);
		assert_int_equal(f.steps, 1); /* the prompt, and nothing more without a mask */
		pthread_mutex_unlock(&g->mu);
	}
	wait_done(c);
	for (int i = 0; i < 3; i++) {
		n[i] = (int)c->req[i].detok.n;
		memcpy(text[i], c->req[i].detok.text, c->req[i].detok.n);
	}
	dt_call_drop(c);
	finish(e, &f);
}

static void test_choices(void **state)
{
	struct dt_grammar *g = grammar_of("[a-m]{4}(xy|z[0-9]*)");
	char text[2][3][200];
	int n[2][3];

	choices(g, true, text[0], n[0]);
	choices(g, false, text[1], n[1]);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(n[0][i], n[1][i]);
		assert_memory_equal(text[0][i], text[1][i], (size_t)n[0][i]);
	}
	dt_grammar_drop(g);
}

/* Requests that end while their job waits or runs: cancelled, and at the engine's end. */
static void test_ends(void **state)
{
	struct dt_grammar *g = grammar_of("[a-z]{50}");
	struct dt_call *c[4];
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 64, 16);

	pthread_mutex_lock(&g->mu);
	for (int i = 0; i < 4; i++) {
		pthread_mutex_unlock(&g->mu);
		c[i] = constrained(g, i, 20);
		pthread_mutex_lock(&g->mu);
		submit(e, c[i]);
	}
	for (int i = 0; i < 3; i++)
		dt_engine_cancel(e, c[i]);
	for (int i = 0; i < 3; i++) {
		wait_done(c[i]);
		dt_call_drop(c[i]); /* nobody waits for the grammar to free its matcher */
	}
	assert_int_equal(dt_engine_wait_idle(e, 0), 1);
	pthread_mutex_unlock(&g->mu);
	wait_done(c[3]);
	assert_int_equal(c[3]->req[0].nout, 20);
	dt_call_drop(c[3]);
	for (int i = 0; i < 3; i++) {
		struct dt_call *last = constrained(g, i, 20);

		submit(e, last);
		dt_call_drop(last);
	}
	dt_engine_close(e);
	fake_release(&f);
	assert_int_equal(g->refs, 1);
	dt_grammar_drop(g);
}

/* With guesses from the text, masks are needed in the middle of a step: the answers are those without. */
static void test_guesses(void **state)
{
	static const char pattern[] = "(ab|cd|x{2}y)*";
	char text[2][4][200];
	int n[2][4];

	for (int guess = 0; guess < 2; guess++) {
		struct dt_grammar *g = grammar_of(pattern);
		struct dt_call *c[4];
		struct dt_engine *e;
		struct fake f;

		guesses = 4 * guess;
		e = start(&f, 200, 8, 64, 8);
		guesses = 0;
		f.cycle = 1;
		for (int i = 0; i < 4; i++) {
			submit(e, c[i] = constrained(g, i, 80));
			if (i % 2)
				wait_done(c[i]); /* alone, or two together */
		}
		for (int i = 0; i < 4; i++) {
			wait_done(c[i]);
			n[guess][i] = (int)c[i]->req[0].detok.n;
			memcpy(text[guess][i], c[i]->req[0].detok.text, c[i]->req[0].detok.n);
			dt_call_drop(c[i]);
		}
		dt_grammar_drop(g);
		finish(e, &f);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(n[0][i], n[1][i]);
		assert_memory_equal(text[0][i], text[1][i], (size_t)n[0][i]);
	}
}

/* A grammar that is too ambiguous ends its own request alone. */
static void test_too_ambiguous(void **state)
{
	struct dt_grammar *g = grammar_of("(a|b|ab|ba)*[ab]{200,300}(c|cc|ccc)*");
	struct dt_call *c = constrained(g, 1, 60);
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 64, 8);

	c->req[0].matcher->failed = true;
	submit(e, c);
	assert_true(steps_of_plain(e, &f) >= OUT);
	wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_ERROR);
	assert_non_null(strstr(c->req[0].err.msg, "too ambiguous"));
	dt_call_drop(c);
	dt_grammar_drop(g);
	finish(e, &f);
}

/* Recorded decisions with held requests can be replayed. */
static void test_trace(void **state)
{
	char path[] = "/tmp/test_constrain.XXXXXX";
	struct dt_grammar *g = grammar_of("[a-f]{20}");
	struct dt_schedtrace t = {0};
	struct dt_call *c, *q;
	struct dt_engine *e;
	struct dt_replay got;
	struct dt_err err;
	struct fake f;

	t.f = fdopen(mkstemp(path), "w");
	assert_non_null(t.f);
	trace = &t;
	e = start(&f, 100, 4, 16, 4);
	trace = NULL;
	f.sleep_us = 100;
	submit(e, q = ask_alike(7, 1, 10, 100));
	c = constrained(g, 3, 30);
	pthread_mutex_lock(&g->mu);
	submit(e, c);
	wait_tokens(q, 50);
	pthread_mutex_unlock(&g->mu);
	wait_done(c);
	wait_done(q);
	dt_call_drop(c);
	dt_call_drop(q);
	finish(e, &f);
	fclose(t.f);
	assert_false(t.failed);
	if (dt_schedtrace_replay(path, &got, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(got.different, 0);
	assert_true(got.steps > 99);
	unlink(path);
	dt_grammar_drop(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_beside_plain),
		cmocka_unit_test(test_locked_now_and_then),
		cmocka_unit_test(test_choices),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_guesses),
		cmocka_unit_test(test_too_ambiguous),
		cmocka_unit_test(test_trace),
	};
	const struct CMUnitTest several[] = {
		cmocka_unit_test(test_slow_beside_plain),
		cmocka_unit_test(test_locked_now_and_then),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_too_ambiguous),
	};
	int failed = cmocka_run_group_tests_name("one step at a time", tests, setup, teardown);

	overlaps = true;
	return failed + cmocka_run_group_tests_name("several steps in flight", several, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
