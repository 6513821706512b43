/*
 * struct dt_run: from options and back, going on from a saved one, and the combinations that dt_run_check
 * refuses.
 */
#include "plan/run_options.h"
#include "plan/steptime.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct dt_run_options o;

static const struct dt_opt own[] = {
	DT_RUN_OPT("layout"),
	DT_RUN_OPT("pipeline"),
	DT_RUN_OPT("seq", .def = "32"),
	DT_RUN_OPT("microbatch"),
	DT_RUN_OPT("global-batch"),
	DT_RUN_OPT("steps"),
	DT_RUN_OPT("optimizer"),
	DT_RUN_OPT("lr"),
	DT_RUN_OPT("min-lr"),
	DT_RUN_OPT("schedule"),
	DT_RUN_OPT("warmup"),
	DT_RUN_OPT("beta1"),
	DT_RUN_OPT("beta2"),
	DT_RUN_OPT("eps"),
	DT_RUN_OPT("weight-decay"),
	DT_RUN_OPT("clip"),
	DT_RUN_OPT("precision"),
	DT_RUN_OPT("fp8"),
	DT_RUN_OPT("router-bias-rate"),
	DT_RUN_OPT("master"),
	DT_RUN_OPT("recompute"),
	DT_RUN_OPT("cp-comm"),
	DT_RUN_OPT("loss-chunk"),
	DT_RUN_OPT("seed"),
	DT_RUN_OPT("loss-scale"),
	DT_RUN_OPT("reproducible"),
	DT_RUN_OPT("grad-comm"),
	DT_RUN_OPT("bucket-size"),
	DT_RUN_OPT("label-smoothing"),
	DT_RUN_OPT("mixup"),
	DT_RUN_OPT("cutmix"),
	DT_RUN_OPT("cutout"),
	DT_RUN_OPT("crop"),
	DT_RUN_OPT("flip"),
	DT_RUN_OPT("normalize"),
	DT_RUN_OPT("image-size"),
	{"own", 0, DT_OPT_FLAG, &(bool){false}, NULL, "of the program alone"},
	DT_OPT_END,
};

static struct dt_opt opts[DT_RUN_OPTS_MAX];

/* Parses words, separated by blanks, as a command line of a program with that table. */
static void parse(const char *words)
{
	static const char *const examples[] = {"x", "y", NULL};
	static char text[2048];
	const struct dt_program p = {.name = "x", .summary = "x", .examples = examples, .opts = opts};
	char *argv[128] = {(char *)"x"}, *save = NULL;
	int argc = 1, status = 0;

	memset(&o, 0, sizeof(o));
	dt_run_options_table(&o, own, opts);
	snprintf(text, sizeof(text), "%s", words);
	for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	if (dt_opt_main(&p, argc, argv, stdout, stderr, &status) != 0)
		fail_msg("'%s' is not taken", words);
}

static struct dt_run run_of(const char *words)
{
	struct dt_err err = {0};

	parse(words);
	if (dt_run_options_finish(&o, &err) < 0)
		fail_msg("'%s': %s", words, err.msg);
	return o.run;
}

static void options_make_a_run(void **state)
{
	struct dt_run r = run_of("--layout dp2.tp2 --precision fp16 --no-master --lr 0.5 --recompute every:3 "
				 "--grad-comm bf16 --bucket-size 1MiB --optimizer sgd --beta2 0.999");

	assert_true(r.layout.dp == 2 && r.layout.tp == 2 && r.seq == 32 && r.microbatch == 4);
	assert_true(r.compute == DT_F16 && r.no_master && r.loss_scale == 0 && r.loss_scale_start == 0x1p16);
	assert_true(r.lr.lr == 0.5 && r.lr.min_lr == 0.05 && r.lr.schedule == DT_LR_COSINE);
	assert_true(r.recompute.mode == DT_RECOMPUTE_FULL && r.recompute.every == 3);
	assert_true(r.grad_comm == DT_BF16 && r.bucket_bytes == 1048576 && r.optim.kind == DT_OPTIM_SGD);
	assert_true(r.optim.beta2 == 0.999f && r.optim.eps == 1e-8f && r.clip == 1);
	assert_true(dt_run_options_given(&o, "lr") && !dt_run_options_given(&o, "min-lr"));
	/* No layout is left to the ranks there are; an interleaved pipeline sets the layout's chunks. */
	assert_int_equal(run_of("").layout.dp, 0);
	assert_int_equal(run_of("--layout pp2 --pipeline interleaved:3").layout.chunks, 3);
	assert_int_equal(run_of("--layout dp2 --pipeline interleaved:3").layout.chunks, 1);
}

