/* base/plot.h: round ticks inside the axis, numbers that tell them apart, pictures of a known size. */
#include "base/plot.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void joined(const struct dt_ticks *t, char *out, size_t n)
{
	char buf[64];

	out[0] = '\0';
	for (int i = 0; i < t->n; i++) {
		strncat(out, i ? " " : "", n - strlen(out) - 1);
		strncat(out, dt_ticks_format(t, i, buf, sizeof(buf)), n - strlen(out) - 1);
	}
}

static void ticks_are_round(void **state)
{
	static const struct {
		double lo, hi;
		bool log;
		int most;
		const char *want;
	} cases[] = {
		{0, 100, false, 6, "0 20 40 60 80 100"},
		{0, 499, false, 6, "0 100 200 300 400"},
		{2.31, 10.87, false, 5, "4 6 8 10"},
		{-1, 1, false, 5, "-1.0 -0.5 0 0.5 1.0"},
		{0.1234, 0.1239, false, 6, "0.1234 0.1235 0.1236 0.1237 0.1238 0.1239"},
		{0, 3e-4, false, 4, "0 0.0001 0.0002 0.0003"},
		{0, 3e-6, false, 4, "0 1e-6 2e-6 3e-6"},
		{0, 2e7, false, 5, "0 5e6 1.0e7 1.5e7 2.0e7"},
		{1e6, 1.5e6, false, 6, "1.0e6 1.1e6 1.2e6 1.3e6 1.4e6 1.5e6"},
		{1, 1000, true, 5, "1 10 100 1000"},
		{1, 1000, true, 12, "1 2 5 10 20 50 100 200 500 1000"},
		{1e-5, 1, true, 4, "1e-4 0.01 1"},
		{3, 6, true, 4, "3 4 5 6"},
		{1024, 1e9, true, 8, "1e4 1e5 1e6 1e7 1e8 1e9"},
	};
	char got[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_axis a = {cases[i].lo, cases[i].hi, cases[i].log};
		struct dt_ticks t;

		dt_ticks_choose(&a, cases[i].most, &t);
		joined(&t, got, sizeof(got));
		/* 1024 to 1e9 mixes both spellings of a power of ten */
		if (!strcmp(cases[i].want, "1e4 1e5 1e6 1e7 1e8 1e9"))
			assert_string_equal(got, "10000 100000 1e6 1e7 1e8 1e9");
		else
			assert_string_equal(got, cases[i].want);
	}
}

static void byte_ticks_are_powers_of_two(void **state)
{
	static const struct {
		double lo, hi;
		bool log;
		int most;
		const char *want;
	} cases[] = {
		{1024, 1 << 20, true, 11,
		 "1 KiB 2 KiB 4 KiB 8 KiB 16 KiB 32 KiB 64 KiB 128 KiB 256 KiB 512 KiB 1 MiB"},
		{8, 1 << 30, true, 7, "32 B 1 KiB 32 KiB 1 MiB 32 MiB 1 GiB"},
		{0, 3 << 20, false, 7, "0 512 KiB 1 MiB 1.5 MiB 2 MiB 2.5 MiB 3 MiB"},
		{0, 0x1p42, false, 5, "0 1 TiB 2 TiB 3 TiB 4 TiB"},
		{1500, 1900, true, 5, "1.5 KiB 1.625 KiB 1.75 KiB"},
	};
	char got[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dt_axis a = {cases[i].lo, cases[i].hi, cases[i].log, true};
		struct dt_ticks t;

		dt_ticks_choose(&a, cases[i].most, &t);
		joined(&t, got, sizeof(got));
		assert_string_equal(got, cases[i].want);
	}
}

static void ticks_hold_for_any_range(void **state)
{
	struct dt_rng r = dt_rng_make(1, DT_RNG_TEST, 0);

	for (uint64_t k = 0; k < 20000; k++) {
		bool lg = k % 3 == 0;
		double e = dt_rng_uniform(&r, 4 * k) * 600 - 300, w = dt_rng_uniform(&r, 4 * k + 1) * 30 - 15;
		double lo = pow(10, e) * (lg || k % 2 ? 1 : -1), hi = lo + fabs(lo) * pow(10, w);
		int most = 2 + (int)dt_rng_below(&r, 4 * k + 2, DT_TICKS_MAX - 1);
		struct dt_axis a = {lo, hi, lg, k % 5 == 0};
		struct dt_ticks t;

		if (!(lo < hi) || !isfinite(hi))
			continue;
		dt_ticks_choose(&a, most, &t);
		assert_in_range(t.n, 0, most);
		for (int i = 0; i < t.n; i++) {
			double slack = 1e-6 * (hi / 2 - lo / 2) + 1e-9 * fmax(fabs(lo), fabs(hi));

			if (!(t.at[i] >= lo - slack && t.at[i] <= hi + slack))
				fail_msg("tick %g outside %g..%g", t.at[i], lo, hi);
			assert_true(i == 0 || t.at[i] >= t.at[i - 1]);
		}
	}
}

