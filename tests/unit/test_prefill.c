/*
 * Prompts that another server computes, over a stand-in model whose tokens depend on every id that the cache
 * has: whatever comes, comes late, damaged or not at all, tokens are those of the plain loop, and nothing is
 * held on either side when clients have left.
 */
#include "base/crc.h"
#include "model/config.h"
#include "serve/engine/kvparts.h"
#include "serve/engine/kvpeers_priv.h"
#include "serve/http/http.h"
#include "serve_engine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { SIZE = 4, BLOCK = SIZE * 4, PROMPT = 60, OUT = 8, NAME = 77 };

static struct fake far;
static struct dt_engine *far_engine; /* of the server that computes prompts */
static struct dt_http *far_http;
static const struct dt_log silent = {.name = "test", .rank = -1};
static const char *url;
static struct dt_kvpeers_params asks;

static int begin(void **state)
{
	const struct dt_http_params p = {.host = "127.0.0.1",
					 .model_name = "fake",
					 .role = DT_ROLE_PREFILL,
					 .max_body = 1 << 20,
					 .max_memory = 64 << 20,
					 .max_connections = 200,
					 .read_timeout = 60,
					 .request_timeout = 600,
					 .answer_timeout = 60};
	struct dt_err err;

	peers = NULL;
	cache_name = NAME;
	far_engine = start(&far, 200, 4, 16, 64);
	if (dt_http_open(&far_http, &p, &err) < 0)
		fail_msg("%s", err.msg);
	dt_http_serve(far_http, far_engine, NULL);
	url = dt_http_url(far_http);
	asks = (struct dt_kvpeers_params){.url = &url,
					  .n = 1,
					  .least = 12,
					  .timeout = 60,
					  .memory = 1 << 20,
					  .log = &silent,
					  .name = NAME,
					  .block_bytes = BLOCK,
					  .block_size = SIZE};
	peers = &asks;
	return 0;
}

/* Whatever happened, the other server comes to hold nothing. */
static int end(void **state)
{
	const struct dt_metrics *m = dt_engine_metrics(far_engine);

	assert_int_equal(dt_engine_wait_idle(far_engine, 60), 0);
	assert_true(m->kv_usage == 0); /* the engine is idle: nobody writes it */
	assert_int_equal(far.bad, 0);
	dt_http_close(far_http);
	dt_engine_close(far_engine);
	free(far.cache);
	return 0;
}

static void answer(struct dt_engine *e, int i)
{
	struct dt_call *c = ask_alike(i, 100, PROMPT, OUT);

	submit(e, c);
	dt_call_wait_done(c);
	assert_right(&c->req[0]);
	dt_call_drop(c);
}

static struct dt_kvpeers_counts counts_of(struct dt_engine *e)
{
	struct dt_metrics *m = dt_engine_metrics(e);
	struct dt_kvpeers_counts c;

	pthread_mutex_lock(&m->mu);
	c = m->beyond.peers;
	pthread_mutex_unlock(&m->mu);
	return c;
}

/* Eight prompts one after the other in a new engine: what became of those asked for. */
static struct dt_kvpeers_counts eight(int *computed)
{
	struct fake f;
	struct dt_engine *e = start(&f, 100, 4, 16, 16);
	struct dt_kvpeers_counts c;

	for (int i = 0; i < 8; i++)
		answer(e, i);
	c = counts_of(e);
	*computed = f.tokens;
	finish(e, &f);
	return c;
}

/* All eight begin alike: from the second on only what is new is asked for, and is enough to ask. */
static void test_blocks_come(void **state)
{
	for (int here = 0; here < 2; here++) {
		struct dt_kvpeers_counts c;
		int computed;

		asks.inline_only = here;
		c = eight(&computed);
		assert_int_equal(c.asked, 8);
		assert_int_equal(c.failed, 0);
		assert_int_equal(c.running, 0);
		assert_int_equal(c.shared, here ? 0 : c.blocks);
		assert_true(c.blocks >= 8 * 6 && c.blocks < 8 * (PROMPT / SIZE));
		/* the rest of the last block and the tokens behind the first */
		assert_true(computed <= 8 * (SIZE + OUT));
	}
}

