/* What the engine refuses, charges and gives up. */
#include "serve_engine.h"

static void test_quota(void **state)
{
	static const struct dt_tenant tenant[2] = {{"free", {.weight = 1}, 0}, {"paid", {.weight = 1}, 100}};
	struct dt_engine_params p;
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 64, 4);
	struct dt_call *c;
	struct dt_err err;

	p = *dt_engine_params(e);
	dt_engine_close(e);
	p.tenant = tenant;
	p.ntenants = 2;
	assert_int_equal(dt_engine_open(&e, &p, &err), 0);
	for (int i = 0; i < 2; i++) { /* 41 of 100; then 31 asked for and 1 used */
		c = one(1, i ? 30 : 40);
		c->tenant = 1;
		if (i) {
			c->ask.stop_ids = malloc(FAKE_VOCAB * sizeof(int32_t));
			for (int k = 0; k < FAKE_VOCAB; k++)
				c->ask.stop_ids[c->ask.nstop_ids++] = k;
		}
		submit(e, c);
		dt_call_wait_done(c);
		assert_int_equal(c->req[0].nout, i ? 1 : 40);
		dt_call_drop(c);
	}
	c = one(1, 89); /* of the 57 left; three or so more came by since */
	c->tenant = 1;
	assert_int_equal(dt_engine_submit(e, c, &err), -EDQUOT);
	assert_true(c->retry_after > 5 && c->retry_after < 21);
	c->tenant = 0;
	submit(e, c);
	dt_call_wait_done(c);
	dt_call_drop(c);
	c = one(1, 105);
	c->tenant = 1;
	assert_int_equal(dt_engine_submit(e, c, &err), -EDQUOT);
	assert_true(c->retry_after == 0);
	dt_call_drop(c);
	finish(e, &f);
}

/* A call that is cancelled gives back what it was charged, not its followers' prompts, which were not. */
static void test_quota_is_one_account(void **state)
{
	static const struct dt_tenant tenant[1] = {{"paid", {.weight = 1}, 1000}};
	struct dt_engine_params p;
	struct fake f;
	struct dt_engine *e = start(&f, 100, 2, 64, 40);
	int32_t ids[100] = {1};
	struct dt_call *c;
	struct dt_err err;

	p = *dt_engine_params(e);
	dt_engine_close(e);
	p.tenant = tenant;
	p.ntenants = 1;
	assert_int_equal(dt_engine_open(&e, &p, &err), 0);
	c = dt_call_new(9); /* 900 of 1000 */
	for (int i = 0; i < 9; i++) {
		ids[0] = i;
		dt_serve_req_set_prompt(&c->req[i], ids, 99, 1);
	}
	submit(e, c);
	dt_call_wait_done(c);
	dt_call_drop(c);
	for (int round = 0; round < 4; round++) {
		c = dt_call_new(1); /* 119 of 100 or so */
		dt_serve_req_set_prompt(&c->req[0], ids, 19, 100);
		assert_int_equal(dt_engine_submit(e, c, &err), -EDQUOT);
		dt_call_drop(c);
		if (round == 3)
			break;
		c = dt_call_new(16); /* the prompt once and an output of one token each: 5 + 16 */
		for (int i = 0; i < 16; i++)
			dt_serve_req_set_prompt(&c->req[i], ids, 5, 1);
		f.sleep_us = 20000;
		submit(e, c);
		dt_engine_cancel(e, c);
		dt_call_wait_done(c);
		dt_call_drop(c);
		assert_int_equal(dt_engine_wait_idle(e, 60), 0);
		f.sleep_us = 0;
	}
	finish(e, &f);
}

static void test_refusals(void **state)
{
	struct fake f;
	struct dt_engine *e = start(&f, 10, 2, 16, 1);
	struct dt_call *c[4], *x;
	int32_t ids[130] = {0};

	x = dt_call_new(1);
	dt_serve_req_set_prompt(&x->req[0], ids, 100, 21); /* one more than the context */
	assert_int_equal(dt_engine_submit(e, x, NULL), -E2BIG);
	dt_serve_req_set_prompt(&x->req[0], ids, 30, 12); /* 41 rows and the pool has 40 */
	assert_int_equal(dt_engine_submit(e, x, NULL), -E2BIG);
	dt_serve_req_set_prompt(&x->req[0], ids, 0, 12);
	assert_int_equal(dt_engine_submit(e, x, NULL), -EINVAL);
	ids[1] = FAKE_VOCAB;
	dt_serve_req_set_prompt(&x->req[0], ids, 2, 2);
	assert_int_equal(dt_engine_submit(e, x, NULL), -EINVAL);
	dt_call_drop(x);

	f.sleep_us = 200000; /* none ends before all are there */
	for (int i = 0; i < 4; i++) {
		c[i] = one(i, 10);
		assert_int_equal(dt_engine_submit(e, c[i], NULL), i < 3 ? 0 : -EAGAIN);
	}
	dt_engine_drain(e);
	assert_int_equal(dt_engine_state(e), DT_ENGINE_DRAINING);
	assert_int_equal(dt_engine_submit(e, c[3], NULL), -ESHUTDOWN);
	f.sleep_us = 0;
	for (int i = 0; i < 4; i++) { /* what was accepted runs to its end */
		if (i < 3) {
			dt_call_wait_done(c[i]);
			assert_int_equal(c[i]->req[0].finish, DT_FINISH_LENGTH);
		}
		dt_call_drop(c[i]);
	}
	finish(e, &f);
}

static void test_deadline_and_stuck(void **state)
{
	struct fake f;
	struct dt_engine *e;
	struct dt_call *c = one(1, 100);
	double t0 = dt_now();

	stuck_after = 0.1;
	e = start(&f, 40, 2, 16, 4);
	assert_int_equal(dt_engine_state(e), DT_ENGINE_READY);
	f.sleep_us = 1500000;
	c->deadline = dt_now() + 0.2;
	submit(e, c);
	while (dt_engine_state(e) != DT_ENGINE_STUCK && dt_now() - t0 < 60)
		usleep(1000);
	assert_int_equal(dt_engine_state(e), DT_ENGINE_STUCK);
	dt_call_wait_done(c);
	assert_int_equal(c->req[0].finish, DT_FINISH_TIMEOUT);
	dt_call_drop(c);
	finish(e, &f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_quota_is_one_account),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_deadline_and_stuck),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