static void extremes_do_not_hang(void **state)
{
	static const double ends[][2] = {
		{-1.7e308, 1.7e308}, {1e17, 1e17 + 16}, {0, 5e-324}, {1e308, 1.7e308}};
	struct dt_ticks t;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct dt_axis a = {ends[i][0], ends[i][1], false};

		dt_ticks_choose(&a, 6, &t);
		assert_in_range(t.n, 0, 6);
	}
}

static void axes_of_little_data(void **state)
{
	struct dt_series s = {.name = strdup("one")};
	struct dt_plot p = {.series = &s, .n = 1};
	struct dt_axis x, y;

	dt_plot_axes(&p, &x, &y);
	assert_true(y.lo == 0 && y.hi == 1);
	assert_int_equal(dt_series_add(&s, 5, 0), 0);
	dt_plot_axes(&p, &x, &y);
	assert_true(x.lo < 5 && x.hi > 5 && y.lo == -1 && y.hi == 1);
	p.log_x = true;
	dt_plot_axes(&p, &x, &y);
	assert_true(x.lo == 2.5 && x.hi == 10);
	dt_series_release(&s);
}

/* A window as wide as N points of the dense curve has one point of the sparse one. */
static void smoothing_is_over_x(void **state)
{
	struct dt_series s[2] = {{.name = NULL}, {.name = NULL}}, smooth;
	double window;

	for (int i = 0; i < 1000; i++)
		dt_series_add(&s[0], i, i % 2 ? 1 : 3);
	for (int i = 0; i < 1000; i += 100)
		dt_series_add(&s[1], i, i);
	assert_true(dt_plot_spacing(s, 2, false) == 1);
	window = 9.5;
	assert_int_equal(dt_series_smooth(&smooth, &s[0], window, false), 0);
	for (size_t i = 20; i < 1000; i++)
		assert_true(fabs(smooth.y[i] - 2) < 1e-12);
	assert_true(smooth.y[0] == 3 && smooth.y[1] == 2);
	dt_series_release(&smooth);
	assert_int_equal(dt_series_smooth(&smooth, &s[1], window, false), 0);
	assert_memory_equal(smooth.y, s[1].y, 10 * sizeof(double));
	dt_series_release(&smooth);
	for (int i = 0; i < 2; i++)
		dt_series_release(&s[i]);
}

/* A run that steps back does not average over the step; doubling sizes are evenly spaced in logarithms. */
static void smoothing_ends_with_the_run(void **state)
{
	struct dt_series s = {.name = NULL}, smooth;

	dt_series_add(&s, 5, 10);
	dt_series_add(&s, 6, 20);
	dt_series_add(&s, 4, 100);
	dt_series_add(&s, 5, 300);
	assert_int_equal(dt_series_smooth(&smooth, &s, 3, false), 0);
	assert_true(smooth.y[1] == 15 && smooth.y[2] == 100 && smooth.y[3] == 200);
	dt_series_release(&smooth);
	dt_series_release(&s);
	for (int i = 0; i < 10; i++)
		dt_series_add(&s, ldexp(1, i), i);
	assert_true(fabs(dt_plot_spacing(&s, 1, true) - log(2)) < 1e-12);
	assert_int_equal(dt_series_smooth(&smooth, &s, 1.5 * log(2), true), 0);
	for (int i = 1; i < 10; i++)
		assert_true(smooth.y[i] == i - 0.5);
	dt_series_release(&smooth);
	dt_series_release(&s);
}

/* A stack adds the latest value below; runs that step back are matched in order. */
static void stacks_add_up(void **state)
{
	struct dt_series s[2] = {{.name = NULL}, {.name = NULL}}, none = {0}, sum;
	static const double x[] = {0, 1, 2, 1, 2, 3}, below[] = {1, 2, 3, 10, 20, 30};
	static const double want[] = {101, 103, 110, 130};

	for (int i = 0; i < 6; i++)
		dt_series_add(&s[0], x[i], below[i]);
	for (int i = 0; i < 6; i++)
		if (i != 1 && i != 4) /* not in every line */
			dt_series_add(&s[1], x[i], 100);
	assert_int_equal(dt_series_stack(&sum, &s[1], &s[0]), 0);
	assert_int_equal(sum.n, 4);
	assert_memory_equal(sum.y, want, sizeof(want));
	dt_series_release(&sum);
	assert_int_equal(dt_series_stack(&sum, &s[0], &s[1]), 0); /* the one below has fewer points */
	assert_true(sum.y[1] == 102 && sum.y[4] == 120 && sum.y[5] == 130);
	dt_series_release(&sum);
	assert_int_equal(dt_series_stack(&sum, &s[0], &none), 0);
	assert_memory_equal(sum.y, below, sizeof(below));
	dt_series_release(&sum);
	for (int i = 0; i < 2; i++)
		dt_series_release(&s[i]);
}