/* Too little is new; no memory; another cache; another role; nobody listens: the prompt is computed here. */
static void test_computed_here(void **state)
{
	static const char *const nobody = "http://127.0.0.1:1";
	struct dt_kvpeers_counts c;
	int computed;

	asks.least = PROMPT + 1;
	c = eight(&computed);
	assert_int_equal(c.asked, 0);
	asks.least = 12;
	asks.memory = DT_KVSHARE_HEAD;
	c = eight(&computed);
	assert_int_equal(c.asked, 0);
	asks.memory =
		DT_KVSHARE_HEAD + 5 * BLOCK; /* five blocks come, or none while others are not freed yet */
	c = eight(&computed);
	assert_int_equal(c.failed, 0);
	assert_true(c.asked > 0);
	assert_int_equal(c.blocks, 5 * c.asked);
	asks.memory = 1 << 20;
	asks.name = NAME + 1;
	c = eight(&computed);
	assert_true(c.asked > 0);
	assert_int_equal(c.failed, c.asked);
	assert_int_equal(c.blocks, 0);
	asks.name = NAME;
	asks.url = &nobody;
	c = eight(&computed);
	assert_true(c.asked > 0);
	assert_int_equal(c.failed, c.asked);
}

/* A server that takes connections and never says a word. */
static void test_silence(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), computed;
	struct dt_kvpeers_counts c;
	socklen_t n = sizeof(a);
	char mute[64];

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	snprintf(mute, sizeof(mute), "http://127.0.0.1:%d", ntohs(a.sin_port));
	url = mute;
	asks.timeout = 0.1;
	c = eight(&computed);
	assert_true(c.asked > 0);
	assert_int_equal(c.failed, c.asked);
	assert_int_equal(c.blocks, 0);
	close(fd);
}

/* Of many prompts some clients leave, at once or after a while. 10,000 with DT_SLOW. */
static void test_cancels(void **state)
{
	const char *slow = getenv("DT_SLOW");
	const int times = slow && *slow == '1' ? 10000 / 20 : 15;
	struct fake f;
	struct dt_engine *e = start(&f, 80, 4, 16, 20); /* few blocks: requests are set back too */
	unsigned rng = 1;

	far.sleep_us = 100;
	for (int t = 0; t < times; t++) {
		struct dt_call *c[20];
		bool left[20];

		for (int i = 0; i < 20; i++)
			submit(e, c[i] = ask_alike(t * 20 + i, 100, PROMPT, OUT));
		for (int i = 0; i < 20; i++) {
			rng = rng * 1103515245 + 12345;
			left[i] = (rng >> 16) % 10 < 3;
			if (left[i] && i % 3 == 0)
				usleep((rng >> 8) % 500);
			if (left[i])
				dt_engine_cancel(e, c[i]);
		}
		for (int i = 0; i < 20; i++) {
			dt_call_wait_done(c[i]);
			if (!left[i])
				assert_right(&c[i]->req[0]);
			dt_call_drop(c[i]);
		}
	}
	finish(e, &f); /* nothing is held here; end() looks there */
	far.sleep_us = 0;
}

/* ---- the answer's bytes ---- */

static const int32_t some[PROMPT];

/* Three blocks of an answer as they come over a connection, into `to`; its bytes. */
static size_t good_answer(char *to)
{
	char *at = to;

	for (int i = 0; i < 3; i++) {
		struct dt_kvrecord r = {.magic = DT_KVRECORD_MAGIC, .index = i, .here = 1};

		memset(at + sizeof(r), 'a' + i, BLOCK);
		r.crc = dt_crc32(0, at + sizeof(r), BLOCK);
		memcpy(at, &r, sizeof(r));
		at += sizeof(r) + BLOCK;
	}
	memcpy(at, &(struct dt_kvrecord){.magic = DT_KVRECORD_MAGIC, .index = DT_KVRECORD_END},
	       sizeof(struct dt_kvrecord));
	return (size_t)(at - to) + sizeof(struct dt_kvrecord);
}

