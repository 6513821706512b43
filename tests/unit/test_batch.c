/* Lines of a batch whose engine is busy with others. */
#include "serve/api/batch.h"
#include "serve_engine.h"

/* The time limit of a line of a patient batch does not run while the line waits for a place in the queue. */
static void test_patience(void **state)
{
	static const char line[] = "{\"prompt\": [1, 2], \"max_tokens\": 2, \"temperature\": 0}\n";
	struct dt_batch_params p = {
		.window = 1, .model_name = "tiny", .request_timeout = 0.5, .patient = true};
	struct dt_call *busy = one(0, 100); /* one second */
	struct fake f;
	struct dt_engine *e = start(&f, 100, 1, 16, 0);
	char *text = NULL;
	size_t n = 0;
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(write(fd[1], line, strlen(line)), strlen(line));
	close(fd[1]);
	p.fd = fd[0];
	p.out = open_memstream(&text, &n);
	f.sleep_us = 10000;
	submit(e, busy);
	assert_int_equal(dt_batch_run(e, &p, NULL), 0);
	fclose(p.out);
	assert_non_null(strstr(text, "\"finish_reason\":\"length\""));
	dt_call_wait_done(busy);
	dt_call_drop(busy);
	free(text);
	close(fd[0]);
	finish(e, &f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_patience)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
