/* Adapters by name: places in memory, who waits for one and who goes, versions, and readers that give up. */
#include "base/progress.h"
#include "ckpt/source.h"
#include "golden.h"
#include "serve/engine/adapters_priv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DIR GOLDEN_DIR "/lora/"

static struct dt_dev *dev;
static struct dt_infer *model;

static int setup(void **state)
{
	struct dt_infer_params p = {.dtype = DT_F32,
				    .cache = DT_F32,
				    .weights = -1,
				    .max_tokens = 4,
				    .max_seqs = 4,
				    .blocks = 4,
				    .block_size = 4,
				    .adapters = 8};
	struct dt_source *src;
	struct dt_err err;
	int rc = dt_dev_open(&dev, DT_DEV_CPU, 0, 1);

	if (rc < 0 || dt_source_open(DIR "base", DT_SOURCE_AUTO, "none", &src, &err) < 0)
		return -1;
	rc = dt_infer_open(&model, dev, src, &p, &err);
	dt_source_close(src);
	return rc;
}

static int teardown(void **state)
{
	dt_infer_close(model);
	dt_dev_close(dev);
	return 0;
}

static struct dt_adapters *table(int resident)
{
	const struct dt_adapters_params p = {
		.model = model, .name = "base", .dir = DIR, .resident = resident};
	struct dt_adapters *a;
	struct dt_err err;

	if (dt_adapters_open(&a, &p, &err) < 0 || dt_adapters_add(a, "x", "adapter", true, false, &err) < 0 ||
	    dt_adapters_add(a, "y", "rs", true, false, &err) < 0 ||
	    dt_adapters_add(a, "z", "adapter", true, false, &err) < 0)
		fail_msg("%s", err.msg);
	return a;
}

/* A thread that holds an adapter; done: it has it, or (rc) not. */
struct holder {
	struct dt_served_adapter *s;
	double deadline;
	atomic_bool cancelled, done;
	int rc;
	pthread_t thread;
};

static void *hold(void *arg)
{
	struct holder *h = arg;

	h->rc = dt_adapters_hold(h->s, h->deadline, &h->cancelled, NULL);
	atomic_store(&h->done, true);
	return NULL;
}

static void begin(struct holder *h, struct dt_served_adapter *s)
{
	*h = (struct holder){.s = s};
	assert_int_equal(pthread_create(&h->thread, NULL, hold, h), 0);
}

static int end(struct holder *h)
{
	pthread_join(h->thread, NULL);
	return h->rc;
}

/* Until somebody waits for s. */
static void until_waited_for(struct dt_served_adapter *s)
{
	for (bool seen = false; !seen; usleep(1000)) {
		pthread_mutex_lock(&s->of->mu);
		seen = s->waiters > 0;
		pthread_mutex_unlock(&s->of->mu);
	}
}

static void until_leaving(struct dt_served_adapter *s)
{
	for (bool seen = false; !seen; usleep(1000)) {
		pthread_mutex_lock(&s->of->mu);
		seen = s->leaving;
		pthread_mutex_unlock(&s->of->mu);
	}
}

/* One place: who waits gets it before those who come later for what is there, and all get it in turn. */
static void test_turns(void **state)
{
	struct dt_adapters *a = table(1);
	struct dt_served_adapter *x = dt_adapters_find(a, "x"), *y = dt_adapters_find(a, "y");
	struct holder first, later;

	assert_non_null(x->in); /* the first that was added */
	assert_null(y->in);
	assert_int_equal(dt_adapters_hold(x, 0, NULL, NULL), 0);
	assert_int_equal(dt_adapters_hold(x, 0, NULL, NULL), 0);
	begin(&first, y);
	until_leaving(x);
	begin(&later, x); /* it is in memory, but not for this one */
	until_waited_for(x);
	dt_adapters_release(x);
	assert_false(atomic_load(&first.done));
	dt_adapters_release(x);
	assert_int_equal(end(&first), 0);
	assert_non_null(y->in);
	assert_null(x->in);
	assert_false(atomic_load(&later.done));
	dt_adapters_release(y);
	assert_int_equal(end(&later), 0);
	assert_null(y->in);
	assert_int_equal(a->in_memory, 1);
	assert_int_equal(a->evictions, 2);
	dt_adapters_release(x);
	dt_adapters_drop(x);
	dt_adapters_drop(y);
	dt_adapters_close(a);
}