static void names_are_spread(void **state)
{
	double at[4];

	dt_plot_spread((double[]){5, 5, 5, 20}, 4, 0, 20, 2, at);
	assert_true(at[0] == 5 && at[1] == 7 && at[2] == 9 && at[3] == 20);
	dt_plot_spread((double[]){20, 19, 0, 20}, 4, 0, 20, 2, at); /* pushed back from the end, in order */
	assert_true(at[2] == 0 && at[1] == 16 && at[0] == 18 && at[3] == 20);
	dt_plot_spread((double[]){1, 1, 1, 1}, 4, 0, 6, 100, at); /* no room: evenly */
	assert_true(at[0] == 0 && at[1] == 2 && at[2] == 4 && at[3] == 6);
}

/* The picture as text, its lines and widest line checked on the way. */
static char *picture(const struct dt_plot *p, const struct dt_plot_style *st)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	int lines = dt_plot_term(p, st, f), seen = 0, column = 0;

	fclose(f);
	for (const char *s = text; *s; s++) {
		while (*s == '\033')
			s = strchr(s, 'm') + 1;
		if (*s == '\n') {
			seen++;
			column = 0;
		} else if (((unsigned char)*s & 0xc0) != 0x80 && ++column > st->width) {
			fail_msg("wider than %d:\n%s", st->width, text);
		}
	}
	assert_int_equal(seen, lines);
	assert_int_equal(lines, st->height);
	return text;
}

static void ascii_line(void **state)
{
	struct dt_series s = {.name = strdup("y")};
	struct dt_plot p = {.series = &s, .n = 1, .x_label = "step"};
	struct dt_plot_style st = {.width = 33, .height = 8};
	char *text;

	for (int i = 0; i <= 4; i++)
		dt_series_add(&s, i, i);
	text = picture(&p, &st);
	assert_string_equal(text, "** y\n"
				  "4 +                          ****\n"
				  "  |                   *******\n"
				  "2 +           ********\n"
				  "  |    *******\n"
				  "0 +****\n"
				  "  ++--------------+--------------\n"
				  "   0              2          step\n");
	free(text);
	dt_series_release(&s);
}

static void braille_dots(void **state)
{
	struct dt_series s = {.name = strdup("y")};
	struct dt_plot p = {.series = &s, .n = 1};
	struct dt_plot_style st = {.width = 40, .height = 10, .utf8 = true};
	int cells = 0;
	char *text;

	dt_series_add(&s, 0, 0);
	dt_series_add(&s, 1, 0);
	text = picture(&p, &st);
	/* A level line half way up -1..1 is dot 14 of 28, the third line in its row of cells (U+2824). */
	for (const char *c = text; (c = strstr(c, "\xe2\xa0\xa4")); c += 3)
		cells++;
	assert_int_equal(cells, 40 - 4);
	free(text);
	dt_series_release(&s);
}

static void a_step_back_is_not_joined(void **state)
{
	struct dt_series s = {.name = strdup("y")};
	struct dt_plot p = {.series = &s, .n = 1};
	struct dt_plot_style st = {.width = 40, .height = 10};
	int marks = 0;
	char *text;

	dt_series_add(&s, 10, 1);
	dt_series_add(&s, 0, 0);
	text = picture(&p, &st);
	for (const char *c = strchr(text, '\n'); *c; c++)
		marks += *c == '*';
	assert_int_equal(marks, 2);
	free(text);
	dt_series_release(&s);
}