static void arguments_make_the_run_again(void **state)
{
	static const char *const words[] = {
		"--layout dp2",
		"--layout dp2.tp2.pp2.v2.s1.z1 --microbatch 3 --global-batch 12 --seq 99",
		"--layout pp2 --pipeline zb-h1 --precision fp16 --recompute selective",
		"--layout dp4.z2 --no-master --fp8 --grad-comm bf16 --loss-chunk 7 --optimizer adagrad",
		"--layout tp2 --reproducible --precision fp32 --recompute every:2",
		"--layout dp2 --microbatch 2 --global-batch 4..64:1000",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct dt_run a = run_of(words[i]), b;
		char text[512], again[512];

		dt_run_arguments(&a, false, text, sizeof(text));
		b = run_of(text);
		dt_run_arguments(&b, false, again, sizeof(again));
		assert_string_equal(text, again);
		assert_memory_equal(&a.layout, &b.layout, sizeof(a.layout));
		assert_true(a.pipeline == b.pipeline && a.seq == b.seq && a.microbatch == b.microbatch);
		assert_true(a.global_batch == b.global_batch && a.compute == b.compute && a.fp8 == b.fp8);
		assert_true(a.no_master == b.no_master && a.reproducible == b.reproducible);
		assert_true(a.grad_comm == b.grad_comm && a.loss_chunk == b.loss_chunk &&
			    a.optim.kind == b.optim.kind && a.recompute.mode == b.recompute.mode &&
			    a.recompute.every == b.recompute.every);
	}
}

/* Settings of a run make it again, with options that a manifest leaves out. */
static void settings_make_the_run_again(void **state)
{
	static const char *const words[] = {
		"--layout dp2.tp2.pp2.v2.s1.z1 --microbatch 3 --global-batch 12 --seq 99",
		"--layout pp2 --pipeline zb-h1 --precision fp16 --recompute selective",
		"--layout dp4.z2 --no-master --grad-comm bf16 --loss-chunk 7 --optimizer adagrad --lr 0.3",
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct dt_run a = run_of(words[i]), b, c;
		json_t *settings = dt_run_settings(&a), *all, *again;
		struct dt_run_options room, room_again;
		char text[512], text_again[512];

		assert_int_equal(dt_run_from_settings(&room, settings, &b, NULL), 0);
		all = dt_run_settings(&b); /* of rows that are not in this test's table too */
		assert_int_equal(dt_run_from_settings(&room_again, all, &c, NULL), 0);
		again = dt_run_settings(&c);
		assert_true(json_equal(all, again));
		dt_run_arguments(&a, false, text, sizeof(text));
		dt_run_arguments(&b, false, text_again, sizeof(text_again));
		assert_string_equal(text, text_again);
		json_decref(settings);
		json_decref(all);
		json_decref(again);
	}
}

