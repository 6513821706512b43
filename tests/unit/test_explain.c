/* dt-run explain over recordings made here: who lags, who calls something else, whose sizes differ. */
#include "base/recorder.h"
#include "supervise/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3 };

static char base[] = "/tmp/test-explain.XXXXXX", said[4096];
static char *path[RANKS];
static struct dt_recording *f[RANKS];

static void open_all(void)
{
	struct dt_err err;

	for (int r = 0; r < RANKS; r++)
		assert_int_equal(dt_recorder_open(base, r, RANKS, &f[r], &err), 0);
}

/* Rank r's collective seq of n elements. */
static uint64_t begin(int r, uint64_t seq, uint64_t n, const char *kind)
{
	struct dt_record k = {
		.seq = seq, .n = n, .peer = -1, .members = RANKS, .group = "data", .type = "f32"};

	snprintf(k.kind, sizeof(k.kind), "%s", kind);
	snprintf(k.what, sizeof(k.what), "gradients");
	return dt_recorder_begin(f[r], &k);
}

static int explain(int n)
{
	FILE *out = fmemopen(said, sizeof(said), "w");
	struct dt_err err = {0};
	int rc;

	for (int r = 0; r < RANKS; r++)
		dt_recorder_close(f[r]);
	rc = dt_supervise_explain(path, n, out, &err);
	fclose(out);
	return rc;
}

static void says(const char *text)
{
	if (!strstr(said, text))
		fail_msg("not said: %s\n%s", text, said);
}

static void all_done(void **state)
{
	open_all();
	for (uint64_t seq = 1; seq < 3000; seq++) /* more than the file holds */
		for (int r = 0; r < RANKS; r++)
			dt_recorder_end(f[r], begin(r, seq, 100, "all-reduce"));
	assert_int_equal(explain(RANKS), 0);
	says("all recorded operations are complete");
}

static void one_lags(void **state)
{
	open_all();
	for (uint64_t seq = 1; seq <= 10; seq++)
		for (int r = 0; r < RANKS; r++)
			if (r != 1 || seq < 10) {
				uint64_t no = begin(r, seq, 100, "all-reduce");

				if (seq < 10)
					dt_recorder_end(f[r], no);
			}
	assert_int_equal(explain(RANKS), 1);
	says("group data of 3 ranks, collective 10, all-reduce 'gradients' of 100 f32: 2 ranks wait in it");
	says("  rank 1 (process ");
	says("is behind: its last is collective 9, all-reduce 'gradients' of 100 f32, complete");
}

static void calls_differ(void **state)
{
	open_all();
	for (uint64_t seq = 1; seq <= 5; seq++)
		for (int r = 0; r < RANKS; r++)
			begin(r, seq, seq == 4 && r == 2 ? 99 : 100, "all-reduce");
	assert_true(explain(RANKS) > 0);
	says("collective 4: rank 0 calls all-reduce 'gradients' of 100 f32, rank 2 calls all-reduce "
	     "'gradients' of 99 f32");
	open_all();
	for (int r = 0; r < RANKS; r++)
		begin(r, 1, 100, r == 1 ? "broadcast" : "all-reduce");
	assert_true(explain(RANKS) > 0);
	says("collective 1: rank 0 calls all-reduce 'gradients' of 100 f32, rank 1 calls broadcast "
	     "'gradients' of 100 f32");
}

static void a_message_and_a_missing_rank(void **state)
{
	struct dt_record k = {
		.n = 7, .peer = 2, .members = 2, .group = "pp", .kind = "receive", .type = "f32"};

	open_all();
	dt_recorder_begin(f[0], &k);
	assert_int_equal(explain(2), 2);
	says("rank 2 of 3: its recording was not given");
	says("rank 0: receive '' of 7 f32 with rank 2 is not complete");
}

static void other_files(void **state)
{
	struct dt_err err;
	FILE *out = fopen(path[0], "w");

	fputs("no recording", out);
	fclose(out);
	assert_true(dt_supervise_explain(path, 1, stdout, &err) < 0);
	assert_non_null(strstr(err.msg, "is not a flight recording"));
}

/* A rank that is none, more ranks than a job has, and a number of a collective that no run reaches. */
static void damaged_files(void **state)
{
	const struct {
		int32_t rank, size;
		uint64_t seq;
		int taken;
	} cases[] = {{-1, RANKS, 1, 0},
		     {RANKS, RANKS, 1, 0},
		     {0, 0, 1, 0},
		     {0, INT32_MAX, 1, 0},
		     {0, RANKS, UINT64_MAX, 1}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_all();
		for (int r = 0; r < RANKS; r++)
			begin(r, r ? 1 : cases[i].seq, 100, "all-reduce");
		f[0]->rank = cases[i].rank;
		f[0]->size = cases[i].size;
		assert_int_equal(explain(RANKS) >= 0, cases[i].taken);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_done),	cmocka_unit_test(one_lags),
		cmocka_unit_test(calls_differ), cmocka_unit_test(a_message_and_a_missing_rank),
		cmocka_unit_test(other_files),	cmocka_unit_test(damaged_files),
	};
	int fd = mkstemp(base), rc;

	close(fd);
	for (int r = 0; r < RANKS; r++)
		if (asprintf(&path[r], "%s.%d", base, r) < 0)
			return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	for (int r = 0; r < RANKS; r++) {
		unlink(path[r]);
		free(path[r]);
	}
	unlink(base);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
