/* The HTTP server under attack: what is framed in two ways, who does not read, what would take too much
 * memory, and pages of others. */
#include "serve_http.h"

static struct dt_http_params params = {.host = "127.0.0.1",
				       .model_name = "org/tiny model",
				       .max_body = 3 << 20,
				       .max_connections = 4,
				       .max_memory = (size_t)1 << 30,
				       .read_timeout = 30,
				       .answer_timeout = 4,
				       .request_timeout = 30};

static int setup(void **state)
{
	return fake_open(&fake, &tok, &engine, 60);
}

static int teardown(void **state)
{
	dt_engine_close(engine);
	dt_tokenizer_close(tok);
	free(fake.cache);
	return 0;
}

static int serve(void **state)
{
	if (dt_http_open(&http, &params, NULL) < 0)
		return -1;
	dt_http_serve(http, engine, NULL);
	return 0;
}

static int close_server(void **state)
{
	dt_http_close(http);
	return 0;
}

/* The status of the answer to n raw bytes, 0: closed without one. */
static int status_of(const char *raw, size_t n, char *buf, size_t max)
{
	int fd = dial(), status = 0;

	assert_int_equal(send(fd, raw, n, MSG_NOSIGNAL), n);
	assert_true(hear(fd, 60, buf, max));
	close(fd);
	sscanf(buf, "HTTP/1.%*d %d", &status);
	return status;
}

#define BYTES(s) (s), sizeof(s) - 1
#define HEAD_OF	 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
#define FRAME	 "\r\n" SHORT_BODY

