/* base/units.h: what is read as a size, a count, a number, and what is refused. */
#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

static void sizes(void **state)
{
	static const struct {
		const char *s;
		uint64_t bytes;
	} good[] = {
		{"0", 0},
		{"4096", 4096},
		{"512B", 512},
		{"1K", 1024},
		{"1KB", 1000},
		{"1kB", 1000},
		{"1KiB", 1024},
		{"80GiB", 80ull << 30},
		{"80 GiB", 80ull << 30},
		{"1.5GB", 1500000000},
		{"0.5MiB", 524288},
		{"80gib", 80ull << 30},
		{"80 GIB", 80ull << 30},
		{"80gb", 80000000000},
		{"512b", 512},
		{"64k", 65536},
		{"2T", 2ull << 40},
		{"3TB", 3000000000000},
		{"1e3", 1000},
		{"9007199254740993", 9007199254740993}, /* 2^53 + 1 is not a double */
		{"8000000TiB", 8000000ull << 40},
	};
	static const char *const bad[] = {"",	  " ",	    "GiB",  "-1",	"-1GiB",
					  "nan",  "inf",    "1GX",  "0x10",	"1,5GB",
					  "80Gb", "80GiBs", "1e30", "9000000T", " 1",
					  "1 2",  "1GiB ",  "--1",  "1e",	"18446744073709551616"};
	uint64_t v;

	for (size_t i = 0; i < N(good); i++) {
		struct dt_err err = {0};

		if (dt_parse_size(good[i].s, &v, &err) < 0)
			fail_msg("'%s': %s", good[i].s, err.msg);
		if (v != good[i].bytes)
			fail_msg("'%s' is %llu, not %llu", good[i].s, (unsigned long long)v,
				 (unsigned long long)good[i].bytes);
	}
	for (size_t i = 0; i < N(bad); i++) {
		struct dt_err err = {0};

		v = 77;
		if (dt_parse_size(bad[i], &v, &err) >= 0)
			fail_msg("'%s' was read as %llu", bad[i], (unsigned long long)v);
		assert_int_equal(v, 77);
		assert_non_null(strstr(err.msg, bad[i]));
		assert_int_not_equal(err.hint[0], 0);
	}
}

static void counts(void **state)
{
	static const struct {
		const char *s;
		uint64_t n;
	} good[] = {{"7e9", 7000000000}, {"1.5B", 1500000000},	 {"300M", 300000000}, {"12k", 12000},
		    {"12K", 12000},	 {"32.8b", 32800000000}, {"8Ki", 8192},	      {"300m", 300000000},
		    {"4096", 4096},	 {"2T", 2000000000000},	 {"3G", 3000000000}};
	static const char *const bad[] = {"", "x", "-3", "1KiB", "1e19", "12kk", "10%", "k"};
	uint64_t v = 0;

	for (size_t i = 0; i < N(good); i++) {
		assert_int_equal(dt_parse_count(good[i].s, &v, NULL), 0);
		assert_int_equal(v, good[i].n);
	}
	for (size_t i = 0; i < N(bad); i++)
		if (dt_parse_count(bad[i], &v, NULL) >= 0)
			fail_msg("'%s' was accepted", bad[i]);
}

