#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *name;
	double mul;
};

static const struct unit size_units[] = {
	{"", 1},
	{"B", 1},
	{"K", 1024.0},
	{"KiB", 1024.0},
	{"KB", 1e3},
	{"kB", 1e3},
	{"M", 1048576.0},
	{"MiB", 1048576.0},
	{"MB", 1e6},
	{"G", 1073741824.0},
	{"GiB", 1073741824.0},
	{"GB", 1e9},
	{"T", 1099511627776.0},
	{"TiB", 1099511627776.0},
	{"TB", 1e12},
	{NULL, 0},
};

static const struct unit count_units[] = {
	{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}, {NULL, 0},
};

static int parse_scaled(const char *s, const struct unit *u, const char *what, uint64_t *ret,
			struct dt_err *err)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(s, &end);
	if (end == s || isspace((unsigned char)s[0]) || !isfinite(v) || strpbrk(s, "xX"))
		return dt_err_set(err, -EINVAL, "'%s' is not a %s", s, what);
	if (v < 0)
		return dt_err_set(err, -EINVAL, "'%s' is negative", s);
	while (*end == ' ')
		end++;
	for (; u->name; u++) {
		if (!strcmp(u->name, end))
			break;
	}
	if (!u->name)
		return dt_err_set(err, -EINVAL, "'%s': unknown unit '%s'", s, end);
	if (strspn(s, "0123456789") >= strcspn(s, " BKMGTk")) { /* whole: exact past 2^53 */
		unsigned __int128 whole = 0;

		for (const char *c = s; isdigit((unsigned char)*c) && whole < (unsigned __int128)1 << 64; c++)
			whole = whole * 10 + (unsigned)(*c - '0');
		if (whole < (unsigned __int128)1 << 64 &&
		    whole * (uint64_t)u->mul < (uint64_t)9200000000000000000) {
			*ret = (uint64_t)(whole * (uint64_t)u->mul);
			return 0;
		}
	}
	v *= u->mul;
	if (v >= 9.2e18)
		return dt_err_set(err, -ERANGE, "'%s' is too large", s);
	*ret = (uint64_t)llround(v);
	return 0;
}

int dt_parse_size(const char *s, uint64_t *ret_bytes, struct dt_err *err)
{
	int rc = parse_scaled(s, size_units, "size", ret_bytes, err);

	if (rc < 0)
		dt_err_hint(err, "sizes are written like 80GiB, 1.5GB or 4096");
	return rc;
}

int dt_parse_count(const char *s, uint64_t *ret, struct dt_err *err)
{
	return parse_scaled(s, count_units, "count", ret, err);
}

int dt_parse_int(const char *s, int64_t min, int64_t max, int64_t *ret, struct dt_err *err)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(s, &end, 10);
	if (end == s || *end || isspace((unsigned char)s[0]))
		return dt_err_set(err, -EINVAL, "'%s' is not a whole number", s);
	if (errno == ERANGE || v < min || v > max) {
		if (max >= INT32_MAX)
			return dt_err_set(err, -ERANGE, "'%s' is out of range (at least %lld)", s,
					  (long long)min);
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
		return dt_err_set(err, -ERANGE, "'%s' is out of range (%g to %g)", s, min, max);
	*ret = v;
	return 0;
}

const char *dt_format_size(uint64_t bytes, char *buf, size_t n)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	double v = (double)bytes;
	size_t i = 0;

	while (v >= 1023.5 && i + 1 < sizeof(names) / sizeof(names[0])) {
		v /= 1024;
		i++;
	}
	if (i == 0)
		snprintf(buf, n, "%.0f B", v);
	else
		snprintf(buf, n, "%.*f %s", v < 99.995 ? 2 : v < 999.95 ? 1 : 0, v, names[i]);
	return buf;
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
