/*
 * Sizes and counts as people write them. Binary units carry an i (KiB = 2^10), decimal ones do not
 * (KB = 10^3); a number without a unit is bytes, or a plain count.
 */
#ifndef DT_BASE_UNITS_H
#define DT_BASE_UNITS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* "80GiB", "1.5GB", "4096", "512K" (K, M, G, T alone mean binary). Refuses negative, NaN, overflow, junk. */
int dt_parse_size(const char *s, uint64_t *ret_bytes, struct dt_err *err);

/* "7e9", "1.5B", "300M", "12k", "4096": decimal multipliers k, M, B (or G), T. */
int dt_parse_count(const char *s, uint64_t *ret, struct dt_err *err);

/* Decimal integers and finite reals, the whole string used. */
int dt_parse_int(const char *s, int64_t min, int64_t max, int64_t *ret, struct dt_err *err);
int dt_parse_real(const char *s, double min, double max, double *ret, struct dt_err *err);

/* "12.55 GiB", "512 B": binary unit, at most four significant digits. Returns buf. */
const char *dt_format_size(uint64_t bytes, char *buf, size_t n);

/* "1.56 B", "124.4 M", "512": decimal multiplier. Returns buf. */
const char *dt_format_count(double v, char *buf, size_t n);

/* "1h02m", "3m20s", "4.2s", "15ms". Returns buf. */
const char *dt_format_duration(double seconds, char *buf, size_t n);

#endif