static void integers(void **state)
{
	static const char *const bad[] = {"",
					  "1.5",
					  "1.5e0",
					  "0x10",
					  "-2k",
					  "8 k",
					  "1.0005k",
					  "abc",
					  "12 ",
					  " 12",
					  "9223372036854775808",
					  "1e30"};
	struct dt_err err = {0};
	int64_t v = 0;

	assert_int_equal(dt_parse_int("-12", -100, 100, &v, &err), 0);
	assert_int_equal(v, -12);
	assert_int_equal(dt_parse_int("9223372036854775807", 0, INT64_MAX, &v, &err), 0);
	assert_true(v == INT64_MAX);
	assert_int_equal(dt_parse_int("8k", 0, 8000, &v, &err), 0);
	assert_int_equal(v, 8000);
	assert_int_equal(dt_parse_int("8Ki", 0, 8192, &v, &err), 0);
	assert_int_equal(v, 8192);
	assert_int_equal(dt_parse_int("1.5k", 0, 2000, &v, &err), 0);
	assert_int_equal(v, 1500);
	assert_int_equal(dt_parse_int("1e5", 0, 100000, &v, &err), 0);
	assert_int_equal(v, 100000);
	v = INT64_MAX;
	for (size_t i = 0; i < N(bad); i++)
		if (dt_parse_int(bad[i], INT64_MIN, INT64_MAX, &v, &err) >= 0)
			fail_msg("'%s' was accepted", bad[i]);
	assert_int_equal(dt_parse_int("101", -100, 100, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'101' is out of range (-100 to 100)");
	assert_int_equal(dt_parse_int("0", 1, INT64_MAX, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'0' is out of range (at least 1)");
	assert_int_equal(dt_parse_int("5000000000", 0, UINT32_MAX, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'5000000000' is out of range (at most 4294967295)");
	assert_int_equal(dt_parse_int("9223372036854775808", 1, INT64_MAX - 1, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'9223372036854775808' is out of range (at most 9223372036854775806)");
	assert_int_equal(dt_parse_int("-9223372036854775809", 1, INT64_MAX, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'-9223372036854775809' is out of range (at least 1)");
	assert_true(v == INT64_MAX); /* untouched */
}

static void reals(void **state)
{
	static const char *const bad[] = {"", "nan", "inf", "1e400", "1.5x", " 1", "0x1p3"};
	struct dt_err err = {0};
	double v = 0;

	assert_int_equal(dt_parse_real("3e-4", 0, 1, &v, &err), 0);
	assert_true(v == 3e-4);
	for (size_t i = 0; i < N(bad); i++)
		if (dt_parse_real(bad[i], -HUGE_VAL, HUGE_VAL, &v, &err) >= 0)
			fail_msg("'%s' was accepted", bad[i]);
	assert_int_equal(dt_parse_real("2", 0, 1, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'2' is out of range (0 to 1)");
}

static void shares(void **state)
{
	static const char *const bad[] = {"", "%", "x%", "10%%", "10 %", "-1%", "101%", "1.5"};
	struct dt_err err = {0};
	double v = 0;

	assert_int_equal(dt_parse_share("0.25", 0, 1, &v, &err), 0);
	assert_float_equal(v, 0.25, 0);
	assert_int_equal(dt_parse_share("25%", 0, 1, &v, &err), 0);
	assert_float_equal(v, 0.25, 1e-15);
	assert_int_equal(dt_parse_percent("25%", 0, 100, &v, &err), 0);
	assert_float_equal(v, 25, 0);
	assert_int_equal(dt_parse_percent("25", 0, 100, &v, &err), 0);
	assert_float_equal(v, 25, 0);
	for (size_t i = 0; i < N(bad); i++)
		if (dt_parse_share(bad[i], 0, 1, &v, &err) >= 0)
			fail_msg("'%s' was accepted", bad[i]);
	assert_int_equal(dt_parse_percent("101%", 0, 100, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'101%' is out of range (0 to 100)");
	/* the bounds are not rounded to numbers that are refused */
	assert_int_equal(dt_parse_percent("100%", 1e-9, 99.999999, &v, &err), -ERANGE);
	assert_string_equal(err.msg, "'100%' is out of range (1e-09 to 99.999999)");
}

static void rates(void **state)
{
	static const struct {
		const char *s;
		double gbs;
	} good[] = {{"25", 25},		{"25GB/s", 25},	   {"200Gb/s", 25},
		    {"200 Gbit/s", 25}, {"10Gbps", 1.25},  {"10gb/s", 1.25},
		    {"800Mbps", 0.1},	{"1.6Tb/s", 200},  {"1GiB/s", 1.073741824},
		    {"512MBps", 0.512}, {"1000B/s", 1e-6}, {"8000000000b/s", 1}};
	static const char *const bad[] = {"", "x", "-1", "10G", "10GB", "10Gb", "10GBit/s", "1e30"};
	struct dt_err err = {0};
	double v = 0;

	for (size_t i = 0; i < N(good); i++) {
		if (dt_parse_rate(good[i].s, 0, 1e6, &v, &err) < 0)
			fail_msg("'%s': %s", good[i].s, err.msg);
		assert_float_equal(v, good[i].gbs, 1e-9);
	}
	for (size_t i = 0; i < N(bad); i++)
		if (dt_parse_rate(bad[i], 0, 1e6, &v, &err) >= 0)
			fail_msg("'%s' was accepted", bad[i]);
}

static void formats(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *s;
	} size[] = {{0, "0 B"},
		    {1, "1 B"},
		    {1023, "1023 B"},
		    {1024, "1.00 KiB"},
		    {1536, "1.50 KiB"},
		    {102400, "100.0 KiB"},
		    {1047552, "1023 KiB"},
		    {1048570, "1.00 MiB"}, /* rounds up to the next unit, never "1024 KiB" */
		    {13475259351, "12.55 GiB"},
		    {80ull << 30, "80.00 GiB"},
		    {UINT64_MAX, "16384 PiB"}};
	static const struct {
		double v;
		const char *s;
	} count[] = {{512, "512"}, {999.96, "1.00 k"}, {124439808, "124.4 M"}, {1.5576e9, "1.56 B"}},
	  duration[] = {{0.015, "15ms"}, {0.9996, "1.0s"},   {4.2, "4.2s"},   {59.96, "1m00s"},
			{200, "3m20s"},	 {3599.99, "1h00m"}, {3720, "1h02m"}, {86400.0 * 365, "8760h00m"},
			{NAN, "?"},	 {HUGE_VAL, "?"}};
	char buf[64];

	for (size_t i = 0; i < N(size); i++)
		assert_string_equal(dt_format_size(size[i].bytes, buf, sizeof(buf)), size[i].s);
	for (uint64_t bytes = 1; bytes < 1ull << 50;
	     bytes += bytes / 7 + 1) { /* suffices, and is hardly more */
		struct dt_err err;
		uint64_t back = 0;

		if (dt_parse_size(dt_format_size_up(bytes, buf, sizeof(buf)), &back, &err) < 0)
			fail_msg("%s", err.msg);
		if (back < bytes || (double)back > (double)bytes * 1.011)
			fail_msg("%llu bytes up are '%s'", (unsigned long long)bytes, buf);
	}
	for (size_t i = 0; i < N(count); i++)
		assert_string_equal(dt_format_count(count[i].v, buf, sizeof(buf)), count[i].s);
	for (size_t i = 0; i < N(duration); i++)
		assert_string_equal(dt_format_duration(duration[i].v, buf, sizeof(buf)), duration[i].s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes), cmocka_unit_test(counts),  cmocka_unit_test(integers),
		cmocka_unit_test(reals), cmocka_unit_test(formats), cmocka_unit_test(shares),
		cmocka_unit_test(rates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
