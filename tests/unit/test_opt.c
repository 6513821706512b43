/* base/opt.h: every type, commands, errors, --help, --describe-options. */
#include "base/opt.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct values {
	bool flag, steps_given;
	int64_t steps, any;
	double lr, free;
	const char *name;
	struct dt_strs many;
	uint64_t mem, tokens;
	int mode;
	double share, percent, rate;
	uint64_t card;
} v;

static const struct dt_opt opts[] = {
	{.name = "flag",
	 .short_name = 'f',
	 .type = DT_OPT_FLAG,
	 .dest = &v.flag,
	 .help = "a flag",
	 .negatable = true},
	DT_OPT_HEADING("Numbers"),
	{.name = "steps",
	 .short_name = 'n',
	 .type = DT_OPT_INT,
	 .dest = &v.steps,
	 .arg = "N",
	 .help = "how many",
	 .min = 1,
	 .max = 100,
	 .given = &v.steps_given},
	{.name = "any",
	 .type = DT_OPT_INT,
	 .dest = &v.any,
	 .arg = "N",
	 .help = "any",
	 .min = -1,
	 .max = 0x1p63},
	{.name = "lr", .type = DT_OPT_REAL, .dest = &v.lr, .arg = "X", .help = "rate", .min = 0, .max = 1},
	{.name = "free", .type = DT_OPT_REAL, .dest = &v.free, .arg = "X", .help = "unbounded"},
	{.name = "name", .type = DT_OPT_STR, .dest = &v.name, .arg = "FILE", .help = "a name"},
	{.name = "many",
	 .type = DT_OPT_STRS,
	 .dest = &v.many,
	 .arg = "WORD",
	 .help = "several",
	 .commands = "ls,rm"},
	{.name = "mem", .type = DT_OPT_SIZE, .dest = &v.mem, .arg = "SIZE", .help = "memory"},
	{.name = "tokens", .type = DT_OPT_COUNT, .dest = &v.tokens, .arg = "N", .help = "tokens"},
	{.name = "mode",
	 .type = DT_OPT_CHOICE,
	 .dest = &v.mode,
	 .arg = "none|selective|full",
	 .help = "a sentence that is long enough to be broken over more than one line when it is printed "
		 "beside "
		 "its option in the help"},
	{.name = "share", .type = DT_OPT_SHARE, .dest = &v.share, .arg = "F", .help = "a part", .def = "10%"},
	{.name = "percent", .type = DT_OPT_PERCENT, .dest = &v.percent, .arg = "PCT", .help = "a part"},
	{.name = "rate",
	 .type = DT_OPT_RATE,
	 .dest = &v.rate,
	 .arg = "GB/s",
	 .help = "speed",
	 .def = "400Gb/s"},
	{.name = "card",
	 .type = DT_OPT_SIZE,
	 .dest = &v.card,
	 .arg = "SIZE",
	 .help = "memory of a card",
	 .min = 1 << 20,
	 .def_text = "what is free",
	 .with = "mem,not-here",
	 .without = "no-flag,mode"},
	DT_OPT_END,
};
static const char *const examples[] = {"dt-x a", "dt-x --flag b", NULL};
static const struct dt_program plain = {
	.name = "dt-x", .summary = "does x", .operands = "MODEL", .examples = examples, .opts = opts};
static const struct dt_command commands[] = {{"ls", "DIR", "lists"}, {"cp", "SRC DST", "copies"}, {0}};
static const struct dt_program with_commands = {
	.name = "dt-y", .summary = "does y", .examples = examples, .opts = opts, .commands = commands};

static char *out, *errs;
static char *args[32];
static int status;

/* Parses a line of words; the result of dt_opt_main, with out, errs, args and status filled. */
static int run(const struct dt_program *p, const char *line)
{
	static char copy[1024];
	size_t nout, nerr;
	FILE *fo, *fe;
	int argc = 0, rc;

	free(out);
	free(errs);
	memset(&v, 0, sizeof(v));
	snprintf(copy, sizeof(copy), "%s %s", p->name, line);
	for (char *s = strtok(copy, " "); s; s = strtok(NULL, " "))
		args[argc++] = s;
	args[argc] = NULL;
	fo = open_memstream(&out, &nout);
	fe = open_memstream(&errs, &nerr);
	status = -1;
	rc = dt_opt_main(p, argc, args, fo, fe, &status);
	fclose(fo);
	fclose(fe);
	return rc;
}