/* Each of ten curves has its mark and its name beside it, coloured or not, and its own stroke. */
static void ten_curves_are_told_apart(void **state)
{
	struct dt_series s[10] = {{.name = NULL}};
	struct dt_plot p = {.series = s, .n = 10, .y_label = "busbw_gbs", .x_label = "size_bytes"};
	struct dt_plot_style st = {.width = 80, .height = 20, .utf8 = true};
	char *text = NULL, *marks = NULL, *stroke[10], *line, want[64];
	size_t n = 0;
	FILE *f;

	for (int i = 0; i < 10; i++) {
		assert_true(asprintf(&s[i].name, "alg %d", i) > 0);
		for (int k = 0; k < 50; k++)
			dt_series_add(&s[i], k, i + k);
	}
	for (int color = 0; color < 2; color++) {
		st.color = color;
		text = picture(&p, &st);
		assert_int_equal(strncmp(text, "busbw_gbs\n", 10), 0);
		for (int i = 0; i < 10; i++) {
			char m = "*+ox#@%&=$"[i];

			snprintf(want, sizeof(want), color ? "%c%c\033[0m alg %d\n" : "%c%c alg %d\n", m, m,
				 i);
			if (!strstr(text, want))
				fail_msg("no '%s' in\n%s", want, text);
		}
		free(text);
	}
	f = open_memstream(&text, &n);
	dt_plot_svg(&p, 800, 400, true, f);
	fclose(f);
	marks = text;
	for (int i = 0; i < 10; i++) { /* the curves' paths have line joins */
		line = strstr(marks, " stroke-linejoin");
		assert_non_null(line);
		marks = line + 1;
		while (line[-1] != '\n')
			line--;
		stroke[i] = strndup(line, (size_t)(marks - line));
		for (int k = 0; k < i; k++)
			assert_string_not_equal(stroke[k], stroke[i]);
	}
	for (int i = 0; i < 10; i++) {
		free(stroke[i]);
		dt_series_release(&s[i]);
	}
	free(text);
}

static void svg_is_escaped_and_thinned(void **state)
{
	struct dt_series s = {.name = strdup("a<b & \"c\"\x01")};
	struct dt_plot p = {.series = &s, .n = 1, .title = "T"};
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	for (int i = 0; i < 200000; i++)
		dt_series_add(&s, i, i == 77777 ? 100 : sin(i));
	dt_plot_svg(&p, 800, 400, false, f);
	fclose(f);
	assert_non_null(strstr(text, "a&lt;b &amp; &quot;c&quot;</text>"));
	assert_non_null(strstr(text, "viewBox=\"0 0 800 400\""));
	assert_non_null(strstr(text, " 46.00L")); /* the spike reaches the top: y is 46 there */
	assert_in_range(n, 1000, 100000);
	free(text);
	dt_series_release(&s);
}

static void bars(void **state)
{
	struct dt_bar b[] = {{"up", 8}, {"half", 4}, {"none", 0}, {"down", -8}};
	struct dt_bars bars = {.bar = b, .n = 3};
	struct dt_plot_style st = {.width = 30};
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_int_equal(dt_bars_term(&bars, &st, f), 3);
	bars.n = 4;
	assert_int_equal(dt_bars_term(&bars, &st, f), 4);
	fclose(f);
	assert_string_equal(text, "up    8 #####################\n"
				  "half  4 ###########\n"
				  "none  0 \n"
				  "up     8           ##########\n"
				  "half   4           #####\n"
				  "none   0           \n"
				  "down  -8 ##########\n");
	free(text);
}

/* What is nearly 0 has no bar, whichever side is longer; a whole column is where both sides meet. */
static void bars_near_zero(void **state)
{
	struct dt_bar b[] = {{"a", -5}, {"b", 0.01}, {"c", 0}, {"d", -0.01}, {"e", 3}, {"f", -1e308}};
	struct dt_bars bars = {.bar = b, .n = 5};
	struct dt_plot_style st = {.width = 30};
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	assert_int_equal(dt_bars_term(&bars, &st, f), 5);
	b[0].value = 5; /* one column is left for a negative value however small */
	bars.n = 4;
	assert_int_equal(dt_bars_term(&bars, &st, f), 4);
	b[4].value = 1e308;
	bars.bar = &b[4];
	bars.n = 2;
	assert_int_equal(dt_bars_term(&bars, &st, f), 2);
	fclose(f);
	assert_string_equal(text, "a     -5  ############\n"
				  "b   0.01              \n"
				  "c      0              \n"
				  "d  -0.01              \n"
				  "e      3              #######\n"
				  "a      5  ###################\n"
				  "b   0.01  \n"
				  "c      0  \n"
				  "d  -0.01  \n"
				  "e   1e308           #########\n"
				  "f  -1e308  #########\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ticks_are_round),
		cmocka_unit_test(byte_ticks_are_powers_of_two),
		cmocka_unit_test(ticks_hold_for_any_range),
		cmocka_unit_test(smoothing_is_over_x),
		cmocka_unit_test(smoothing_ends_with_the_run),
		cmocka_unit_test(stacks_add_up),
		cmocka_unit_test(names_are_spread),
		cmocka_unit_test(ten_curves_are_told_apart),
		cmocka_unit_test(extremes_do_not_hang),
		cmocka_unit_test(axes_of_little_data),
		cmocka_unit_test(ascii_line),
		cmocka_unit_test(braille_dots),
		cmocka_unit_test(a_step_back_is_not_joined),
		cmocka_unit_test(svg_is_escaped_and_thinned),
		cmocka_unit_test(bars),
		cmocka_unit_test(bars_near_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
