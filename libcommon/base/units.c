#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Multipliers by letter: k is 1000, ki 1024. */
static const struct {
	char letter;
	double decimal, binary;
} prefixes[] = {
	{'k', 1e3, 0x1p10}, {'m', 1e6, 0x1p20}, {'g', 1e9, 0x1p30}, {'b', 1e9, 0x1p30}, {'t', 1e12, 0x1p40},
};

/* The multiplier of the unit at u; *ret_rest is the text after it. 1 and u itself if there is no unit. */
static double prefix(const char *u, bool bare_is_binary, bool billions, const char **ret_rest)
{
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		if (tolower((unsigned char)*u) != prefixes[i].letter ||
		    (prefixes[i].letter == 'b' && !billions))
			continue;
		if (tolower((unsigned char)u[1]) == 'i') {
			*ret_rest = u + 2;
			return prefixes[i].binary;
		}
		*ret_rest = u + 1;
		return bare_is_binary && !u[1] ? prefixes[i].binary : prefixes[i].decimal;
	}
	*ret_rest = u;
	return 1;
}

/* Parses the number before the unit. No hexadecimal, no leading blank. */
static int number(const char *s, const char *what, double *ret, const char **ret_end, struct dt_err *err)
{
	char *end;

	*ret = strtod(s, &end);
	if (end == s || isspace((unsigned char)s[0]) || !isfinite(*ret) || strpbrk(s, "xX"))
		return dt_err_set(err, -EINVAL, "'%s' is not a %s", s, what);
	if (*ret < 0)
		return dt_err_set(err, -EINVAL, "'%s' is negative", s);
	*ret_end = end + (*end == ' ');
	return 0;
}

/* v times mul, where s is the text of v; exact above 2^53 if s is an integer. */
static int scale(const char *s, double v, double mul, uint64_t *ret, struct dt_err *err)
{
	size_t digits = strspn(s, "0123456789");

	if (digits > 0 && s[digits] != '.' && tolower((unsigned char)s[digits]) != 'e') {
		unsigned __int128 whole = 0;

		for (size_t i = 0; i < digits && whole < (unsigned __int128)1 << 64; i++)
			whole = whole * 10 + (unsigned)(s[i] - '0');
		if (whole < (unsigned __int128)1 << 64 &&
		    whole * (uint64_t)mul < (uint64_t)9200000000000000000) {
			*ret = (uint64_t)(whole * (uint64_t)mul);
			return 0;
		}
	}
	v *= mul;
	if (v >= 9.2e18)
		return dt_err_set(err, -ERANGE, "'%s' is too large", s);
	*ret = (uint64_t)llround(v);
	return 0;
}

static int unknown_unit(const char *s, const char *unit, struct dt_err *err)
{
	return dt_err_set(err, -EINVAL, "'%s': unknown unit '%s'", s, unit);
}

int dt_parse_size(const char *s, uint64_t *ret_bytes, struct dt_err *err)
{
	const char *unit = s, *rest;
	double v, mul;
	int rc = number(s, "size", &v, &unit, err);

	mul = prefix(unit, true, false, &rest);
	if (rc == 0 && rest != unit && !strcmp(rest, "b") && isupper((unsigned char)*unit))
		rc = dt_err_set(err, -EINVAL, "'%s' is in bits", s);
	else if (rc == 0 && *rest && strcasecmp(rest, "b"))
		rc = unknown_unit(s, unit, err);
	if (rc == 0)
		rc = scale(s, v, mul, ret_bytes, err);
	if (rc < 0)
		dt_err_hint(err, "sizes are written like 80GiB, 1.5GB or 4096 (bytes)");
	return rc;
}

int dt_parse_count(const char *s, uint64_t *ret, struct dt_err *err)
{
	const char *unit = s, *rest;
	double v, mul;
	int rc = number(s, "count", &v, &unit, err);

	mul = prefix(unit, false, true, &rest);
	if (rc == 0 && *rest)
		rc = unknown_unit(s, unit, err);
	if (rc == 0)
		rc = scale(s, v, mul, ret, err);
	if (rc < 0)
		dt_err_hint(err, "counts are written like 4096, 12k, 8Ki (8192), 300M, 7B or 7e9");
	return rc;
}

/* Parses "8k", "1.5M", "1e3"; false: not an integer in this form. */
static bool whole_count(const char *s, int64_t *ret)
{
	const char *unit, *rest;
	double v, mul;
	uint64_t n;

	if (!isdigit((unsigned char)*s) || number(s, "count", &v, &unit, NULL) < 0 || *(unit - 1) == ' ')
		return false;
	mul = prefix(unit, false, true, &rest);
	if (*rest || v * mul != rint(v * mul) || scale(s, v, mul, &n, NULL) < 0)
		return false;
	*ret = (int64_t)n;
	return true;
}

int dt_parse_int(const char *s, int64_t min, int64_t max, int64_t *ret, struct dt_err *err)
{
	char *end;
	int64_t v;

	errno = 0;
	v = strtoll(s, &end, 10);
	if (errno != ERANGE && (end == s || *end || isspace((unsigned char)s[0])) && !whole_count(s, &v))
		return dt_err_set(err, -EINVAL, "'%s' is not a whole number", s);
	if (errno == ERANGE || v < min || v > max) {
		if (max >= INT32_MAX) /* name the limit that is exceeded, as the other one is far away */
			return dt_err_set(err, -ERANGE, "'%s' is out of range (at %s %lld)", s,
					  v < min ? "least" : "most", (long long)(v < min ? min : max));
		return dt_err_set(err, -ERANGE, "'%s' is out of range (%lld to %lld)", s, (long long)min,
				  (long long)max);
	}
	*ret = v;
	return 0;
}