/* As people write them: whole below 1e15, and with the fewest digits that read back as the same. */
static void numbers_of_settings(void **state)
{
	static const char *const clip[] = {"10",    "100", "1000",   "1234567",	 "2.5",
					   "12.25", "0.1", "0.0001", "123456.5", "999999.9"};

	for (size_t i = 0; i < sizeof(clip) / sizeof(clip[0]); i++) {
		char words[64];
		json_t *settings;
		struct dt_run r;
		const char *is;

		snprintf(words, sizeof(words), "--layout dp1 --weight-decay 10 --clip %s", clip[i]);
		r = run_of(words);
		settings = dt_run_settings(&r);
		is = json_string_value(json_object_get(settings, "clip"));
		if (!is || strcmp(is, clip[i]))
			fail_msg("--clip %s is written as %s", clip[i], is ? is : "nothing");
		is = json_string_value(json_object_get(settings, "weight-decay")); /* a float */
		if (!is || strcmp(is, "10"))
			fail_msg("--weight-decay 10 is written as %s", is ? is : "nothing");
		json_decref(settings);
	}
}

static void settings_from_outside(void **state)
{
	static const char *const wrong[] = {"{\"layout\": \"xp2\"}", "{\"microbatch\": \"-1\"}",
					    "{\"sync\": \"sometimes\"}"};
	struct dt_run_options room;
	struct dt_err err;
	struct dt_run r;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		json_t *settings = json_loads(wrong[i], 0, NULL);

		assert_true(dt_run_from_settings(&room, settings, &r, &err) < 0);
		json_decref(settings);
	}
	assert_int_equal(dt_run_from_settings(&room, NULL, &r, &err), 0); /* defaults alone */
}

static char told[1024];

static void tell(void *arg, const char *text)
{
	size_t n = strlen(told);

	snprintf(told + n, sizeof(told) - n, "%s\n", text);
}

/* Goes on from a run made of one line with another line; the message of a refusal, or NULL. */
static const char *go_on(const char *from, const char *with, const struct dt_strs *accept)
{
	static struct dt_err err;
	struct dt_run r = run_of(from);
	json_t *saved;
	int rc;

	assert_int_equal(dt_run_settle(&r, &err), 0);
	saved = dt_run_to_json(&r);
	told[0] = '\0';
	memset(&err, 0, sizeof(err));
	parse(with);
	o.run.save.accept = accept;
	rc = dt_run_options_resume(&o, saved, tell, NULL, &err);
	if (rc == 0) {
		char layout[] = "dp1";

		o.layout = layout; /* what o.recompute and others point to requires saved */
		assert_int_equal(dt_run_options_finish(&o, &err), 0);
	}
	json_decref(saved);
	return rc < 0 ? err.msg : NULL;
}

/* Checkpoints from before have numbers in another form. */
static void a_number_is_the_same_in_any_form(void **state)
{
	struct dt_run r = run_of("--layout dp1 --clip 10");
	json_t *saved = dt_run_settings(&r);
	struct dt_err err = {0};

	json_object_set_new(saved, "clip", json_string("1e+01"));
	parse("--layout dp1 --clip 10");
	if (dt_run_options_resume(&o, saved, tell, NULL, &err) < 0)
		fail_msg("%s", err.msg);
	json_object_set_new(saved, "clip", json_string("1e+02"));
	parse("--layout dp1 --clip 10");
	assert_int_equal(dt_run_options_resume(&o, saved, tell, NULL, &err), -EINVAL);
	json_decref(saved);
}

