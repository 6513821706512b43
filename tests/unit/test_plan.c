/* Step times against those published, and collectives against closed forms. */
#include "plan/steptime.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Korthikanti et al. 2022, tables 3 and 5: seconds an iteration on A100s, all of it recomputed and as they
 * do. */
static void megatron_step_times(void **state)
{
	static const struct {
		const char *model, *layout;
		int64_t microbatch, accumulation;
		double full, present, mfu;
	} cases[] = {
		{"megatron-22b", "tp8", 4, 1, 1.42, 1.10, 0.415},
		{"megatron-175b", "tp8.pp8.v3", 1, 64, 18.13, 13.75, 0.514},
		{"megatron-530b", "tp8.pp35.v3", 1, 280, 49.05, 37.83, 0.560},
		{"megatron-1t", "tp8.pp64", 1, 512, 94.42, 71.49, 0.563},
	};
	struct dt_cluster a100;
	double sum = 0;

	assert_int_equal(dt_cluster_device("a100", &a100, NULL), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_config c;
		struct dt_train_shape s = {.config = &c,
					   .microbatch = cases[i].microbatch,
					   .accumulation = cases[i].accumulation,
					   .seq = 2048,
					   .compute = DT_BF16,
					   .optim = DT_OPTIM_ADAMW,
					   .pipeline = DT_PIPE_1F1B};

		assert_int_equal(dt_config_find_preset(cases[i].model, &c), 0);
		assert_int_equal(dt_layout_parse(cases[i].layout, &s.layout, NULL), 0);
		for (int present = 0; present < 2; present++) {
			double published = present ? cases[i].present : cases[i].full, error;
			struct dt_step_time t;

			s.recompute.mode = present ? DT_RECOMPUTE_SELECTIVE : DT_RECOMPUTE_FULL;
			s.layout.seq_parallel = present;
			assert_int_equal(dt_step_time(&a100, &s, &dt_stack_megatron, &t, NULL), 0);
			error = t.step / published - 1;
			sum += fabs(error);
			print_message("%-14s %s: %.2f s, published %.2f (%+.1f%%), mfu %.3f bubble %.3f head "
				      "%.3f tp %.3f\n",
				      cases[i].model, present ? "selective" : "full     ", t.step, published,
				      100 * error, t.mfu, t.bubble, t.head / t.step, t.tp / t.step);
			if (fabs(error) > 0.10)
				fail_msg("%s: %.2f s, published %.2f", cases[i].model, t.step, published);
			if (present && fabs(t.mfu * t.step / published - cases[i].mfu) > 0.0025)
				fail_msg("%s: %.4f of the flops, published %.3f", cases[i].model,
					 t.mfu * t.step / published, cases[i].mfu);
		}
	}
	print_message("mean error %.1f%%\n", 100 * sum / 8);
}

/* Grattafiori et al. 2024, table 4: Llama 3 405B on 8,192 H100s, tp8 pp16 dp64, 16 M tokens a step: 43% MFU.
 */
static void llama_405b(void **state)
{
	struct dt_config c;
	struct dt_cluster h100;
	struct dt_step_time t;
	struct dt_train_shape s = {.config = &c,
				   .microbatch = 1,
				   .accumulation = 32,
				   .seq = 8192,
				   .compute = DT_BF16,
				   .optim = DT_OPTIM_ADAMW,
				   .pipeline = DT_PIPE_1F1B};

	assert_int_equal(dt_cluster_device("H100", &h100, NULL), 0);
	assert_int_equal(dt_config_find_preset("llama-3.1-405b", &c), 0);
	assert_int_equal(dt_layout_parse("dp64.tp8.pp16.v4.s1", &s.layout, NULL), 0);
	assert_int_equal(dt_step_time(&h100, &s, &dt_stack_dt, &t, NULL), 0);
	if (fabs(t.mfu / 0.43 - 1) > 0.10)
		fail_msg("%.3f of the flops, published 0.43", t.mfu);
	print_message("405B: mfu %.3f, published 0.43\n", t.mfu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(megatron_step_times),
		cmocka_unit_test(llama_405b),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
