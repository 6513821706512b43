/* Actors and an empty batch, as a rank has where there are more ranks than prompts. */
#include "data/tokenizer.h"
#include "model/params.h"
#include "rl/actors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct dt_answerer_opts opts(const struct dt_tokenizer *tok)
{
	struct dt_answerer_opts o = {.compute = DT_F32,
				     .seq = 32,
				     .sample = {.group = 2, .max_tokens = 4, .temperature = 1},
				     .device = DT_DEV_CPU,
				     .threads = 1,
				     .reward_workers = 1};

	assert_int_equal(dt_config_load("llama-tiny", &o.config, NULL), 0);
	assert_int_equal(dt_rl_task_parse("count:3", &o.task, NULL), 0);
	o.tokenizer = dt_tokenizer_text(tok, &o.tokenizer_n);
	return o;
}

/* Gives actors weights of zeros. */
static void give_zeros(struct dt_actors *a, const struct dt_config *c)
{
	struct dt_params table;
	const void **w;
	void *zeros;
	int64_t most = 0;

	assert_int_equal(dt_model_params(c, &table, NULL), 0);
	for (int i = 0; i < table.n; i++)
		most = dt_param_numel(&table.p[i]) > most ? dt_param_numel(&table.p[i]) : most;
	zeros = calloc((size_t)most, sizeof(float));
	w = malloc((size_t)table.n * sizeof(*w));
	for (int i = 0; i < table.n; i++)
		w[i] = zeros;
	assert_int_equal(dt_actors_give(a, w, 0, NULL), 0);
	free(w);
	free(zeros);
	dt_params_release(&table);
}

/* Waiting for an empty batch returns at once: from then on its memory may be used for something else. */
static void an_empty_batch_is_not_kept(void **state)
{
	struct dt_group group[2][1] = {{{.index = 0}}, {{.index = 1}}};
	struct dt_batch good[2] = {{.group = group[0], .n = 1}, {.group = group[1], .n = 1}},
			empty = {.n = 0};
	const struct dt_actors_opts of = {.n = 1, .patience = 60};
	struct dt_answerer_opts o;
	struct dt_tokenizer *tok;
	struct dt_actors *a;
	struct dt_err err;

	assert_int_equal(dt_tokenizer_open("byte", &tok, &err), 0);
	o = opts(tok);
	if (dt_actors_open(&a, &o, &of, &err) < 0)
		fail_msg("%s", err.msg);
	give_zeros(a, &o.config);
	dt_actors_post(a, &good[0]); /* the actor is busy: what follows stays in the list */
	dt_actors_post(a, &empty);
	assert_int_equal(dt_actors_wait(a, &empty, &err), 0);
	memset(&empty, 0x55, sizeof(empty));
	for (int i = 0; i < 2; i++) {
		if (i)
			dt_actors_post(a, &good[i]);
		if (dt_actors_wait(a, &good[i], &err) < 0)
			fail_msg("%s", err.msg);
		assert_int_equal(group[i][0].n, 2);
	}
	dt_actors_close(a);
	for (int i = 0; i < 2; i++)
		dt_group_release(&group[i][0]);
	dt_tokenizer_close(tok);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(an_empty_batch_is_not_kept)};

	return dt_actor_is() ? dt_actor_main() : cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
