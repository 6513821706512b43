/* Memory, copies, order and events of a device; that the host cannot reach what is not its own. */
#include "group.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_copies(void **state)
{
	enum { N = 100003 };
	unsigned char *in, *out, *a, *b;

	assert_int_equal(dt_dev_host_alloc(dev, (void **)&in, N), 0);
	assert_int_equal(dt_dev_host_alloc(dev, (void **)&out, N), 0);
	assert_int_equal(dt_dev_alloc(dev, (void **)&a, N), 0);
	assert_int_equal(dt_dev_alloc(dev, (void **)&b, N), 0);
	for (int i = 0; i < N; i++)
		in[i] = (unsigned char)(i * 7 + i / 251);
	memset(out, 0xee, N);
	assert_int_equal(dt_dev_copy(dev, a, in, N), 0);
	assert_int_equal(dt_dev_copy(dev, b, a, N), 0);
	assert_int_equal(dt_dev_clear(dev, b + 10, 5), 0);
	assert_int_equal(dt_dev_copy(dev, out, b, N), 0);
	assert_int_equal(dt_dev_sync(dev), 0);
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i], i >= 10 && i < 15 ? 0 : in[i]);
	dt_dev_free(dev, a);
	dt_dev_free(dev, b);
	dt_dev_host_free(dev, in);
	dt_dev_host_free(dev, out);
	dt_dev_free(dev, NULL);
}

/* A second device of the same card sees the memory of the first once it has waited for its event. */
static void test_events(void **state)
{
	struct dt_dev *other = open_device(1);
	struct dt_event *e;
	float *p, got[3] = {0};

	assert_int_equal(dt_dev_alloc(dev, (void **)&p, sizeof got), 0);
	assert_int_equal(dt_event_open(&e, dev), 0);
	/* The table itself: these tensors lie on the device. */
	const struct dt_ops *ops = on_device() ? &dt_ops_cuda : dev->ops;

	assert_int_equal(ops->fill(dev, dt_t1(p, DT_F32, 3), 2.5f), 0);
	assert_int_equal(dt_event_record(e, dev), 0);
	assert_int_equal(dt_event_wait(e, other), 0);
	assert_int_equal(ops->scale(other, dt_t1(p, DT_F32, 3), 2), 0);
	assert_int_equal(dt_dev_copy(other, got, p, sizeof got), 0);
	assert_int_equal(dt_event_record(e, other), 0);
	assert_int_equal(dt_event_sync(e), 0);
	for (int i = 0; i < 3; i++)
		assert_true(got[i] == 5);
	dt_event_close(e);
	dt_dev_free(dev, p);
	dt_dev_close(other);
}

static void *comes_and_goes(void *arg)
{
	struct dt_dev *mine = open_device(1);
	void *p;

	for (int i = 0; i < 3000; i++) {
		assert_int_equal(dt_dev_alloc(mine, &p, 16 + i % 3), 0);
		dt_dev_free(mine, p);
	}
	dt_dev_close(mine);
	return arg;
}