static void every_type(void **state)
{
	int n = run(&plain,
		    "one -f --steps 5 --any -1 --lr=1e-3 --free -2.5 two --name file --many a --many b "
		    "--mem 80GiB --tokens 7e9 --mode full -- --three");

	assert_int_equal(n, 3);
	assert_string_equal(args[1], "one");
	assert_string_equal(args[2], "two");
	assert_string_equal(args[3], "--three");
	assert_null(args[4]);
	assert_true(v.flag && v.steps_given);
	assert_int_equal(v.steps, 5);
	assert_int_equal(v.any, -1);
	assert_true(v.lr == 1e-3 && v.free == -2.5);
	assert_string_equal(v.name, "file");
	assert_int_equal(v.many.n, 2);
	assert_string_equal(v.many.v[1], "b");
	assert_true(v.mem == 80ull << 30 && v.tokens == 7000000000);
	assert_int_equal(v.mode, 2);
	assert_string_equal(errs, "");
}

static void negation_and_repetition(void **state)
{
	assert_int_equal(run(&plain, "--flag --no-flag"), 0);
	assert_false(v.flag);
	assert_int_equal(run(&plain, "--no-flag --flag"), 0);
	assert_true(v.flag);
	assert_int_equal(run(&plain, "-n 3 -n4"), 0);
	assert_int_equal(v.steps, 4);
	assert_int_equal(run(&plain, ""), 0);
	assert_false(v.steps_given);
	assert_int_equal(run(&plain, "--any 9223372036854775807"), 0);
	assert_true(v.any == INT64_MAX);
}

/* .with and .without: a flag that is off is not there, names the program lacks count for nothing. */
static void pairs(void **state)
{
	assert_int_equal(run(&plain, "--card 1GiB --mem 1GiB"), 0);
	assert_int_equal(run(&plain, "--card 1GiB --mem 1GiB --flag"), 0);
	assert_int_equal(run(&plain, "--no-flag --mode full"), 0);
	assert_int_equal(run(&plain, "--card 1GiB"), -1);
	assert_int_equal(status, 2);
	assert_non_null(strstr(errs, "dt-x: --card requires --mem\n"));
	assert_int_equal(run(&plain, "--mem 1GiB --mode full --card 1GiB"), -1);
	assert_non_null(strstr(errs, "dt-x: --card cannot be combined with --mode\n"));
	assert_int_equal(run(&plain, "--mem 1GiB --no-flag --card 1GiB"), -1);
	assert_non_null(strstr(errs, "dt-x: --card cannot be combined with --no-flag\n"));
	assert_int_equal(run(&plain, "--mem 1GiB --no-flag --flag --card 1GiB"), 0);
}

static void errors(void **state)
{
	static const char *const bad[][2] = {
		{"--steps 0", "option '--steps': '0' is out of range (1 to 100)"},
		{"--steps 101", "option '--steps': '101' is out of range (1 to 100)"},
		{"--steps x", "option '--steps': 'x' is not a whole number"},
		{"-n", "option '-n' needs an argument"},
		{"--steps", "option '--steps' needs an argument"},
		{"--lr 2", "option '--lr': '2' is out of range (0 to 1)"},
		{"--lr nan", "option '--lr': 'nan' is not a number"},
		{"--mode some", "option '--mode': 'some' is not one of none|selective|full"},
		{"--mode sel",
		 "option '--mode': 'sel' is not one of none|selective|full; did you mean 'selective'?"},
		{"--mode ful",
		 "option '--mode': 'ful' is not one of none|selective|full; did you mean 'full'?"},
		{"--nosuch", "unknown option '--nosuch'"},
		{"--m 3", "unknown option '--m'"},
		{"--step 3", "unknown option '--step'; did you mean '--steps'?"}, /* no abbreviations */
		{"--step=3", "unknown option '--step'; did you mean '--steps'?"},
		{"--setps 3", "unknown option '--setps'; did you mean '--steps'?"},
		{"--step --nosuch", "unknown option '--step'; did you mean '--steps'?"},
		{"--ver", "unknown option '--ver'; did you mean '--version'?"},
		{"--no-fla", "unknown option '--no-fla'; did you mean '--no-flag'?"},
		{"-q", "unknown option '-q'"},
		{"-fq", "unknown option '-q'"},
		{"--flag=yes", "unexpected argument for option '--flag=yes'"},
		{"--help=yes", "unexpected argument for option '--help=yes'"},
		{"--no-flag=yes", "unexpected argument for option '--no-flag=yes'"},
		{"--no-steps", "unknown option '--no-steps'; did you mean '--steps'?"},
		{"--share 110%", "option '--share': '110%' is out of range (0 to 1)"},
		{"--name --step --steps",
		 "option '--steps' needs an argument"}, /* --step is an argument here */
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char want[256];

		snprintf(want, sizeof(want), "dt-x: %s\nTry 'dt-x --help' for more information.\n",
			 bad[i][1]);
		assert_int_equal(run(&plain, bad[i][0]), -1);
		assert_string_equal(errs, want);
		assert_string_equal(out, "");
		assert_int_equal(status, DT_EXIT_USAGE);
	}
	assert_int_equal(run(&plain, "--mem 3GiBs"), -1);
	assert_non_null(strstr(errs, "80GiB")); /* the hint is shown */
	assert_int_equal(run(&plain, "--card 24"), -1);
	assert_non_null(strstr(errs,
			       "option '--card': '24' is less than 1.00 MiB; a size without a unit is in "
			       "bytes; write 24GiB or 24GB"));
}

