/* The engine over a stand-in model, against the plain loop "append the next token". */
#include "base/progress.h"
#include "serve/engine.h"
#include "serve_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct dt_tokenizer *tok;

static int setup(void **state)
{
	return dt_tokenizer_open("byte", &tok, NULL);
}

static int teardown(void **state)
{
	dt_tokenizer_close(tok);
	return 0;
}

static struct dt_engine *start(struct fake *f, int blocks, int max_seqs, int max_tokens, int queue)
{
	struct dt_engine_params p = {.model = {.m = f, .forward = fake_forward, .vocab = FAKE_VOCAB},
				     .tok = tok,
				     .max_seqs = max_seqs,
				     .max_tokens = max_tokens,
				     .max_len = 120,
				     .blocks = blocks,
				     .block_size = 4,
				     .queue = queue,
				     .stuck_after = 0.1};
	struct dt_engine *e;
	struct dt_err err;

	fake_init(f, blocks, 4, max_seqs, max_tokens);
	if (dt_engine_open(&e, &p, &err) < 0)
		fail_msg("%s", err.msg);
	return e;
}

static void finish(struct dt_engine *e, struct fake *f)
{
	assert_int_equal(dt_engine_wait_idle(e, 30), 0);
	assert_int_equal(dt_engine_metrics(e)->running, 0);
	assert_int_equal(dt_engine_metrics(e)->waiting, 0);
	assert_true(dt_engine_metrics(e)->kv_usage == 0);
	assert_int_equal(f->bad, 0);
	dt_engine_close(e);
	free(f->cache);
}

/* Request number i of the tests: its prompt, length and sampling are functions of i. */
static struct dt_call *make(int i, bool greedy)
{
	struct dt_call *c = dt_call_new(1);
	int32_t ids[64];
	int n = 1 + i * 7 % 50;

	for (int k = 0; k < n; k++)
		ids[k] = (i * 31 + k * 17) % 256;
	assert_int_equal(dt_req_set_prompt(&c->req[0], ids, (size_t)n, 1 + i * 5 % 40), 0);
	c->req[0].sampling.temperature = greedy ? 0 : 0.9;
	c->req[0].sampling.top_p = i % 3 ? 1 : 0.8;
	c->req[0].sampling.frequency_penalty = i % 4 ? 0 : 0.5;
	c->req[0].sampling.seed = (uint64_t)i;
	return c;
}

static void assert_as_expected(const struct dt_req *r)
{
	struct dt_sampler s;
	int32_t ids[200];

	assert_int_equal(r->finish, DT_FINISH_LENGTH);
	assert_int_equal(r->nout, r->max_tokens);
	memcpy(ids, r->tokens, (size_t)r->nprompt * sizeof(*ids));
	dt_sampler_init(&s, FAKE_VOCAB);
	for (int i = 0; i < r->nout; i++) {
		float logits[FAKE_VOCAB];

		expected_logits(ids, r->nprompt + i, logits);
		ids[r->nprompt + i] = dt_sample(&s, &r->sampling, logits, ids, (size_t)r->nprompt,
						ids + r->nprompt, (size_t)i);
		if (r->tokens[r->nprompt + i] != ids[r->nprompt + i])
			fail_msg("token %d of a prompt of %d is %d, not %d", i, r->nprompt,
				 r->tokens[r->nprompt + i], ids[r->nprompt + i]);
	}
	dt_sampler_release(&s);
}

static void submit(struct dt_engine *e, struct dt_call *c)
{
	struct dt_err err;

	if (dt_engine_submit(e, c, &err) < 0)
		fail_msg("%s", err.msg);
}

/* Together in a pool so small that requests are preempted, with chunked prompts. */
static void test_together(void **state)
{
	enum { N = 200 };
	struct dt_call *c[N];
	struct fake f;
	struct dt_engine *e = start(&f, 40, 8, 16, N);

	for (int i = 0; i < N; i++)
		submit(e, c[i] = make(i, i % 2));
	for (int i = 0; i < N; i++) {
		dt_call_wait_done(c[i]);
		assert_as_expected(&c[i]->req[0]);
		dt_call_drop(c[i]);
	}
	assert_true(dt_engine_metrics(e)->preemptions > 0);
	assert_int_equal(dt_engine_metrics(e)->finished[DT_FINISH_LENGTH], N);
	finish(e, &f);
}

static void test_alone(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 40, 1, 7, 0);

	for (int i = 0; i < 40; i++) {
		struct dt_call *c = make(i, i % 2);

		submit(e, c);
		dt_call_wait_done(c);
		assert_as_expected(&c->req[0]);
		dt_call_drop(c);
	}
	finish(e, &f);
}

