/* Images when memory is short: calls of calloc pass through the test, which can refuse them. */
#include "data/image.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static bool refuses;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return refuses ? NULL : __real_calloc(n, size);
}

/* Scaling allocates the weights of a side in several parts: what it got before one fails is freed once. */
static void scaling_fails_cleanly(void **state)
{
	struct dt_image x = {0}, y = {0};
	const struct dt_image_box all = {0, 0, 40, 30};
	struct dt_err err = {0};

	(void)state;
	assert_int_equal(dt_image_resize(&x, 3, 40, 30, &err), 0);
	refuses = true;
	assert_int_equal(dt_image_scale(&x, all, 20, 10, &y, &err), -ENOMEM);
	refuses = false;
	assert_int_equal(dt_image_scale(&x, all, 20, 10, &y, &err), 0);
	dt_image_release(&x);
	dt_image_release(&y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scaling_fails_cleanly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