static void test_framing(void **state)
{
	static const struct {
		const char *raw;
		size_t n;
		int status;
	} c[] = {
		{BYTES(HEAD_OF "Content-Length: " SHORT_BYTES "\r\n" FRAME), 200},
		{BYTES(HEAD_OF "Content-Length: " SHORT_BYTES "\r\nTransfer-Encoding: chunked\r\n" FRAME),
		 400},
		{BYTES(HEAD_OF "Content-Length: " SHORT_BYTES "\r\nContent-Length: " SHORT_BYTES
			       "\r\n" FRAME),
		 400},
		{BYTES(HEAD_OF "Content-Length: 5\r\nContent-Length: " SHORT_BYTES "\r\n" FRAME), 400},
		{BYTES(HEAD_OF "Content-Length : " SHORT_BYTES "\r\n" FRAME), 400},
		{BYTES(HEAD_OF "Transfer-Encoding: gzip, chunked\r\n" FRAME), 400},
		{BYTES(HEAD_OF "X-A: b\0c\r\nContent-Length: " SHORT_BYTES "\r\n" FRAME), 400},
		{BYTES(HEAD_OF "X-A: b\x01\r\nContent-Length: " SHORT_BYTES "\r\n" FRAME), 400},
		{BYTES(HEAD_OF "Host: other\r\nContent-Length: " SHORT_BYTES "\r\n" FRAME), 400},
		{BYTES("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"), 400},
		{BYTES("GET /health HTTP/1.0\r\n\r\n"), 200},
		{BYTES("GET http://localhost:1/health HTTP/1.0\r\n\r\n"), 200},
		{BYTES("GET HTTPS://localhost/healt HTTP/1.0\r\n\r\n"), 404},
		{BYTES("GET http://localhost HTTP/1.0\r\n\r\n"), 404},
		{BYTES("GET /health%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 404},
		{BYTES("GET /health\0/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 400},
		{BYTES("GET /%68ealth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 404},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		char buf[4000];
		int status = status_of(c[i].raw, c[i].n, buf, sizeof(buf));

		if (status != c[i].status)
			fail_msg("case %zu: %d, not %d: %s", i, status, c[i].status, buf);
	}
}

static void test_methods(void **state)
{
	char buf[2000], *end;

	ask("HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	assert_non_null(strstr(buf, "Content-Length: 15"));
	end = strstr(buf, "\r\n\r\n");
	assert_string_equal(end, "\r\n\r\n");
	ask("HEAD /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", buf,
	    sizeof(buf));
	assert_non_null(strstr(buf, " 405 "));
	assert_non_null(strstr(buf, "Allow: POST\r\n"));
	ask(GET("/v1/completions"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 405 "));
	assert_non_null(strstr(buf, "\"param\":null"));
	ask("POST /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", buf,
	    sizeof(buf));
	assert_non_null(strstr(buf, " 405 "));
	assert_non_null(strstr(buf, "Allow: GET, HEAD\r\n"));
	ask(GET("/v1/models/org/tiny%20model"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	assert_non_null(strstr(buf, "\"object\":\"model\""));
	ask(GET("/v1/models/gpt-5"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 404 "));
	assert_non_null(strstr(buf, "model_not_found"));
}

/* Who has said all he has to say still gets the answer, whole or as events. */
static void test_half_closed(void **state)
{
	static const char *const body[] = {
		"{\"prompt\":\"x\",\"max_tokens\":20,\"ignore_eos\":true}",
		"{\"prompt\":\"x\",\"max_tokens\":20,\"ignore_eos\":true,\"stream\":true}"};

	fake.sleep_us = 40000; /* the watcher looks several times */
	for (int i = 0; i < 2; i++) {
		char buf[20000], head[400];
		int fd = dial();

		snprintf(head, sizeof(head), HEAD_OF "Content-Length: %zu\r\n\r\n%s", strlen(body[i]),
			 body[i]);
		say(fd, head);
		shutdown(fd, SHUT_WR);
		assert_true(hear(fd, 60, buf, sizeof(buf)));
		assert_non_null(strstr(buf, "HTTP/1.1 200 "));
		assert_non_null(strstr(buf, i ? "data: [DONE]" : "\"completion_tokens\":20"));
		close(fd);
	}
	fake.sleep_us = 0;
}

/* Bodies of many small values are counted as what they become. */
static void test_memory(void **state)
{
	enum { N = 2 << 20 };
	char *body = malloc(N + 1), buf[4000], head[200];

	body[0] = '[';
	for (int i = 1; i < N; i++)
		body[i] = "{},"[(i - 1) % 3];
	for (int i = 0; i < 3; i++) { /* 700,000 objects: 300 MB of the 64 MB there are */
		int fd;

		dt_http_close(http);
		params.max_memory = 64 << 20;
		assert_int_equal(serve(state), 0);
		fd = dial();
		snprintf(head, sizeof(head), HEAD_OF "Content-Length: %d\r\n\r\n", N);
		say(fd, head);
		assert_int_equal(send(fd, body, N, MSG_NOSIGNAL), N);
		assert_true(hear(fd, 60, buf, sizeof(buf)));
		assert_non_null(strstr(buf, " 503 "));
		assert_non_null(strstr(buf, "server_busy"));
		assert_non_null(strstr(buf, "Retry-After: 1"));
		close(fd);
		ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf)); /* all of it came back */
		assert_non_null(strstr(buf, " 200 "));
	}
	free(body);
	/* A reply with many log-probabilities is charged before it is built. */
	dt_http_close(http);
	params.max_memory = 1 << 20;
	assert_int_equal(serve(state), 0);
	for (int i = 0; i < 2; i++) {
		char ask_for[300], whole[600];

		snprintf(ask_for, sizeof(ask_for),
			 "{\"prompt\":\"x\",\"max_tokens\":90,\"ignore_eos\":true,\"n\":4%s}",
			 i ? "" : ",\"logprobs\":20");
		snprintf(whole, sizeof(whole), HEAD_OF "Content-Length: %zu\r\n\r\n%s", strlen(ask_for),
			 ask_for);
		ask(whole, buf, sizeof(buf));
		assert_non_null(strstr(buf, i ? " 200 " : "server_busy"));
	}
	params.max_memory = (size_t)1 << 30;
}

/* A stream begins with the prompt and its log-probabilities; their memory is charged while it runs. */
static void test_memory_of_streams(void **state)
{
	char stream[300], whole[600], buf[4000];
	double t0 = dt_now();
	int fd;

	snprintf(stream, sizeof(stream),
		 "{\"prompt\":\"%064d\",\"echo\":true,\"logprobs\":20,\"max_tokens\":30,"
		 "\"ignore_eos\":true,\"stream\":true}",
		 0); /* 63 tokens, each with 22 entries: more than half a MiB */
	snprintf(whole, sizeof(whole), HEAD_OF "Content-Length: %zu\r\n\r\n%s", strlen(stream), stream);
	dt_http_close(http);
	params.max_memory = 1 << 20;
	assert_int_equal(serve(state), 0);
	fake.sleep_us = 200000; /* it takes 45 steps */
	fd = dial();
	say(fd, whole);
	hear(fd, 60, buf, sizeof("HTTP/1.1 200 ")); /* the answer begins */
	assert_non_null(strstr(buf, " 200 "));
	ask(whole, buf, sizeof(buf));
	assert_non_null(strstr(buf, "server_busy"));
	ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf)); /* there is room for others */
	assert_non_null(strstr(buf, " 200 "));
	close(fd);
	fake.sleep_us = 0;
	while (dt_http_active(http) > 0 && dt_now() - t0 < 60)
		usleep(10000);
	ask(whole, buf, sizeof(buf)); /* all of it came back */
	assert_non_null(strstr(buf, " 200 "));
	params.max_memory = (size_t)1 << 30;
}

/* A client that asks for 4 MB and more and reads none of it. */
static int ask_and_not_read(const char *body, size_t n)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
	char head[200];

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	a.sin_port = htons((uint16_t)atoi(strrchr(dt_http_url(http), ':') + 1));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	snprintf(head, sizeof(head),
		 "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", n);
	say(fd, head);
	send(fd, body, n, MSG_NOSIGNAL);
	return fd;
}

/* Clients that do not read cost others neither their places nor their answers, and are cut off in the end. */
static void test_who_does_not_read(void **state)
{
	enum { N = 2 << 20, CLIENTS = 12 };
	char *body = malloc(N), buf[4000];
	int fd[CLIENTS];
	double t0 = dt_now(), took;

	memset(body, 'z', N);
	memcpy(body, "{\"prompt\":\"", 11);
	memcpy(body + N - 2, "\"}", 2);
	for (int i = 0; i < CLIENTS; i++) { /* the first four have a place each */
		fd[i] = ask_and_not_read(body, N);
		while (i < 4 && dt_http_active(http) < i + 1 && dt_now() - t0 < 30)
			usleep(1000);
	}
	for (int i = 0; i < 20; i++) { /* health has a place at any moment */
		ask(HEALTH, buf, sizeof(buf));
		if (!strstr(buf, " 200 "))
			fail_msg("health %d after %.1f s: %s", i, dt_now() - t0, buf);
		usleep(20000);
	}
	do
		ask(POST(SHORT_BYTES) SHORT_BODY, buf, sizeof(buf));
	while (strstr(buf, "too_many_connections") && dt_now() - t0 < 60);
	if (!strstr(buf, " 200 "))
		fail_msg("after %.1f s: '%s'", dt_now() - t0, buf);
	while (dt_http_active(http) > 0 && dt_now() - t0 < 100)
		usleep(10000);
	took = dt_now() - t0;
	assert_int_equal(dt_http_active(http), 0);
	assert_true(took > 1);
	for (int i = 0; i < CLIENTS; i++)
		close(fd[i]);
	free(body);
}

#define FROM(origin)                                                                                         \
	"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: " origin "\r\nConnection: close\r\n\r\n"
#define PREFLIGHT(origin)                                                                                    \
	"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: " origin                        \
	"\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
#define UNDER(host) "GET /v1/models HTTP/1.1\r\nHost: " host "\r\nConnection: close\r\n\r\n"

/* Without keys pages may not ask unless they were allowed to, nor anybody under a name that is not ours. */
static void test_pages_of_others(void **state)
{
	static const struct dt_api_key key = {"secret", 0};
	char buf[4000];

	ask(FROM("https://evil.example"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 403 "));
	ask(PREFLIGHT("https://evil.example"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 403 "));
	ask(UNDER("evil.example:80"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 403 "));
	ask(UNDER("127.0.0.1:80"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	ask(UNDER("[::1]:80"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	ask(UNDER("LocalHost"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));

	dt_http_close(http);
	params.allow_origin = "http://a.example,https://b.example:8443";
	assert_int_equal(serve(state), 0);
	ask(FROM("https://b.example:8443"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	assert_non_null(strstr(buf, "Access-Control-Allow-Origin: https://b.example:8443\r\n"));
	assert_non_null(strstr(buf, "Vary: Origin\r\n"));
	ask(FROM("https://b.example"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 403 "));
	ask(PREFLIGHT("http://a.example"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 204 "));
	assert_non_null(strstr(buf, "Access-Control-Allow-Headers: Authorization, Content-Type\r\n"));

	/* With a key it is the key that counts; a page still reads only what it was allowed to. */
	dt_http_close(http);
	params.keys = &key;
	params.nkeys = 1;
	assert_int_equal(serve(state), 0);
	ask(PREFLIGHT("http://a.example"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 204 "));
	ask(FROM("https://evil.example"), buf, sizeof(buf));
	assert_non_null(strstr(buf, " 401 "));
	assert_null(strstr(buf, "Access-Control"));
	ask("GET /v1/models HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer secret\r\n"
	    "Connection: close\r\n\r\n",
	    buf, sizeof(buf));
	assert_non_null(strstr(buf, " 200 "));
	params.keys = NULL;
	params.nkeys = 0;
	params.allow_origin = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_framing, serve, close_server),
		cmocka_unit_test_setup_teardown(test_methods, serve, close_server),
		cmocka_unit_test_setup_teardown(test_half_closed, serve, close_server),
		cmocka_unit_test_setup_teardown(test_memory, serve, close_server),
		cmocka_unit_test_setup_teardown(test_memory_of_streams, serve, close_server),
		cmocka_unit_test_setup_teardown(test_who_does_not_read, serve, close_server),
		cmocka_unit_test_setup_teardown(test_pages_of_others, serve, close_server),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