int dt_parse_real(const char *s, double min, double max, double *ret, struct dt_err *err)
{
	char *end;
	double v;

	v = strtod(s, &end);
	if (end == s || *end || isspace((unsigned char)s[0]) || !isfinite(v) || strpbrk(s, "xX"))
		return dt_err_set(err, -EINVAL, "'%s' is not a number", s);
	if (v < min || v > max)
		return dt_err_set(err, -ERANGE, "'%s' is out of range (%.10g to %.10g)", s, min, max);
	*ret = v;
	return 0;
}

/* Parses a number; a trailing % divides it by 100 / whole. */
static int parse_part(const char *s, double whole, double min, double max, double *ret, struct dt_err *err)
{
	size_t n = strlen(s);
	bool percent = n > 1 && s[n - 1] == '%';
	char text[64];
	double v;

	snprintf(text, sizeof(text), "%.*s", (int)(n - percent), s);
	if (n >= sizeof(text) || dt_parse_real(text, -HUGE_VAL, HUGE_VAL, &v, NULL) < 0)
		return dt_err_set(err, -EINVAL, "'%s' is not a number or a percentage", s);
	if (percent)
		v *= whole / 100;
	if (v < min || v > max)
		return dt_err_set(err, -ERANGE, "'%s' is out of range (%.10g to %.10g)", s, min, max);
	*ret = v;
	return 0;
}

int dt_parse_share(const char *s, double min, double max, double *ret, struct dt_err *err)
{
	return parse_part(s, 1, min, max, ret, err);
}

int dt_parse_percent(const char *s, double min, double max, double *ret, struct dt_err *err)
{
	return parse_part(s, 100, min, max, ret, err);
}

/* The divisor of "B/s", "b/s", "bit/s" ...: 8 for bits; 0: unknown unit. */
static double bits_or_bytes(const char *u)
{
	static const struct {
		const char *unit;
		double divisor;
	} known[] = {{"B/s", 1}, {"Bps", 1}, {"b/s", 8}, {"bps", 8}, {"bit/s", 8}, {"bits/s", 8}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(u, known[i].unit))
			return known[i].divisor;
	return 0;
}

int dt_parse_rate(const char *s, double min, double max, double *ret_gbs, struct dt_err *err)
{
	const char *unit = s, *rest;
	double v, mul, divisor;
	int rc = number(s, "rate", &v, &unit, err);

	if (rc == 0 && *unit) {
		mul = prefix(unit, false, false, &rest);
		divisor = bits_or_bytes(rest);
		if (divisor > 0)
			v *= mul / divisor / 1e9;
		else
			rc = unknown_unit(s, unit, err);
	}
	if (rc == 0 && (v < min || v > max))
		rc = dt_err_set(err, -ERANGE, "'%s' is out of range (%g to %g GB/s)", s, min, max);
	if (rc == 0)
		*ret_gbs = v;
	else
		dt_err_hint(err, "rates are written like 25, 25GB/s or 200Gb/s (bits)");
	return rc;
}

static const char *format_size(uint64_t bytes, bool up, char *buf, size_t n)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double v = (double)bytes;
	size_t i = 0;
	int digits;

	while (v >= 1023.5 && i + 1 < sizeof(names) / sizeof(names[0])) {
		v /= 1024;
		i++;
	}
	digits = i == 0 ? 0 : v < 99.995 ? 2 : v < 999.95 ? 1 : 0;
	if (up)
		v = ceil(v * pow(10, digits)) / pow(10, digits);
	snprintf(buf, n, "%.*f %s", digits, v, names[i]);
	return buf;
}

const char *dt_format_size(uint64_t bytes, char *buf, size_t n)
{
	return format_size(bytes, false, buf, n);
}

const char *dt_format_size_up(uint64_t bytes, char *buf, size_t n)
{
	return format_size(bytes, true, buf, n);
}

const char *dt_format_count(double v, char *buf, size_t n)
{
	static const char *const names[] = {"", " k", " M", " B", " T"};
	size_t i = 0;

	while (fabs(v) >= 999.95 && i + 1 < sizeof(names) / sizeof(names[0])) {
		v /= 1000;
		i++;
	}
	snprintf(buf, n, "%.*f%s", i == 0 ? 0 : fabs(v) < 99.995 ? 2 : 1, v, names[i]);
	return buf;
}

const char *dt_format_duration(double s, char *buf, size_t n)
{
	if (!isfinite(s))
		snprintf(buf, n, "?");
	else if (s < 0.9995)
		snprintf(buf, n, "%.0fms", s * 1e3);
	else if (s < 59.95)
		snprintf(buf, n, "%.1fs", s);
	else if (s < 3599.95)
		snprintf(buf, n, "%dm%02ds", (int)(s + 0.05) / 60, (int)(s + 0.05) % 60);
	else
		snprintf(buf, n, "%.0fh%02dm", floor((s + 0.05) / 3600), (int)fmod((s + 0.05) / 60, 60));
	return buf;
}
/* SPDX-License-Identifier: Apache-2.0 */
