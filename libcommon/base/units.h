/*
 * Parsing and printing of sizes, counts, fractions and rates. Binary units have an i (KiB = 2^10), decimal
 * ones do not (KB = 10^3). Case is ignored, with two exceptions: in a rate b is bits and B is bytes, and a
 * size in Gb is refused.
 */
#ifndef DT_BASE_UNITS_H
#define DT_BASE_UNITS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/*
 * "80GiB", "1.5GB", "4096", "512K" (plain K, M, G, T are binary). Refuses negative numbers, NaN, overflow,
 * junk.
 */
int dt_parse_size(const char *s, uint64_t *ret_bytes, struct dt_err *err);

/* "7e9", "32.8b", "300M", "12k", "8Ki", "4096": multipliers k, M, B (or G), T; powers of 2^10 with an i. */
int dt_parse_count(const char *s, uint64_t *ret, struct dt_err *err);

/* Integers, with the multipliers of a count: "-3", "8k", "1.5k", "1e3". */
int dt_parse_int(const char *s, int64_t min, int64_t max, int64_t *ret, struct dt_err *err);
/* Finite decimal numbers; trailing characters are an error. */
int dt_parse_real(const char *s, double min, double max, double *ret, struct dt_err *err);
/* A fraction: "0.1" and "10%" are both 0.1. min and max are fractions. */
int dt_parse_share(const char *s, double min, double max, double *ret, struct dt_err *err);
/* Percent: "10" and "10%" are both 10. */
int dt_parse_percent(const char *s, double min, double max, double *ret, struct dt_err *err);
/* GB/s: "25", "25GB/s" and "200Gb/s" (or Gbit/s, Gbps) are all 25; also K, M and T, and KiB/s to TiB/s. */
int dt_parse_rate(const char *s, double min, double max, double *ret_gbs, struct dt_err *err);

/* "12.55 GiB", "512 B": binary unit, at most four significant digits. Returns buf. */
const char *dt_format_size(uint64_t bytes, char *buf, size_t n);
/* The same rounded up, so that the printed size, when parsed again, is at least `bytes`. */
const char *dt_format_size_up(uint64_t bytes, char *buf, size_t n);

/* "1.56 B", "124.4 M", "512": decimal multiplier. Returns buf. */
const char *dt_format_count(double v, char *buf, size_t n);

/* "1h02m", "3m20s", "4.2s", "15ms". Returns buf. */
const char *dt_format_duration(double seconds, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
