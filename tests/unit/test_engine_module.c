/*
 * The engine with a model's module for a further token that drafts: a module that is always right is given
 * the hidden state and the token of the same row, or its drafts would be rejected; one that is wrong changes
 * no token.
 */
#include "serve_engine.h"

enum { N = 60 };

static struct dt_call *make(int i)
{
	struct dt_call *c = dt_call_new(1 + (i % 7 == 3));
	int32_t ids[64];
	int n = 1 + i * 7 % 50;

	for (int k = 0; k < n; k++)
		ids[k] = (i / 3 * 31 + k * 17) % 256; /* some have the prefix of others */
	for (int k = 0; k < c->n; k++)
		assert_int_equal(dt_serve_req_set_prompt(&c->req[k], ids, (size_t)n, 1 + i * 5 % 40), 0);
	c->ask.sampling.temperature = i % 2 ? 0 : 0.9;
	c->ask.sampling.top_p = i % 3 ? 1 : 0.8;
	c->ask.sampling.frequency_penalty = i % 4 ? 0 : 0.5;
	c->ask.sampling.seed = (uint64_t)i;
	return c;
}

/* N requests in an engine of so many blocks and tokens of a step; their tokens are kept in out. */
static void run(int blocks, int max_tokens, bool wrong, int32_t out[N][100])
{
	struct fake f, d;
	struct dt_call *c[N];
	struct dt_engine *e;
	struct dt_metrics *m;

	drafter = guesses ? &d : NULL;
	follows = guesses > 0;
	e = start(&f, blocks, 8, max_tokens, 2 * N);
	m = dt_engine_metrics(e);
	d.cycle = wrong;
	for (int i = 0; i < N; i++)
		submit(e, c[i] = make(i));
	for (int i = 0; i < N; i++) {
		const struct dt_serve_req *r = &c[i]->req[c[i]->n - 1];

		dt_call_wait_done(c[i]);
		assert_int_equal(r->finish, DT_FINISH_LENGTH);
		memcpy(out[i], r->tokens, (size_t)(r->nprompt + r->nout) * sizeof(*r->tokens));
		dt_call_drop(c[i]);
	}
	assert_int_equal(dt_engine_wait_idle(e, 60), 0); /* the last step has been counted */
	pthread_mutex_lock(&m->mu);
	if (blocks < 100)
		assert_true(m->preemptions > 0);
	assert_true(guesses ? m->draft_tokens > 0 : m->draft_tokens == 0);
	if (wrong)
		assert_true(10 * m->accepted_tokens < m->draft_tokens);
	else
		assert_int_equal(m->accepted_tokens, m->draft_tokens);
	pthread_mutex_unlock(&m->mu);
	if (guesses) {
		assert_int_equal(d.bad, 0);
		fake_release(&d);
	}
	finish(e, &f);
	drafter = NULL;
	follows = false;
}

static void test_drafts(void **state)
{
	static const struct {
		int guesses, blocks, max_tokens;
		bool wrong, draws;
	} how[] = {
		{1, 200, 64, false, false}, {3, 200, 64, false, false}, {1, 40, 16, false, false},
		{3, 40, 16, false, false},  {5, 200, 9, false, true},	{2, 40, 16, false, true},
		{1, 40, 16, true, false},   {3, 200, 64, true, true},
	};
	static int32_t plain[N][100], got[N][100];

	run(200, 64, false, plain);
	for (size_t i = 0; i < sizeof(how) / sizeof(*how); i++) {
		memset(got, 0, sizeof(got));
		guesses = how[i].guesses;
		draws = how[i].draws;
		run(how[i].blocks, how[i].max_tokens, how[i].wrong, got);
		guesses = 0;
		draws = false;
		for (int k = 0; k < N; k++)
			assert_memory_equal(got[k], plain[k], sizeof(plain[k]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drafts),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