/* Reads n bytes in pieces of so many; the blocks that were taken, -1: all and the end. */
static int read_answer(const char *data, size_t n, size_t piece)
{
	struct dt_kvpeers of = {.p = asks};
	struct curl_slist *none = NULL;
	struct dt_kvpeer peer = {.url = (char *)(uintptr_t)url, .head = &none};
	struct dt_kvask a = {.tokens = some, .to = 3};
	struct dt_kvget *g = dt_kvget_new(&of, &peer, &a);
	bool ok = true;
	int seen;

	assert_non_null(g);
	for (size_t i = 0; i < n && ok; i += piece)
		ok = dt_kvget_push(g, data + i, n - i < piece ? n - i : piece);
	assert_int_equal(ok, !g->failed);
	for (int i = 0; i < g->seen; i++)
		assert_memory_equal(dt_kvshare_data(&g->mem) + i * BLOCK, data + i * (BLOCK + 16) + 16,
				    BLOCK);
	seen = g->whole && ok ? -1 : g->seen;
	dt_kvget_free(g);
	return seen;
}

static void test_answer(void **state)
{
	const size_t step = sizeof(struct dt_kvrecord) + BLOCK;
	char data[512];
	size_t n = good_answer(data);

	for (size_t piece = 1; piece <= n; piece++)
		assert_int_equal(read_answer(data, n, piece), -1);
	for (size_t cut = 0; cut < n; cut++) /* an answer cut short is never whole */
		assert_int_equal(read_answer(data, cut, 7), cut / step < 3 ? cut / step : 3);
	for (size_t i = 0; i < n;
	     i++) { /* every byte counts but the checksum of the end, which has no block */
		const bool spare = i >= 3 * step + offsetof(struct dt_kvrecord, crc);

		data[i] ^= 0x10;
		assert_int_equal(read_answer(data, n, 11), spare ? -1 : (int)(i / step));
		data[i] ^= 0x10;
	}
	memcpy(data + n, data, n); /* nothing may follow */
	assert_int_equal(read_answer(data, 2 * n, 64), 3);
}

static void test_share(void **state)
{
	struct dt_kvshare a, b;
	struct dt_err err;
	uint64_t other[2];
	int plain = memfd_create("test", MFD_CLOEXEC);

	assert_int_equal(dt_kvshare_make(&a, 100, &err), 0);
	assert_int_equal(dt_kvshare_join(&b, getpid(), a.fd, a.nonce, 100), 0);
	memcpy(dt_kvshare_data(&b), "seen", 5);
	assert_string_equal(dt_kvshare_data(&a), "seen");
	assert_int_equal(dt_kvshare_join(&b, getpid(), a.fd, a.nonce, 101), -EPERM);
	memcpy(other, a.nonce, sizeof(other));
	other[1]++;
	assert_int_equal(dt_kvshare_join(&b, getpid(), a.fd, other, 100), -EPERM);
	assert_null(b.map);
	assert_int_equal(dt_kvshare_join(&b, getpid(), 9999, a.nonce, 100), -ENOENT);
	assert_int_equal(ftruncate(plain, DT_KVSHARE_HEAD + 100), 0); /* it could shrink */
	assert_int_equal(dt_kvshare_join(&b, getpid(), plain, a.nonce, 100), -EPERM);
	assert_true(ftruncate(a.fd, 10) < 0);
	close(plain);
	dt_kvshare_release(&a);
}

/* A file on a disk has no seals, and its owner could cut it short under the mapping. */
static void test_share_of_a_plain_file(void **state)
{
	char path[] = "/var/tmp/dt-test-share-XXXXXX";
	const uint64_t nonce[2] = {1, 2};
	struct dt_kvshare s;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ftruncate(fd, DT_KVSHARE_HEAD + 100), 0);
	assert_int_equal(pwrite(fd, nonce, sizeof(nonce), 0), sizeof(nonce));
	assert_int_equal(dt_kvshare_join(&s, getpid(), fd, nonce, 100), -EPERM);
	assert_null(s.map);
	close(fd);
}