/* Two places: an adapter that was to leave stays where the other place has become free first. */
static void test_stays(void **state)
{
	struct dt_adapters *a = table(2);
	struct dt_served_adapter *x = dt_adapters_find(a, "x"), *y = dt_adapters_find(a, "y"),
				 *z = dt_adapters_find(a, "z");
	struct holder waits;

	assert_int_equal(dt_adapters_hold(x, 0, NULL, NULL), 0);
	assert_int_equal(dt_adapters_hold(y, 0, NULL, NULL), 0);
	begin(&waits, z);
	until_leaving(x);
	dt_adapters_release(y);
	assert_int_equal(end(&waits), 0);
	assert_null(y->in);
	assert_true(x->leaving);
	dt_adapters_release(x);
	assert_non_null(x->in);
	assert_int_equal(dt_adapters_hold(x, 0, NULL, NULL), 0);
	assert_int_equal(a->in_memory, 2);
	assert_int_equal(a->evictions, 1);
	dt_adapters_release(x);
	dt_adapters_release(z);
	dt_adapters_drop(x);
	dt_adapters_drop(y);
	dt_adapters_drop(z);
	dt_adapters_close(a);
}

/* Who gives up waiting holds nothing, and nobody behind is kept. */
static void test_gives_up(void **state)
{
	struct dt_adapters *a = table(1);
	struct dt_served_adapter *x = dt_adapters_find(a, "x"), *y = dt_adapters_find(a, "y"),
				 *z = dt_adapters_find(a, "z");
	struct holder gone, next;
	struct dt_err err;

	assert_int_equal(dt_adapters_hold(x, 0, NULL, NULL), 0);
	begin(&gone, y);
	until_waited_for(y);
	begin(&next, z);
	until_waited_for(z);
	assert_int_equal(dt_adapters_hold(y, dt_now() - 1, NULL, &err), -ETIMEDOUT);
	atomic_store(&gone.cancelled, true);
	assert_int_equal(end(&gone), -ECANCELED);
	dt_adapters_release(x);
	assert_int_equal(end(&next), 0);
	dt_adapters_release(z);
	dt_adapters_drop(x);
	dt_adapters_drop(y);
	dt_adapters_drop(z);
	dt_adapters_close(a);
}

/* What is replaced or removed is there until its last holder has ended, under a sum of its own. */
static void test_versions(void **state)
{
	struct dt_adapters *a = table(2);
	struct dt_served_adapter *old = dt_adapters_find(a, "x"), *new;
	struct dt_err err;

	assert_int_equal(dt_adapters_hold(old, 0, NULL, NULL), 0);
	assert_int_equal(dt_adapters_add(a, "x", "rs", true, false, &err), -EEXIST);
	assert_int_equal(dt_adapters_add(a, "x", "rs", true, true, &err), 0);
	new = dt_adapters_find(a, "x");
	assert_ptr_not_equal(new, old);
	assert_true(new->sum != old->sum &&new->number > old->number);
	assert_non_null(old->in);
	assert_int_equal(dt_adapters_remove(a, "x", &err), 0);
	assert_null(dt_adapters_find(a, "x"));
	assert_int_equal(dt_adapters_remove(a, "x", &err), -ENOENT);
	assert_int_equal(dt_adapters_hold(new, 0, NULL, NULL), 0); /* it was found before */
	dt_adapters_release(new);
	assert_null(new->in);
	dt_adapters_release(old);
	assert_null(old->in);
	dt_adapters_drop(old);
	dt_adapters_drop(new);
	dt_adapters_close(a);
}

static void test_refused(void **state)
{
	static const char *const outside[] = {"..", "../",  "../lora-more",
					      "/",  "none", "adapter/../../lora-x"};
	static const char *const names[] = {"", "a,b", "a\"b", "a\\b", "a\nb"};
	struct dt_adapters *a = table(1);
	struct dt_err err;

	for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); i++)
		assert_int_equal(dt_adapters_add(a, "n", outside[i], true, false, &err), -EPERM);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		assert_int_equal(dt_adapters_add(a, names[i], "rs", true, false, &err), -EINVAL);
	assert_int_equal(dt_adapters_add(a, "base", "rs", true, false, &err), -EEXIST);
	assert_int_equal(dt_adapters_add(a, "n", DIR "rs", true, false, &err),
			 0); /* whole paths inside are */
	assert_null(dt_adapters_find(a, "m"));
	dt_adapters_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turns),	 cmocka_unit_test(test_stays),
		cmocka_unit_test(test_gives_up), cmocka_unit_test(test_versions),
		cmocka_unit_test(test_refused),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