static void a_run_goes_on(void **state)
{
	const char *from =
		"--layout dp2 --microbatch 2 --lr 0.01 --optimizer rmsprop --beta2 0.99 --clip 0.5 "
		"--precision fp32 --no-master --loss-scale 8 --warmup 3";
	struct dt_strs accept = {.v = {"lr", "clip"}, .n = 2};

	/* Nothing said: all as it was, the global batch too. */
	assert_null(go_on(from, "", NULL));
	assert_string_equal(told, "");
	assert_true(o.run.global_batch == 4 && o.run.microbatch == 2 && o.run.lr.lr == 0.01);
	assert_true(o.run.optim.kind == DT_OPTIM_RMSPROP && o.run.optim.beta2 == 0.99f && o.run.clip == 0.5);
	assert_true(o.run.compute == DT_F32 && o.run.loss_scale == 8 && o.run.lr.warmup == 3);
	/* The same said again, and what may differ. */
	assert_null(go_on(from, "--lr 1e-2 --optimizer rmsprop --microbatch 4 --recompute full", NULL));
	assert_string_equal(told, "");
	assert_null(go_on(from, "--steps 200 --grad-comm bf16", NULL));
	assert_string_equal(told, "--steps is 200, in the checkpoint it was 100\n"
				  "--grad-comm is bf16, in the checkpoint it was fp32\n");
	/* Another run, by each constant. */
	static const char *const other[] = {"--lr 0.02",	  "--optimizer momentum",
					    "--beta2 0.9",	  "--eps 1e-7",
					    "--weight-decay 0.2", "--clip 2",
					    "--precision bf16",	  "--seed 2",
					    "--global-batch 8",	  "--seq 64",
					    "--schedule linear",  "--warmup 4",
					    "--min-lr 0.002",	  "--fp8"};

	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
		const char *why = go_on(from, other[i], NULL);
		char name[32];

		snprintf(name, sizeof(name), "%.*s is", (int)strcspn(other[i], " "), other[i]);
		if (!why || !strstr(why, name))
			fail_msg("%s: %s", other[i], why ? why : "taken");
	}
	/* A constant that the rule does not read is no other run. */
	assert_null(go_on("--layout dp1 --optimizer sgd", "--beta1 0.5 --beta2 0.5 --eps 1", NULL));
	assert_null(go_on("--layout dp1 --optimizer momentum", "--beta2 0.5", NULL));
	assert_non_null(go_on("--layout dp1 --optimizer momentum", "--beta1 0.5", NULL));
	/* Both are named; what is accepted is told. */
	assert_non_null(
		strstr(go_on(from, "--lr 1 --beta2 0.5", NULL), "; --beta2 is 0.5, in the checkpoint"));
	assert_null(go_on(from, "--lr 1 --clip 2", &accept));
	assert_non_null(strstr(told, "--lr is 1, in the checkpoint it was 0.01"));
	assert_non_null(strstr(go_on(from, "--lr 1 --beta2 0.5", &accept), "--beta2 is 0.5"));
	accept.v[0] = "layout";
	assert_non_null(strstr(go_on(from, "", &accept), "no such option"));
}

static void settling(void **state)
{
	struct dt_run r = {.microbatch = 3, .layout = {.dp = 2}};

	assert_int_equal(dt_run_settle(&r, NULL), 0);
	assert_true(r.global_batch == 6 && r.accumulation == 1);
	r = (struct dt_run){.microbatch = 3, .layout = {.dp = 2}, .accumulation = 4};
	assert_int_equal(dt_run_settle(&r, NULL), 0);
	assert_true(r.global_batch == 24 && r.accumulation == 4);
	r.reproducible = true;
	for (int twice = 0; twice < 2; twice++) {
		assert_int_equal(dt_run_settle(&r, NULL), 0);
		assert_true(r.global_batch == 24 && r.microbatch == 1 && r.accumulation == 12);
	}
	r = (struct dt_run){.microbatch = 3, .layout = {.dp = 2}, .global_batch = 8};
	assert_int_equal(dt_run_settle(&r, NULL), -EINVAL);
	r = (struct dt_run){.microbatch = 1 << 24, .layout = {.dp = 65536}, .accumulation = 1 << 24};
	assert_int_equal(dt_run_settle(&r, NULL), -ERANGE);
}