/* ---- parts of several ranks ---- */

/* Element e of the run of head h, in run o of piece k of layer l, as a number of its own. */
static uint32_t element(int l, int k, int o, int h, int e)
{
	return (uint32_t)((((l * 2 + k) * 4 + o) * 8 + h) * 3 + e);
}

/* A rank has the layers and heads that its place says, and the whole is put together from all parts. */
static void test_parts(void **state)
{
	static const struct {
		const char *layout;
		int heads, pieces;
	} c[] = {{"tp2", 4, 2}, {"pp2", 4, 2},	   {"tp2.pp2", 2, 2},
		 {"tp4", 2, 2}, {"tp2.pp2", 1, 1}, {"tp1", 3, 2}};
	enum { LAYERS = 5, OUTER = 4, INNER = 3 };

	for (size_t t = 0; t < sizeof(c) / sizeof(*c); t++) {
		uint32_t whole[LAYERS * 2 * OUTER * 4 * INNER], again[LAYERS * 2 * OUTER * 4 * INNER] = {0};
		uint32_t part[LAYERS * 2 * OUTER * 4 * INNER];
		const int heads = c[t].heads, pieces = c[t].pieces;
		struct dt_kvparts p = {.form = {pieces, OUTER, heads, INNER * sizeof(*whole)}};
		struct dt_config config;
		struct dt_err err;
		int n = 0;

		assert_int_equal(dt_config_load("llama-tiny", &config, &err), 0);
		config.layers = LAYERS;
		p.config = &config;
		assert_int_equal(dt_layout_parse(c[t].layout, &p.layout, &err), 0);
		for (int l = 0; l < LAYERS; l++)
			for (int k = 0; k < pieces; k++)
				for (int o = 0; o < OUTER; o++)
					for (int h = 0; h < heads; h++)
						for (int e = 0; e < INNER; e++)
							whole[n++] = element(l, k, o, h, e);
		assert_int_equal(dt_kvparts_whole(&p), n * 4);
		for (int r = 0; r < dt_layout_world(&p.layout); r++) {
			const struct dt_coords at = dt_layout_coords(&p.layout, r);
			const int mine = heads >= p.layout.tp ? heads / p.layout.tp : 1;
			int first, last, i = 0;

			dt_kvparts_cut(&p, r, part, whole);
			dt_layout_stage(&p.layout, &config, at.pp, &first, &last);
			for (int l = first; l < last; l++)
				for (int k = 0; k < pieces; k++)
					for (int o = 0; o < OUTER; o++)
						for (int h = 0; h < mine; h++)
							for (int e = 0; e < INNER; e++, i++)
								assert_int_equal(
									part[i],
									element(l, k, o,
										at.tp * heads / p.layout.tp +
											h,
										e));
			assert_int_equal(dt_kvparts_bytes(&p, r), i * 4);
			dt_kvparts_join(&p, r, part, again);
		}
		assert_memory_equal(again, whole, (size_t)n * 4);
	}
}

/* ---- what is asked ---- */

