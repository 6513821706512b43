/* Times of operations: looking up between and beyond measured sizes, the file, and a step made of them. */
#include "plan/steptime.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void near(double got, double want, double relative)
{
	if (!(fabs(got / want - 1) <= relative))
		fail_msg("%.12g, want %.12g", got, want);
}

/* Every operation's time is f(its sizes). */
static struct dt_op_times filled(int cores, double (*f)(int op, const int64_t n[3], int processes))
{
	struct dt_op_times t = {.cores = cores, .nmode = cores > 1 ? 2 : 1, .isa = "test"};

	t.mode[0].processes = 1;
	t.mode[1].processes = cores;
	assert_int_equal(dt_op_times_init(&t, 0, NULL), 0);
	for (int m = 0; m < t.nmode; m++)
		for (int op = 0; op < DT_T_N; op++)
			for (int type = 0; type < DT_OP_TYPES; type++) {
				struct dt_op_grid *g = &t.mode[m].g[op][type];

				for (int i = 0; i < dt_grid_points(g); i++) {
					int64_t n[3];

					dt_grid_sizes(g, i, n);
					g->s[i] = f(op, n, t.mode[m].processes);
				}
			}
	return t;
}

/* A power of every size: straight in the logarithms, so looking up between sizes has no error. */
static double powers(int op, const int64_t n[3], int processes)
{
	return 1e-9 * processes * pow((double)n[0], 0.9) * pow((double)n[1], 0.7) * pow((double)n[2], 1.1);
}

static double one_us(int op, const int64_t n[3], int processes)
{
	return 1e-6;
}

static double product_time(double a, double b, double c)
{
	return 1e-9 * pow(a, 0.9) * pow(b, 0.7) * pow(c, 1.1);
}

static void between_sizes(void **state)
{
	struct dt_op_times t = filled(4, powers);
	double at;

	near(dt_op_seconds(&t, 1, DT_T_MUL, DT_BF16, 128, 256, 64), product_time(128, 256, 64), 1e-9);
	near(dt_op_seconds(&t, 1, DT_T_MUL, DT_F32, 300, 1000, 77), product_time(300, 1000, 77), 1e-9);
	near(dt_op_seconds(&t, 1, DT_T_ACT, DT_F32, 100, 100, 1), product_time(100, 100, 1), 1e-9);
	near(dt_op_seconds(&t, 1, DT_T_SUMSQ, DT_F32, 5000, 1, 1), product_time(5000, 1, 1), 1e-9);
	/* Beyond the largest size at its rate, below the smallest its time. */
	at = dt_op_seconds(&t, 1, DT_T_MUL, DT_BF16, 2048, 64, 64);
	near(dt_op_seconds(&t, 1, DT_T_MUL, DT_BF16, 4 * 2048, 64, 64), 4 * at, 1e-9);
	at = dt_op_seconds(&t, 1, DT_T_MUL, DT_BF16, 32, 64, 64);
	near(dt_op_seconds(&t, 1, DT_T_MUL, DT_BF16, 1, 64, 64), at, 1e-9);
	/* Attention grows with the square of the sequence. */
	at = dt_op_seconds(&t, 1, DT_T_ATTENTION, DT_F32, 16, 1024, 64);
	near(dt_op_seconds(&t, 1, DT_T_ATTENTION, DT_F32, 16, 4096, 64), 16 * at, 1e-9);
	/* Two of four cores: between; more processes than cores take turns. */
	at = product_time(128, 64, 64);
	near(dt_op_seconds(&t, 4, DT_T_MUL, DT_F32, 128, 64, 64), 4 * at, 1e-9);
	near(dt_op_seconds(&t, 2, DT_T_MUL, DT_F32, 128, 64, 64), 2 * at, 1e-9);
	near(dt_op_seconds(&t, 8, DT_T_MUL, DT_F32, 128, 64, 64), 8 * at, 1e-9);
	dt_op_times_release(&t);
}

static void the_file(void **state)
{
	struct dt_op_times t = filled(2, powers), back;
	json_t *o = dt_op_times_to_json(&t), *op;
	struct dt_err err = {0};
	char *text;

	assert_int_equal(dt_op_times_from_json(o, &back, &err), 0);
	near(dt_op_seconds(&back, 2, DT_T_HEAD, DT_BF16, 100, 5000, 200),
	     dt_op_seconds(&t, 2, DT_T_HEAD, DT_BF16, 100, 5000, 200), 1e-3);
	dt_op_times_release(&back);
	text = json_dumps(o, JSON_COMPACT);
	if (strlen(text) > 256 << 10)
		fail_msg("%zu bytes", strlen(text));
	free(text);
	/* What is not whole is refused by name. */
	op = json_array_get(json_object_get(json_array_get(json_object_get(o, "modes"), 0), "ops"), 3);
	json_array_set_new(json_object_get(op, "time_s"), 0, json_real(-1));
	assert_int_equal(dt_op_times_from_json(o, &back, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "must be above 0"));
	json_array_clear(json_object_get(op, "time_s"));
	assert_int_equal(dt_op_times_from_json(o, &back, &err), -EINVAL);
	json_object_set_new(op, "op", json_string("fly"));
	assert_int_equal(dt_op_times_from_json(o, &back, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "'fly'"));
	json_array_remove(json_object_get(json_array_get(json_object_get(o, "modes"), 0), "ops"), 3);
	assert_int_equal(dt_op_times_from_json(o, &back, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "is missing"));
	json_decref(o);
	dt_op_times_release(&t);
}