/* The batch by the data trained on: against steps counted one by one. */
static void a_batch_grows(void **state)
{
	static const char *const bad[] = {"2..8",    "2:64",	    "8..2:64",	"3..8:64", "2..2:64",
					  "0..4:64", "2..8:0",	    "..8:64",	"2..:64",  "2..8:x",
					  "x..8:64", "2..8..16:64", "2..8:64:1"};
	struct dt_run r = run_of("--layout dp2 --microbatch 1 --global-batch 2..8:1000 --seq 16");
	int64_t cursor = 0, last = 0, sizes = 0, batch = -1;
	struct dt_ramp ramp = {.from = -1};

	r.layout.dp = 2;
	r.scale_lr = "linear:4";
	assert_int_equal(dt_run_settle(&r, NULL), 0);
	assert_true(r.global_batch == 8 && r.accumulation == 4);
	while (cursor * 16 < 1200) {
		const double done = (double)cursor * 16 / 1000;

		dt_run_batch_at(&r, cursor);
		assert_true(r.global_batch >= last && r.global_batch % 2 == 0 && r.global_batch <= 8);
		assert_true(r.accumulation == r.global_batch / 2);
		assert_true(r.lr.scale == (double)r.global_batch / 4);
		assert_int_equal(r.global_batch, done < 1.0 / 3 ? 2 : done < 2.0 / 3 ? 4 : done < 1 ? 6 : 8);
		sizes += r.global_batch != last;
		last = r.global_batch;
		cursor += r.global_batch;
	}
	assert_int_equal(sizes, 4);
	dt_run_batch_at(&r, INT64_C(1) << 40);
	assert_int_equal(r.global_batch, 8);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (dt_ramp_parse(bad[i], &ramp, &batch, NULL) != -EINVAL || ramp.from != -1 || batch != -1)
			fail_msg("'%s' is taken", bad[i]);
	assert_int_equal(dt_ramp_parse("1..1048576:1e15", &ramp, &batch, NULL), 0);
	assert_int_equal(dt_ramp_at(&ramp, 1000000000000000 - 1), (1 << 20) - 1);
	assert_int_equal(dt_ramp_at(&ramp, 1000000000000000), 1 << 20);
	assert_int_equal(dt_ramp_parse("8k", &ramp, &batch, NULL), 0);
	assert_true(ramp.tokens == 0 && batch == 8000);
	assert_int_equal(dt_ramp_parse("0", &ramp, &batch, NULL), -ERANGE);
}

