/* Copies of ZeRO states in the next rank's memory: what they take, what they go with, who has a share. */
#include "plan/memory.h"
#include "plan/run_options.h"
#include "train/peer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct dt_run run_of(struct dt_config *c, int zero, int ranks)
{
	struct dt_run r = {.config = c,
			   .layout = {.dp = ranks, .tp = 1, .pp = 1, .cp = 1, .ep = 1, .zero = zero},
			   .seq = 64,
			   .microbatch = 1,
			   .global_batch = ranks,
			   .accumulation = 1,
			   .compute = DT_BF16,
			   .optim = {.kind = DT_OPTIM_ADAMW}};

	assert_int_equal(dt_config_find_preset("llama-tiny", c), 0);
	r.watch.elastic = DT_RUN_ELASTIC_DP;
	r.watch.peer_copy = 1;
	return r;
}

/* Masters, two states and gradients of a share, whatever the stage. */
static void test_memory(void **state)
{
	struct dt_config c;

	for (int zero = 1; zero <= 3; zero++) {
		struct dt_run r = run_of(&c, zero, 3);
		struct dt_memory_plan with, without;
		uint64_t sum = 0;

		assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &with, NULL), 0);
		r.watch.elastic = DT_RUN_ELASTIC_NONE;
		r.watch.peer_copy = 0;
		assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &without, NULL), 0);
		assert_int_equal(with.n, without.n + 4);
		for (int id = DT_B_PEER_GRADS; id <= DT_B_PEER_OPTIM2; id++) {
			const struct dt_buf *b = dt_memory_find(&with, (enum dt_buf_id)id, -1);

			assert_non_null(b);
			assert_int_equal(b->numel, with.stage.local.share_trained);
			sum += b->bytes;
		}
		assert_int_equal(with.phase_bytes[DT_PH_STEP], without.phase_bytes[DT_PH_STEP] + sum);
		dt_memory_plan_release(&with);
		dt_memory_plan_release(&without);
	}
}

/* A rank by itself has no other to copy. */
static void test_alone(void **state)
{
	struct dt_config c;
	struct dt_run r = run_of(&c, 1, 1);
	struct dt_memory_plan p;

	assert_int_equal(dt_memory_plan(&r, (struct dt_coords){0}, &p, NULL), 0);
	assert_null(dt_memory_find(&p, DT_B_PEER_MASTER, -1));
	dt_memory_plan_release(&p);
}

static void test_refused(void **state)
{
	static const enum dt_optim_kind not [] = {DT_OPTIM_LARS, DT_OPTIM_LAMB, DT_OPTIM_ADAFACTOR,
						  DT_OPTIM_MUON, DT_OPTIM_ADAMW8BIT};
	struct dt_config c;
	struct dt_run r = run_of(&c, 1, 3), other = r;

	assert_int_equal(dt_run_check(&r, NULL), 0);
	other.watch.peer_copy = 0;
	assert_int_equal(dt_run_check(&other, NULL), -ENOTSUP);
	other = r;
	other.watch.elastic = DT_RUN_ELASTIC_NONE;
	assert_int_equal(dt_run_check(&other, NULL), -EINVAL);
	other = r;
	other.layout.zero = 0;
	assert_int_equal(dt_run_check(&other, NULL), -EINVAL);
	other = r;
	other.no_master = true;
	assert_int_equal(dt_run_check(&other, NULL), -ENOTSUP);
	for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++) {
		other = r;
		other.optim.kind = not [i];
		assert_true(dt_run_check(&other, NULL) < 0);
	}
}

static void test_holder(void **state)
{
	/* Of four ranks of epoch 2 the third is lost; the last place is of epoch 1. */
	const struct peer_place v[] = {{2, 0, 4}, {2, 1, 4}, {2, 3, 4}, {1, 2, 5}};
	bool copy = false;

	assert_int_equal(peer_holder(v, 4, &v[0], 0, &copy), 0);
	assert_false(copy);
	assert_int_equal(peer_holder(v, 4, &v[0], 1, &copy), 1);
	assert_false(copy);
	assert_int_equal(peer_holder(v, 4, &v[0], 2, &copy), 2);
	assert_true(copy);
	assert_int_equal(peer_holder(v, 4, &v[0], 3, &copy), 2);
	assert_false(copy);
	/* The last rank's copy is with the first. */
	assert_int_equal(peer_holder(v, 2, &v[0], 3, &copy), 0);
	assert_true(copy);
	/* The second and the third are lost: nobody has the second's. */
	assert_int_equal(peer_holder((const struct peer_place[]){{2, 0, 4}, {2, 3, 4}}, 2, &v[0], 1, &copy),
			 -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_holder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
