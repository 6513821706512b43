/*
 * The server's bounds that a shell cannot show: raw sockets against the HTTP server over the stand-in model.
 */
#include "serve_http.h"

static int setup(void **state)
{
	struct dt_http_params hp = {.host = "127.0.0.1",
				    .model_name = "tiny",
				    .max_body = 10000,
				    .max_connections = 64,
				    .max_memory = 1 << 20,
				    .read_timeout = 0.5,
				    .answer_timeout = 3,
				    .request_timeout = 4};

	if (fake_open(&fake, &tok, &engine, 0.2) < 0)
		return -1;
	return dt_http_open(&http, &hp, NULL);
}

static int teardown(void **state)
{
	dt_http_close(http);
	dt_engine_close(engine);
	dt_tokenizer_close(tok);
	free(fake.cache);
	return 0;
}

static void test_loading(void **state)
{
	char buf[2000];

	ask(HEALTH, buf, sizeof(buf));
	assert_non_null(strstr(buf, " 503 "));
	assert_non_null(strstr(buf, "loading"));
	ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf));
	assert_non_null(strstr(buf, " 503 "));
	assert_non_null(strstr(buf, "Retry-After"));
	dt_http_serve(http, engine, NULL);
	ask(HEALTH, buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
}

/* A client that sends a byte now and then never reaches an inactivity limit, but it has one deadline. */
static void test_slow_senders_are_cut_off(void **state)
{
	const char *start[] = {"GET /health HTTP/1.1\r\nHost: localhost\r\n", POST("1000") "{"};

	for (int i = 0; i < 2; i++) {
		double t0 = dt_now();
		bool closed = false;
		char buf[2000];
		int fd = dial();

		say(fd, start[i]);
		while (!closed && dt_now() - t0 < 60) {
			closed = hear(fd, 0.1, buf, sizeof(buf));
			if (!closed)
				closed = send(fd, "a", 1, MSG_NOSIGNAL) < 0;
		}
		assert_true(closed);
		assert_true(dt_now() - t0 > 0.4);
		close(fd);
	}
	/* Idle connections too. */
	char buf[10];
	int fd = dial();

	assert_true(hear(fd, 60, buf, sizeof(buf)));
	close(fd);
}

/* Longer than read_timeout: the deadline is for sending, not for the answer. */
static void test_slow_answers_are_not(void **state)
{
	char buf[2000];

	fake.sleep_us = 350000;
	ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf));
	fake.sleep_us = 0;
	assert_non_null(strstr(buf, " 200 "));
	assert_non_null(strstr(buf, "\"completion_tokens\":2"));
}

static void test_stuck_and_timeout(void **state)
{
	char buf[2000], health[2000];
	int fd = dial();
	double t0 = dt_now();

	fake.sleep_us = 700000;
	say(fd, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
		"30\r\n\r\n"
		"{\"prompt\":\"x\",\"max_tokens\":90}");
	do
		ask(HEALTH, health, sizeof(health));
	while (!strstr(health, "stuck") && dt_now() - t0 < 60);
	assert_non_null(strstr(health, " 503 "));
	assert_non_null(strstr(health, "stuck"));
	assert_true(hear(fd, 60, buf, sizeof(buf))); /* request_timeout is 4 s */
	assert_non_null(strstr(buf, " 503 "));
	assert_non_null(strstr(buf, "timeout"));
	fake.sleep_us = 0;
	close(fd);
	assert_int_equal(dt_engine_wait_idle(engine, 60), 0);
}

static void test_two_requests_on_one_connection(void **state)
{
	char buf[4000];
	int fd = dial();

	say(fd, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: " SHORT_BYTES
		"\r\n\r\n" SHORT_BODY HEALTH);
	assert_true(hear(fd, 60, buf, sizeof(buf)));
	assert_non_null(strstr(buf, "text_completion"));
	assert_non_null(strstr(buf, "{\"status\":\"ok\"}"));
	close(fd);
}

/* A large body is refused from its length alone, and the refusal arrives though the body is on its way. */
static void test_large_body(void **state)
{
	static char body[200000];
	char buf[4000];
	int fd = dial();

	memset(body, ' ', sizeof(body) - 1);
	say(fd, POST("199999"));
	send(fd, body, sizeof(body) - 1, MSG_NOSIGNAL);
	hear(fd, 60, buf, sizeof(buf));
	assert_non_null(strstr(buf, " 413 "));
	close(fd);
}

/* Connections that say nothing make room for one that asks, whatever their number. */
static void test_idle_ones_make_room(void **state)
{
	int fd[200];
	char buf[2000];

	for (int i = 0; i < 200; i++)
		fd[i] = dial();
	ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	for (int i = 0; i < 200; i++)
		close(fd[i]);
}