/*
 * --qat: the six matrices of a layer and the tied embedding are rounded once a step. Times of earlier
 * versions lack it, and say so when asked.
 */
static void rounding_is_counted(void **state)
{
	struct dt_op_times t = filled(1, one_us), old;
	struct dt_cluster c;
	struct dt_config m;
	struct dt_run s = {.config = &m,
			   .microbatch = 2,
			   .seq = 64,
			   .accumulation = 1,
			   .compute = DT_F32,
			   .optim.kind = DT_OPTIM_ADAMW};
	struct dt_step_time plain, qat;
	struct dt_err err = {0};
	json_t *o = dt_op_times_to_json(&t), *list, *op;
	size_t i = 0;

	assert_int_equal(dt_config_find_preset("gpt2-tiny", &m), 0);
	dt_layout_parse("dp1", &s.layout, NULL);
	dt_cluster_device("cpu", &c, NULL);
	dt_cluster_arrange(&c, 1, 1, DT_TOPO_SINGLE, 0, 1, 0, NULL);
	c.cores = 1;
	c.ops = &t;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &plain, &err), 0);
	for (s.qat = 1; s.qat <= DT_FMT_N - DT_FMT_Q8_0; s.qat++) { /* every block format */
		assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &qat, &err), 0);
		near(qat.optimizer - plain.optimizer, 1e-6 * (6 * (double)m.layers + 1), 1e-9);
	}
	s.qat = 5; /* q4_k */
	list = json_object_get(json_array_get(json_object_get(o, "modes"), 0), "ops");
	while (i < json_array_size(list)) {
		op = json_array_get(list, i);
		if (!strncmp(json_string_value(json_object_get(op, "op")), DT_TIMED_ROUND,
			     strlen(DT_TIMED_ROUND)))
			json_array_remove(list, i);
		else
			i++;
	}
	assert_int_equal(dt_op_times_from_json(o, &old, &err), 0);
	c.ops = &old;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &qat, &err), -ENODATA);
	assert_non_null(strstr(err.msg, "'round-"));
	s.qat = 0;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &qat, &err), 0);
	near(qat.optimizer, plain.optimizer, 1e-3);
	json_decref(o);
	dt_op_times_release(&old);
	dt_op_times_release(&t);
}

/*
 * With every operation one microsecond, a step is as long as the trainer makes calls. GPT-2: forward has two
 * norms, four products, attention and the activation; backward for each product dx, dw and the bias' sum, and
 * one for each of the others. The ends: embedding and its gradient, the last norm and its gradient, and of a
 * chunk of rows logits, loss and two gradients. Then a look through each unit, and the norm and the update of
 * each parameter; vectors' gradients are cleared first.
 */
static void a_step_is_its_calls(void **state)
{
	struct dt_op_times t = filled(1, one_us);
	struct dt_cluster c;
	struct dt_config m;
	struct dt_run s = {.config = &m,
			   .microbatch = 2,
			   .seq = 64,
			   .compute = DT_F32,
			   .optim.kind = DT_OPTIM_ADAMW,
			   .accumulation = 3};
	struct dt_step_time r;
	double layer = 8 + 4 * 3 + 4, calls;
	int params = 2 + 2 * 16 + 2, vectors = 2 * 10 + 2; /* embeddings; q k v o up down; final norm */

	dt_cluster_device("cpu", &c, NULL);
	dt_cluster_arrange(&c, 1, 1, DT_TOPO_SINGLE, 0, 1, 0, NULL);
	c.cores = 1;
	c.device.step_s = 0;
	c.ops = &t;
	assert_int_equal(dt_config_find_preset("gpt2-tiny", &m), 0);
	dt_layout_parse("dp1", &s.layout, NULL);
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &r, NULL), 0);
	calls = 3 * (2 * layer + 2 + 2 + 4) + 4 + 2 * params + vectors;
	near(r.step, calls * 1e-6, 1e-9);
	/* All of forward but the last product once more. */
	s.recompute.mode = DT_RECOMPUTE_FULL;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &r, NULL), 0);
	near(r.step, (calls + 3 * 2 * 7) * 1e-6, 1e-9);
	/* Two norms and the activation. */
	s.recompute.mode = DT_RECOMPUTE_SELECTIVE;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &r, NULL), 0);
	near(r.step, (calls + 3 * 2 * 3) * 1e-6, 1e-9);
	/* 128 rows are two chunks. */
	s.recompute.mode = DT_RECOMPUTE_NONE;
	s.loss_chunk = 64;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &r, NULL), 0);
	near(r.step, (calls + 3 * 4) * 1e-6, 1e-9);
	/* Stages of a pipeline do the same together. */
	dt_layout_parse("pp2", &s.layout, NULL);
	s.loss_chunk = 0;
	c.level[0].latency_s = c.level[1].latency_s = 0;
	c.level[0].bandwidth = c.level[1].bandwidth = 1e18;
	s.pipeline = DT_PIPE_ZB_H1;
	assert_int_equal(dt_step_time(&c, &s, &dt_stack_dt, &r, NULL), 0);
	assert_true(r.makespan > 3 * (layer + 5) * 1e-6 && r.makespan < 3 * (2 * layer + 8) * 1e-6);
	dt_op_times_release(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(between_sizes),
		cmocka_unit_test(the_file),
		cmocka_unit_test(rounding_is_counted),
		cmocka_unit_test(a_step_is_its_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
