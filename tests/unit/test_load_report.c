/* bench/load/report.h: what is good, what is offered, and histograms of nearly equal times. */
#include "bench/load/report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 12 };

/* Answers of 11 tokens: due each second, the first text after 0.1 s, the end after 3.05 s + i ms. */
static void answers(struct dt_load_result *r)
{
	for (int i = 0; i < N; i++)
		r[i] = (struct dt_load_result){.outcome = DT_LOAD_OK,
					       .status = 200,
					       .due = i,
					       .sent = i,
					       .first = i + 0.1,
					       .end = i + 3.05 + i * 0.001,
					       .input = 7,
					       .output = 11};
}

static void make(struct dt_load_report *rep, const struct dt_load_result *r, bool closed, double tpot)
{
	const struct dt_load_limits limits = {.tpot = tpot};
	struct dt_err err;

	if (dt_load_report_make(rep, r, 0, N, closed, &limits, &err) < 0)
		fail_msg("%s", err.msg);
}

static void an_answer_without_token_counts_meets_no_limit_per_token(void **state)
{
	struct dt_load_result r[N];
	struct dt_load_report rep;

	(void)state;
	answers(r);
	r[3].output = r[3].input = 0;
	r[3].uncounted = true;
	r[4].output = 1; /* has no TPOT, and a limit of it does not matter */
	make(&rep, r, false, 1);
	assert_int_equal(rep.uncounted, 1);
	assert_int_equal(rep.good, N - 1);
	assert_int_equal(rep.tpot.n, N - 2);
	dt_load_report_release(&rep);
	make(&rep, r, false, 0);
	assert_int_equal(rep.good, N);
	dt_load_report_release(&rep);
}

static void users_who_wait_offer_no_rate(void **state)
{
	struct dt_load_result r[N];
	struct dt_load_report rep;

	(void)state;
	answers(r);
	make(&rep, r, false, 0);
	assert_true(fabs(rep.offered - 1) < 1e-12);
	dt_load_report_release(&rep);
	make(&rep, r, true, 0);
	assert_true(rep.offered == 0);
	dt_load_report_release(&rep);
}

static void the_ends_of_a_narrow_bin_differ(void **state)
{
	struct dt_load_result r[N];
	struct dt_load_report rep;
	char *text = NULL, *line, *rest;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int bins = 0;

	(void)state;
	answers(r);
	make(&rep, r, false, 0);
	assert_int_equal(dt_load_report_draw(&rep, 80, false, false, f), 0);
	fclose(f);
	for (line = strtok_r(strstr(text, "end-to-end"), "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		char from[32], to[32];

		if (sscanf(line, "%31s to %31s", from, to) != 2)
			continue;
		if (!strcmp(from, to))
			fail_msg("a bin from %s to %s: %s", from, to, line);
		bins++;
	}
	assert_int_equal(bins, 12);
	free(text);
	dt_load_report_release(&rep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_without_token_counts_meets_no_limit_per_token),
		cmocka_unit_test(users_who_wait_offer_no_rate),
		cmocka_unit_test(the_ends_of_a_narrow_bin_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