static void test_closing_cancels(void **state)
{
	int fd = dial(), steps;
	double t0 = dt_now();

	fake.sleep_us = 50000;
	steps = fake.steps;
	say(fd, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 48\r\n\r\n"
		"{\"prompt\":\"x\",\"max_tokens\":90,\"ignore_eos\":true}");
	while (fake.steps < steps + 3 && dt_now() - t0 < 60)
		usleep(1000);
	close(fd);
	assert_int_equal(dt_engine_wait_idle(engine, 60), 0);
	assert_true(fake.steps - steps < 80);
	fake.sleep_us = 0;
	while (dt_http_active(http) > 0 && dt_now() - t0 < 60)
		usleep(1000);
	assert_int_equal(dt_http_active(http), 0);
}

static int waiting(struct dt_engine *e)
{
	struct dt_metrics *m = dt_engine_metrics(e);
	int n;

	pthread_mutex_lock(&m->mu);
	n = m->waiting;
	pthread_mutex_unlock(&m->mu);
	return n;
}

/* Of one tenant the lower priority goes first; it gives nobody a place before another tenant. */
static void test_priority(void **state)
{
	static const struct dt_tenant tenant[2] = {{"a", {.weight = 1}, 0}, {"b", {.weight = 1}, 0}};
	static const struct dt_api_key key[2] = {{"ka", 0}, {"kb", 1}};
	static const struct {
		const char *key;
		int priority;
	} ask[] = {{"ka", 5}, {"ka", 0}, {"ka", -5}, {"kb", 9}};
	static const int want[] = {3, 2, 1, 0};
	struct dt_http_params hp = {.host = "127.0.0.1",
				    .model_name = "tiny",
				    .keys = key,
				    .nkeys = 2,
				    .max_body = 10000,
				    .max_connections = 64,
				    .max_memory = 1 << 20,
				    .read_timeout = 60,
				    .answer_timeout = 60,
				    .request_timeout = 60};
	struct dt_engine_params p = *dt_engine_params(engine);
	int fd[4], order[4], n = 0, first = -1;
	double t0 = dt_now();
	struct dt_engine *e;
	struct dt_http *h;
	char text[1000];
	struct fake f;

	fake_init(&f, 100, 4, 1, 16);
	p.model.m = &f;
	p.max_seqs = 1;
	p.tenant = tenant;
	p.ntenants = 2;
	assert_int_equal(dt_engine_open(&e, &p, NULL), 0);
	assert_int_equal(dt_http_open(&h, &hp, NULL), 0);
	dt_http_serve(h, e, NULL);
	f.sleep_us = 100000;
	for (int i = -1; i < 4; i++) { /* the first one keeps the only place for a while */
		int at = dial_to(h), len;
		char body[200];

		len = snprintf(body, sizeof(body),
			       "{\"prompt\":\"x\",\"max_tokens\":%d,\"ignore_eos\":true,\"priority\":%d}",
			       i < 0 ? 80 : 2, i < 0 ? 0 : ask[i].priority);
		snprintf(text, sizeof(text),
			 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			 "Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			 i < 0 ? "ka" : ask[i].key, len, body);
		say(at, text);
		while ((i < 0 ? f.steps < 1 : waiting(e) < i + 1) && dt_now() - t0 < 60)
			usleep(1000);
		if (i < 0)
			first = at;
		else
			fd[i] = at;
	}
	assert_int_equal(waiting(e), 4);
	f.sleep_us = 5000;
	while (n < 4 && dt_now() - t0 < 120) {
		struct pollfd ready[4];

		for (int i = 0; i < 4; i++)
			ready[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
		poll(ready, 4, 1000);
		for (int i = 0; i < 4; i++) {
			if (!ready[i].revents)
				continue;
			assert_true(hear(fd[i], 60, text, sizeof(text)));
			assert_non_null(strstr(text, " 200 "));
			close(fd[i]);
			fd[i] = -1;
			order[n++] = i;
		}
	}
	for (int i = 0; i < 4; i++)
		if (order[i] != want[i])
			fail_msg("place %d is that of request %d, not %d", i, order[i], want[i]);
	close(first);
	dt_http_close(h);
	dt_engine_close(e);
	free(f.cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loading),
		cmocka_unit_test(test_slow_senders_are_cut_off),
		cmocka_unit_test(test_slow_answers_are_not),
		cmocka_unit_test(test_stuck_and_timeout),
		cmocka_unit_test(test_two_requests_on_one_connection),
		cmocka_unit_test(test_large_body),
		cmocka_unit_test(test_idle_ones_make_room),
		cmocka_unit_test(test_closing_cancels),
		cmocka_unit_test(test_priority),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