/* The first process of a command line speaks for all. */
static void one_of_many_ranks(void **state)
{
	setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
	setenv("OMPI_COMM_WORLD_RANK", "1", 1);
	assert_int_equal(run(&plain, "--nosuch"), -1);
	assert_int_equal(status, DT_EXIT_USAGE);
	assert_string_equal(errs, "");
	assert_int_equal(run(&plain, "--help"), -1);
	assert_int_equal(status, DT_EXIT_OK);
	assert_string_equal(out, "");
	setenv("OMPI_APP_CTX_NUM_PROCS", "1 2", 1); /* mpirun -np 1 A : -np 2 B */
	assert_int_equal(run(&plain, "--nosuch"), -1);
	assert_string_not_equal(errs, "");
	setenv("OMPI_COMM_WORLD_RANK", "2", 1);
	assert_int_equal(run(&plain, "--nosuch"), -1);
	assert_string_equal(errs, "");
	setenv("OMPI_COMM_WORLD_RANK", "0", 1);
	assert_int_equal(run(&plain, "--nosuch"), -1);
	assert_string_not_equal(errs, "");
	unsetenv("OMPI_APP_CTX_NUM_PROCS");
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void defaults(void **state)
{
	assert_int_equal(run(&plain, ""), 0);
	assert_float_equal(v.share, 0.1, 1e-15);
	assert_float_equal(v.rate, 50, 1e-12);
	assert_float_equal(v.percent, 0, 0);
	assert_true(v.card == 0); /* a default in words stores nothing */
	assert_int_equal(
		run(&plain, "--share 0.5 --rate 10GB/s --percent 10% --card 24gib --mem 1GiB --steps 1e2"),
		0);
	assert_float_equal(v.share, 0.5, 0);
	assert_float_equal(v.rate, 10, 0);
	assert_float_equal(v.percent, 10, 0);
	assert_true(v.card == 24ull << 30);
	assert_int_equal(v.steps, 100);
}

static void too_many_repetitions(void **state)
{
	char line[1024] = "";

	for (int i = 0; i <= DT_STRS_MAX; i++)
		strcat(line, "--many=x ");
	assert_int_equal(run(&plain, "--many=x"), 0);
	/* run() holds 32 words: drive the parser directly */
	char *argv[DT_STRS_MAX + 3] = {(char[]){"dt-x"}};
	int argc = 1;

	for (char *s = strtok(line, " "); s; s = strtok(NULL, " "))
		argv[argc++] = s;
	memset(&v, 0, sizeof(v));
	FILE *null = fopen("/dev/null", "w");

	assert_int_equal(dt_opt_main(&plain, argc, argv, null, null, &status), -1);
	assert_int_equal(status, DT_EXIT_USAGE);
	assert_int_equal(v.many.n, DT_STRS_MAX);
	fclose(null);
}

static void command_words(void **state)
{
	assert_int_equal(run(&with_commands, "--many x ls dir"), 2);
	assert_string_equal(args[1], "ls");
	assert_string_equal(args[2], "dir");
	assert_int_equal(run(&with_commands, "cp --many x a b"), -1);
	assert_memory_equal(errs, "dt-y: option '--many' cannot be combined with 'cp'\n", 44);
	assert_int_equal(run(&with_commands, ""), -1);
	assert_memory_equal(errs, "dt-y: a command is missing\n", 27);
	assert_int_equal(run(&with_commands, "mv a"), -1);
	assert_memory_equal(errs, "dt-y: unknown command 'mv'\n", 27);
	assert_int_equal(run(&with_commands, "lss a"), -1);
	assert_memory_equal(errs, "dt-y: unknown command 'lss'; did you mean 'ls'?\n", 48);
	assert_int_equal(status, DT_EXIT_USAGE);
	assert_int_equal(run(&with_commands, "cp --flag a b"), 3);
}

static void help(void **state)
{
	char *line, *save;

	assert_int_equal(run(&plain, "--steps 5 --help --nosuch"), -1);
	assert_int_equal(status, DT_EXIT_OK);
	assert_string_equal(errs, "");
	assert_memory_equal(out, "dt-x - does x\n\nExamples:\n  dt-x a\n  dt-x --flag b\n\nUsage:\n", 58);
	assert_non_null(strstr(out, "\n  dt-x [option ...] MODEL\n"));
	assert_non_null(strstr(out, "\n  -f, --[no-]flag             a flag\n"));
	assert_non_null(strstr(out, "\nNumbers:\n  -n, --steps N               how many\n"));
	assert_non_null(strstr(out, "several (ls,rm)\n"));
	assert_non_null(strstr(out, "a part (default 10%)\n"));
	assert_non_null(strstr(out, "memory of a card (default what is free)\n"));
	/* too wide for the column: the text starts on the next line; and it is wrapped */
	assert_non_null(
		strstr(out, "\n      --mode none|selective|full\n                              a sentence"));
	for (line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strlen(line) > 96)
			fail_msg("wider than 96: '%s'", line);
	assert_int_equal(run(&plain, "-h"), -1);
	assert_int_equal(status, DT_EXIT_OK);
	assert_int_equal(run(&with_commands, "--help"), -1);
	assert_non_null(strstr(out, "\n  dt-y cp SRC DST             copies\n"));
	assert_int_equal(run(&plain, "--version"), -1);
	assert_string_equal(out, "dt-x " DT_VERSION "\n");
}

static const char *opt_str(const json_t *root, size_t i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(json_object_get(root, "options"), i), key));
}