static void combinations(void **state)
{
	static const struct {
		const char *words;
		int rc;
		const char *text;
	} cases[] = {
		{"--layout dp2.tp2.pp2.z2.s1", 0, ""},
		{"--layout dp2.pp2.z3", -ENOTSUP, "z3 cannot be combined with a pipeline"},
		{"--layout cp2", 0, ""},
		{"--layout cp2.ep2", -EINVAL, "no experts"},
		{"--layout cp2 --seq 30", -EINVAL, "30 tokens are not a multiple"},
		{"--layout cp4 --cp-comm ulysses --seq 32", 0, ""},
		{"--layout cp8 --cp-comm ulysses --seq 32", -EINVAL, "does not divide the 4 heads"},
		{"--layout cp8 --cp-comm ring --seq 32", 0, ""},
		{"--layout tp3", -EINVAL, "does not divide the 4 heads"},
		{"--layout tp2.s1 --seq 33 --microbatch 1", -EINVAL, "does not divide the 33 tokens"},
		{"--precision fp16", 0, ""},
		{"--precision fp16 --no-master", -EINVAL, "fp16 needs master weights"},
		{"--precision bf16 --no-master --optimizer sgd --layout dp2.z1", 0, ""},
		{"--reproducible --layout dp2.z1", -EINVAL, "cannot be combined with ZeRO"},
		{"--reproducible --grad-comm bf16", -EINVAL, "cannot be combined with --grad-comm bf16"},
		{"--fp8", 0, ""},
		{"--fp8 --seq 17 --microbatch 1", -EINVAL, "sizes that are multiples of 16"},
		{"--layout pp2 --pipeline zb-h1 --recompute full", -EINVAL, "cannot be combined with full"},
		{"--layout dp2.pp2.z2 --pipeline zb-h1", -EINVAL, "cannot be combined with z2"},
		{"--layout dp2.z2 --pipeline zb-h1", 0, ""},
		{"--layout pp2.v2 --pipeline gpipe", -EINVAL, "only interleaved"},
		{"--layout pp2.v2 --microbatch 1 --global-batch 3", -EINVAL, "a multiple of pp"},
		{"--layout pp2.v2 --microbatch 1 --global-batch 4", 0, ""},
		{"--layout pp2.v2 --microbatch 1 --global-batch 3..6:64", -EINVAL, "a multiple of pp"},
		{"--layout dp2 --microbatch 1 --global-batch 2..8:64", 0, ""},
		{"--layout dp2 --microbatch 2 --global-batch 2..8:64", -EINVAL, "initial global batch 2"},
		{"--seq 100000", -EINVAL, "positions"},
		{"--label-smoothing 0.1", -EINVAL, "--label-smoothing is for classifiers"},
		{"--mixup 0.5", -EINVAL, "--mixup is for"},
		{"--cutmix 1", -EINVAL, "--cutmix is for"},
		{"--cutout 4", -EINVAL, "--cutout is for"},
		{"--crop pad:4", -EINVAL, "--crop is for"},
		{"--flip", -EINVAL, "--flip is for"},
		{"--normalize mnist", -EINVAL, "--normalize is for"},
		{"--image-size 32", -EINVAL, "--image-size is for"},
		{"--crop none --normalize auto --mixup 0", 0, ""},
	};
	struct dt_config c;

	assert_int_equal(dt_config_find_preset("gpt2-tiny", &c), 0);
	c.layers = 4;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_err err = {0};
		struct dt_run r = run_of(cases[i].words);
		int rc;

		r.config = &c;
		r.layout.dp = r.layout.dp ? r.layout.dp : 1;
		r.layout.tp = r.layout.tp ? r.layout.tp : 1;
		r.layout.pp = r.layout.pp ? r.layout.pp : 1;
		r.layout.cp = r.layout.cp ? r.layout.cp : 1;
		r.layout.ep = r.layout.ep ? r.layout.ep : 1;
		rc = dt_run_settle(&r, &err);
		if (rc == 0)
			rc = dt_run_check(&r, &err);
		if (rc != cases[i].rc || !strstr(err.msg, cases[i].text))
			fail_msg("'%s': %d %s", cases[i].words, rc, err.msg);
	}
}

/* A table from a file is timed as the pipeline that made it is. */
static void a_schedule_from_a_file_is_timed(void **state)
{
	struct dt_config c;
	struct dt_cluster cl;
	struct dt_step_time plain, split, file;
	struct dt_schedule s;
	struct dt_run r = run_of("--layout pp4 --microbatch 1 --global-batch 16 --pipeline zb-h1 --seq 512");

	assert_int_equal(dt_config_find_preset("llama-2-7b", &c), 0);
	assert_int_equal(dt_cluster_device("H100", &cl, NULL), 0);
	r.config = &c;
	assert_int_equal(dt_run_settle(&r, NULL), 0);
	assert_int_equal(dt_run_schedule(&r, &s, NULL), 0);
	assert_int_equal(dt_step_time(&cl, &r, &dt_stack_dt, &split, NULL), 0);
	r.pipeline = DT_PIPE_1F1B;
	assert_int_equal(dt_step_time(&cl, &r, &dt_stack_dt, &plain, NULL), 0);
	r.schedule = &s;
	assert_int_equal(dt_step_time(&cl, &r, &dt_stack_dt, &file, NULL), 0);
	assert_true(split.makespan < plain.makespan);
	assert_true(file.makespan == split.makespan && file.step == split.step);
	dt_schedule_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_make_a_run),
		cmocka_unit_test(arguments_make_the_run_again),
		cmocka_unit_test(settings_make_the_run_again),
		cmocka_unit_test(numbers_of_settings),
		cmocka_unit_test(settings_from_outside),
		cmocka_unit_test(a_number_is_the_same_in_any_form),
		cmocka_unit_test(a_run_goes_on),
		cmocka_unit_test(settling),
		cmocka_unit_test(combinations),
		cmocka_unit_test(a_schedule_from_a_file_is_timed),
		cmocka_unit_test(a_batch_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