static void test_cancel_frees_within_a_step(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 8, 32, 8);
	struct dt_call *c[4];
	int steps;

	f.sleep_us = 2000;
	for (int i = 0; i < 4; i++) {
		int32_t ids[10] = {i};

		c[i] = dt_call_new(1);
		dt_req_set_prompt(&c[i]->req[0], ids, 10, 100);
		submit(e, c[i]);
	}
	pthread_mutex_lock(&c[0]->mu);
	while (c[0]->req[0].nout < 3)
		pthread_cond_wait(&c[0]->cond, &c[0]->mu);
	pthread_mutex_unlock(&c[0]->mu);
	steps = f.steps;
	for (int i = 0; i < 4; i++)
		dt_engine_cancel(e, c[i]);
	for (int i = 0; i < 4; i++) {
		dt_call_wait_done(c[i]);
		assert_int_equal(c[i]->req[0].finish, DT_FINISH_ABORT);
		assert_true(c[i]->req[0].nout < 100);
	}
	/* The pass under way when the cancels began, and at most one that began while they were being set. */
	assert_in_range(f.steps - steps, 0, 2);
	for (int i = 0; i < 4; i++)
		dt_call_drop(c[i]);
	finish(e, &f);
}

/* The expected greedy text of a prompt of one byte. */
static void greedy(int first, int n, int32_t *ids)
{
	ids[0] = first;
	for (int i = 1; i <= n; i++) {
		float x[FAKE_VOCAB];
		int best = 0;

		expected_logits(ids, i, x);
		for (int k = 0; k < FAKE_VOCAB; k++)
			if (x[k] > x[best])
				best = k;
		ids[i] = best;
	}
}

static struct dt_call *one(int first, int max_tokens)
{
	struct dt_call *c = dt_call_new(1);
	int32_t id = first;

	dt_req_set_prompt(&c->req[0], &id, 1, max_tokens);
	c->req[0].sampling.temperature = 0;
	return c;
}

static void test_stops(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 16, 4);
	struct dt_call *c;
	struct dt_req *r;
	int32_t want[40];

	/* A stop string of the two bytes that come fifth and sixth. */
	greedy(65, 30, want);
	c = one(65, 30);
	r = &c->req[0];
	r->stop = calloc(1, sizeof(*r->stop));
	r->stop[0].s = malloc(2);
	r->stop[0].s[0] = (char)want[5];
	r->stop[0].s[1] = (char)want[6];
	r->stop[0].n = 2;
	r->nstop = 1;
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(r->finish, DT_FINISH_STOP);
	assert_int_equal(r->nout, 6);
	assert_int_equal(r->detok.stopped, 0);
	assert_int_equal(r->detok.ready, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal((unsigned char)r->detok.text[i], want[i + 1]);
	dt_call_drop(c);

	/* A stop id: the third token; with min_tokens it may not come before the fifth. */
	for (int min = 0; min <= 4; min += 4) {
		c = one(65, 30);
		r = &c->req[0];
		r->stop_ids = malloc(sizeof(*r->stop_ids));
		r->stop_ids[0] = want[3];
		r->nstop_ids = 1;
		r->min_tokens = min;
		submit(e, c);
		dt_call_wait_done(c);
		if (min == 0) {
			assert_int_equal(r->finish, DT_FINISH_STOP);
			assert_int_equal(r->nout, 3);
			assert_int_equal(r->stop_id, want[3]);
			assert_int_equal(r->detok.ready, 2);
		} else {
			assert_true(r->nout > 4);
			for (int i = 0; i < 4; i++)
				assert_int_not_equal(dt_req_out(r)[i], want[3]);
		}
		dt_call_drop(c);
	}
	finish(e, &f);
}

/* max_tokens 0 with scores: the log-probability of every prompt token but the first. More rows are wanted
 * than one pass allows. */
static void test_scores(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 64, 4);
	struct dt_call *c = dt_call_new(1);
	struct dt_req *r = &c->req[0];
	int32_t ids[30];

	for (int i = 0; i < 30; i++)
		ids[i] = i * 3 % 256;
	dt_req_set_prompt(r, ids, 30, 2);
	r->logprobs = 3;
	r->score_prompt = true;
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(r->prompt_scores.n, 29);
	assert_int_equal(r->scores.n, 2);
	for (int i = 1; i < 32; i++) {
		const struct dt_scores *s = i < 30 ? &r->prompt_scores : &r->scores;
		int at = i < 30 ? i - 1 : i - 30;
		float x[FAKE_VOCAB];
		double z = 0;
		int best = 0;

		expected_logits(r->tokens, i, x);
		for (int k = 0; k < FAKE_VOCAB; k++) {
			z += exp(x[k]);
			best = x[k] > x[best] ? k : best;
		}
		assert_int_equal(s->chosen[at].id, r->tokens[i]);
		assert_true(fabs(s->chosen[at].logprob - (x[r->tokens[i]] - log(z))) < 1e-4);
		assert_int_equal(s->top[at * 3].id, best);
	}
	dt_call_drop(c);

	c = dt_call_new(1);
	dt_req_set_prompt(&c->req[0], ids, 30, 0);
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_LENGTH);
	assert_int_equal(c->req[0].nout, 0);
	dt_call_drop(c);
	finish(e, &f);
}