static void help_that_cannot_be_written(void **state)
{
	FILE *full = fopen("/dev/full", "w"), *fe;
	char *argv[] = {(char[]){"dt-x"}, (char[]){"--help"}, NULL}, *said = NULL;
	size_t n;

	assert_non_null(full);
	fe = open_memstream(&said, &n);
	assert_int_equal(dt_opt_main(&plain, 2, argv, full, fe, &status), -1);
	assert_int_equal(status, DT_EXIT_FAILED);
	fclose(full);
	fclose(fe);
	assert_string_equal(said, "dt-x: cannot write to standard output: No space left on device\n");
	free(said);
}

static void describe(void **state)
{
	json_t *root;

	assert_int_equal(run(&with_commands, "--describe-options"), -1);
	assert_int_equal(status, DT_EXIT_OK);
	root = json_loads(out, 0, NULL);
	assert_non_null(root);
	assert_int_equal(json_integer_value(json_object_get(root, "schema")), 1);
	assert_string_equal(json_string_value(json_object_get(root, "program")), "dt-y");
	assert_int_equal(json_array_size(json_object_get(root, "commands")), 2);
	assert_int_equal(json_array_size(json_object_get(root, "examples")), 2);
	assert_int_equal(json_array_size(json_object_get(root, "options")), 14); /* headings are none */
	assert_string_equal(opt_str(root, 0, "name"), "flag");
	assert_string_equal(opt_str(root, 0, "short"), "f");
	assert_null(opt_str(root, 0, "arg"));
	assert_string_equal(opt_str(root, 5, "complete"), "file"); /* from the word FILE */
	assert_string_equal(opt_str(root, 6, "commands"), "ls,rm");
	assert_string_equal(opt_str(root, 9, "type"), "choice");
	assert_string_equal(opt_str(root, 9, "arg"), "none|selective|full");
	assert_string_equal(opt_str(root, 10, "default"), "10%");
	assert_null(opt_str(root, 10, "default_text"));
	assert_string_equal(opt_str(root, 13, "default_text"), "what is free");
	json_decref(root);
}

static void choices(void **state)
{
	char buf[16];

	assert_string_equal(dt_opt_choice_name("a|bc|d", 1, buf, sizeof(buf)), "bc");
	assert_null(dt_opt_choice_name("a|bc|d", 3, buf, sizeof(buf)));
	assert_int_equal(dt_opt_choice_index("a|bc|d", "d"), 2);
	assert_int_equal(dt_opt_choice_index("a|bc|d", "b"), -1);
	assert_int_equal(dt_opt_choice_index("a|bc|d", ""), -1);
}

static int release(void **state)
{
	free(out);
	free(errs);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type),
		cmocka_unit_test(negation_and_repetition),
		cmocka_unit_test(pairs),
		cmocka_unit_test(errors),
		cmocka_unit_test(too_many_repetitions),
		cmocka_unit_test(command_words),
		cmocka_unit_test(help),
		cmocka_unit_test(describe),
		cmocka_unit_test(help_that_cannot_be_written),
		cmocka_unit_test(choices),
		cmocka_unit_test(defaults),
		cmocka_unit_test(one_of_many_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, release);
}
/* SPDX-License-Identifier: Apache-2.0 */