static int post(const char *path, const char *body)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), status = 0;
	char text[2048] = "";
	size_t n = 0;
	ssize_t got;

	a.sin_port = htons((uint16_t)atoi(strrchr(dt_http_url(far_http), ':') + 1));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	snprintf(text, sizeof(text),
		 "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
		 path, strlen(body), body);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	while (n < sizeof(text) - 1 && (got = recv(fd, text + n, sizeof(text) - 1 - n, 0)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	sscanf(text, "HTTP/1.1 %d", &status);
	close(fd);
	return status;
}

#define ASK(cache, size, from, tokens, more)                                                                 \
	"{\"cache\":\"" cache "\",\"salt\":\"0000000000000000\",\"block_bytes\":16,\"block_size\":" size     \
	",\"from\":" from ",\"tokens\":" tokens more "}"
#define OURS "000000000000004d"

static void test_bodies(void **state)
{
	static const struct {
		int status;
		const char *body;
	} c[] = {
		{200, ASK(OURS, "4", "0", "[1,2,3,4]", "")},
		{200, ASK(OURS, "4", "1", "[1,2,3,4,5,6,7,8]", "")},
		{409, ASK("000000000000004e", "4", "0", "[1,2,3,4]", "")},
		{409, ASK(OURS, "8", "0", "[1,2,3,4]", "")},
		{400, ASK("4d", "4", "0", "[1,2,3,4]", "")},
		{400, ASK("0x0000000000004d", "4", "0", "[1,2,3,4]", "")},
		{400, ASK(OURS, "4", "1", "[1,2,3,4]", "")},
		{400, ASK(OURS, "4", "-1", "[1,2,3,4]", "")},
		{400, ASK(OURS, "4", "4294967296", "[1,2,3,4]", "")},
		{400, ASK(OURS, "4", "0", "[1,2,3]", "")},
		{400, ASK(OURS, "4", "0", "[]", "")},
		{400, ASK(OURS, "4", "0", "\"1234\"", "")},
		{400, ASK(OURS, "4", "0", "[1,2,3,258]", "")},
		{400, ASK(OURS, "4", "0", "[1,2,3,4294967297]", "")},
		{400, ASK(OURS, "4", "0", "[1,2,3,-4]", "")},
		{400, ASK(OURS, "4", "0", "[1,2,3,4.0]", "")},
		{400, ASK(OURS, "4", "0", "[1,2,3,4]", ",\"memory\":{}")},
		{400, ASK(OURS, "4", "0", "[1,2,3,4]", ",\"model\":\"x\"")},
		{409, ASK(OURS, "4", "0", "[1,2,3,4]", ",\"model\":\"x\",\"adapter\":\"0000000000000001\"")},
		{400, "[]"},
		{400, "{}"},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		const int status = post("/v1/prefill", c[i].body);

		if (status != c[i].status)
			fail_msg("%s: %d, not %d", c[i].body, status, c[i].status);
	}
}

static void test_roles(void **state)
{
	const char *const body = ASK(OURS, "4", "0", "[1,2,3,4]", "");
	const char *const prompt = "{\"prompt\":\"x\",\"max_tokens\":2}";

	assert_int_equal(post("/v1/completions", prompt), 503);
	assert_int_equal(post("/v1/role", "{\"role\":\"none\"}"), 400);
	assert_int_equal(post("/v1/role", "{\"role\":1}"), 400);
	assert_int_equal(post("/v1/role", "{\"role\":\"both\",\"x\":1}"), 400);
	assert_int_equal(post("/v1/role", "{\"role\":\"decode\"}"), 200);
	assert_int_equal(post("/v1/completions", prompt), 200);
	assert_int_equal(post("/v1/prefill", body), 503);
	assert_int_equal(post("/v1/role", "{\"role\":\"both\"}"), 200);
	assert_int_equal(post("/v1/completions", prompt), 200);
	assert_int_equal(post("/v1/prefill", body), 200);
	assert_int_equal(post("/v1/role", "{\"role\":\"prefill\"}"), 200);
	assert_int_equal(post("/v1/completions", prompt), 503);
	assert_int_equal(post("/v1/prefill", body), 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_blocks_come, begin, end),
		cmocka_unit_test_setup_teardown(test_computed_here, begin, end),
		cmocka_unit_test_setup_teardown(test_silence, begin, end),
		cmocka_unit_test_setup_teardown(test_cancels, begin, end),
		cmocka_unit_test_setup_teardown(test_answer, begin, end),
		cmocka_unit_test_setup_teardown(test_bodies, begin, end),
		cmocka_unit_test_setup_teardown(test_roles, begin, end),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_share_of_a_plain_file),
		cmocka_unit_test(test_parts),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