/* One thread runs kernels while another allocates and frees. */
static void test_beside_allocation(void **state)
{
	enum { N = 20000 };
	const struct dt_ops *ops = on_device() ? &dt_ops_cuda : dev->ops;
	pthread_t thread;
	float *p, got;

	assert_int_equal(dt_dev_alloc(dev, (void **)&p, N * sizeof *p), 0);
	assert_int_equal(ops->fill(dev, dt_t1(p, DT_F32, N), 1), 0);
	assert_int_equal(pthread_create(&thread, NULL, comes_and_goes, NULL), 0);
	for (int i = 0; i < 30; i++)
		assert_int_equal(ops->scale(dev, dt_t1(p, DT_F32, N), 2), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(dt_dev_copy(dev, &got, p + N - 1, sizeof got), 0);
	assert_int_equal(dt_dev_sync(dev), 0);
	assert_true(got == 0x1p30f);
	dt_dev_free(dev, p);
}

/* Nothing runs while it is recorded; what runs then sees the memory of then. */
static void test_graph(void **state)
{
	const float fresh[3] = {5, 6, 7};
	struct dt_graph *g;
	float *p, got[3];

	if (dt_dev_is_host(dev)) {
		assert_int_equal(dt_graph_begin(dev), -ENOTSUP);
		return;
	}
	assert_int_equal(dt_dev_alloc(dev, (void **)&p, 2 * sizeof got), 0);
	assert_int_equal(dt_ops_cuda.fill(dev, dt_t1(p, DT_F32, 6), 1), 0);
	assert_int_equal(dt_graph_begin(dev), 0);
	assert_int_equal(dt_ops_cuda.scale(dev, dt_t1(p, DT_F32, 3), 2), 0);
	assert_int_equal(dt_dev_copy_rows(dev, p + 3, 4, p, 4, 4, 3), 0);
	assert_int_equal(dt_dev_sync(dev), -EBUSY);
	assert_int_equal(dt_graph_end(dev, &g), 0);
	for (int run = 0; run < 3; run++) {
		if (run == 2)
			assert_int_equal(dt_dev_copy(dev, p, fresh, sizeof fresh), 0);
		if (run)
			assert_int_equal(dt_graph_run(dev, g), 0);
		assert_int_equal(dt_dev_copy(dev, got, p + 3, sizeof got), 0);
		assert_int_equal(dt_dev_sync(dev), 0);
		for (int i = 0; i < 3; i++)
			assert_true(got[i] == (run == 0 ? 1 : run == 1 ? 2 : 2 * fresh[i]));
	}
	dt_graph_close(dev, g);
	dt_dev_free(dev, p);
}

static void test_parse(void **state)
{
	static const struct {
		const char *name;
		int rc, kind, index;
	} cases[] = {
		{"cpu", 0, DT_DEV_CPU, 0},     {"cuda", 0, DT_DEV_CUDA, 0}, {"cuda:3", 0, DT_DEV_CUDA, 3},
		{"cuda:", -EINVAL, 0, 0},      {"cuda:x", -EINVAL, 0, 0},   {"cuda:1x", -EINVAL, 0, 0},
		{"cuda:99999", -EINVAL, 0, 0}, {"gpu", -EINVAL, 0, 0},	    {"", -EINVAL, 0, 0}};
	enum dt_dev_kind kind;
	int index;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(dt_dev_parse(cases[i].name, &kind, &index), cases[i].rc);
		if (!cases[i].rc) {
			assert_int_equal(kind, cases[i].kind);
			assert_int_equal(index, cases[i].index);
		}
	}
	assert_int_equal(dt_dev_parse("auto", &kind, &index), 0);
	if (on_device())
		assert_int_equal(kind, DT_DEV_CUDA);
}

/* A child that reads device memory through its address is killed for it. */
static void test_apart(void **state)
{
	volatile char *p;
	int status;
	pid_t pid;

	if (dt_dev_is_host(dev)) {
		print_message("skipped: the CPU's memory is the host's\n");
		skip();
	}
	assert_int_equal(dt_dev_alloc(dev, (void **)&p, 64), 0);
	pid = fork();
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(p[3]);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 1); /* 1: a sanitizer said so */
	dt_dev_free(dev, (void *)p);
}

/* A bad index is met by the kernel and told by the next sync, once. */
static void test_late_error(void **state)
{
	int32_t host[2] = {0, 7}, *ids, *pos;
	float *m;

	if (dt_dev_is_host(dev))
		skip(); /* it looks at once: test_embedding.c */
	assert_int_equal(dt_dev_alloc(dev, (void **)&ids, sizeof host), 0);
	assert_int_equal(dt_dev_alloc(dev, (void **)&pos, sizeof host), 0);
	assert_int_equal(dt_dev_alloc(dev, (void **)&m, 64 * sizeof *m), 0);
	assert_int_equal(dt_dev_clear(dev, m, 64 * sizeof *m), 0);
	assert_int_equal(dt_dev_clear(dev, ids, sizeof host), 0);
	assert_int_equal(dt_dev_copy(dev, pos, host, sizeof host), 0);
	assert_int_equal(dt_ops_cuda.embedding_forward(dev, dt_t2(m, DT_F32, 2, 8), ids, pos,
						       dt_t2(m + 16, DT_F32, 2, 8),
						       dt_t2(m + 32, DT_F32, 4, 8), 0),
			 0);
	assert_int_equal(dt_dev_sync(dev), -EINVAL);
	assert_int_equal(dt_dev_sync(dev), 0);
	dt_dev_free(dev, ids);
	dt_dev_free(dev, pos);
	dt_dev_free(dev, m);
}

static void test_rates(void **state)
{
	assert_true(dt_dev_matmul_rate(dev, DT_BF16, 0.01) > 0);
	assert_true(dt_dev_copy_rate(dev, 0.01) > 0);
	assert_true(dt_dev_read_rate(dev, 0.01) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_beside_allocation),
		cmocka_unit_test(test_graph),
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_apart),
		cmocka_unit_test(test_late_error),
		cmocka_unit_test(test_rates),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