static void test_refusals(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 10, 2, 16, 1);
	struct dt_call *c[4], *x;
	int32_t ids[130] = {0};

	x = dt_call_new(1);
	dt_req_set_prompt(&x->req[0], ids, 100, 21); /* one more than the context */
	assert_int_equal(dt_engine_submit(e, x, NULL), -E2BIG);
	dt_req_set_prompt(&x->req[0], ids, 30, 12); /* 41 rows and the pool has 40 */
	assert_int_equal(dt_engine_submit(e, x, NULL), -E2BIG);
	dt_req_set_prompt(&x->req[0], ids, 0, 12);
	assert_int_equal(dt_engine_submit(e, x, NULL), -EINVAL);
	ids[1] = FAKE_VOCAB;
	dt_req_set_prompt(&x->req[0], ids, 2, 2);
	assert_int_equal(dt_engine_submit(e, x, NULL), -EINVAL);
	dt_call_drop(x);

	f.sleep_us = 20000;
	for (int i = 0; i < 4; i++) {
		c[i] = one(i, 10);
		assert_int_equal(dt_engine_submit(e, c[i], NULL), i < 3 ? 0 : -EAGAIN);
	}
	dt_engine_drain(e);
	assert_int_equal(dt_engine_state(e), DT_ENGINE_DRAINING);
	assert_int_equal(dt_engine_submit(e, c[3], NULL), -ESHUTDOWN);
	for (int i = 0; i < 4; i++) { /* what was accepted runs to its end */
		if (i < 3) {
			dt_call_wait_done(c[i]);
			assert_int_equal(c[i]->req[0].finish, DT_FINISH_LENGTH);
		}
		dt_call_drop(c[i]);
	}
	finish(e, &f);
}

static void test_failures_end_requests(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 40, 2, 16, 4);
	struct dt_call *c = one(1, 5);

	f.fail = 1;
	submit(e, c);
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_ERROR);
	assert_string_equal(c->req[0].err.msg, "the fake model was told to fail");
	dt_call_drop(c);
	f.fail = 0;
	f.poison = 1;
	submit(e, c = one(1, 5));
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_ERROR);
	dt_call_drop(c);
	f.poison = 0;
	submit(e, c = one(1, 5)); /* and the engine goes on */
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_LENGTH);
	dt_call_drop(c);
	finish(e, &f);
}

static void test_deadline_and_stuck(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 40, 2, 16, 4);
	struct dt_call *c = one(1, 100);
	double t0 = dt_now();

	assert_int_equal(dt_engine_state(e), DT_ENGINE_READY);
	f.sleep_us = 400000;
	c->deadline = dt_now() + 0.2;
	submit(e, c);
	while (dt_engine_state(e) != DT_ENGINE_STUCK && dt_now() - t0 < 20)
		usleep(1000);
	assert_int_equal(dt_engine_state(e), DT_ENGINE_STUCK);
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_TIMEOUT);
	dt_call_drop(c);
	finish(e, &f);
}

/* Many threads submit, read, cancel and leave; run it under ThreadSanitizer. */
static void *client(void *arg)
{
	struct dt_engine *e = arg;

	for (int i = 0; i < 60; i++) {
		struct dt_call *c = make(i, true);

		int rc = dt_engine_submit(e, c, NULL);

		if (rc == 0 && i % 3 == 0) {
			pthread_mutex_lock(&c->mu);
			while (c->open > 0 && c->req[0].detok.ready == 0)
				dt_call_wait_locked(c, 1);
			pthread_mutex_unlock(&c->mu);
			dt_engine_cancel(e, c); /* and leave without waiting */
		} else if (rc == 0 && i % 3 == 1) {
			dt_call_wait_done(c);
		}
		dt_call_drop(c);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 60, 6, 16, 1000);
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, client, e);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	finish(e, &f);
	/* Closing with work in flight ends it. */
	e = start(&f, 60, 6, 16, 1000);
	f.sleep_us = 1000;
	for (int i = 0; i < 20; i++) {
		struct dt_call *c = make(i, true);

		submit(e, c);
		dt_call_drop(c);
	}
	dt_engine_close(e);
	free(f.cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_cancel_frees_within_a_step),
		cmocka_unit_test(test_stops),
		cmocka_unit_test(test_scores),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_failures_end_requests),
		cmocka_unit_test(test_deadline_and_stuck),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
