/*
 * JSON over jansson: reading with one-line errors, writing one object or one line at a time.
 * Ownership is jansson's: json_t values returned by dt_json_parse and dt_json_load are the caller's.
 */
#ifndef DT_BASE_JSON_H
#define DT_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/*
 * Parses text of n bytes; name is used in the message ("NAME: line 3: ..."). Duplicate keys are refused.
 * Integers beyond int64_t become reals: transformers writes a model_max_length of 10^30 for "no limit".
 */
int dt_json_parse(const char *text, size_t n, const char *name, json_t **ret, struct dt_err *err);

/* The same for texts that a model wrote: strings may contain NUL. Copy them by dt_json_text. */
int dt_json_parse_texts(const char *text, size_t n, const char *name, json_t **ret, struct dt_err *err);

/*
 * A copy of n bytes as a C string: each NUL in them becomes U+FFFD, so that nothing behind it is lost. NULL:
 * no memory.
 */
char *dt_json_text(const char *s, size_t n);

/* x as a number; null if it is NaN or infinite, which JSON has not. */
json_t *dt_json_number(double x);

/*
 * Reads a whole file of at most max_bytes ("-" is standard input). Infinity, which is not JSON, is read as
 * 1e308.
 */
int dt_json_load(const char *path, size_t max_bytes, json_t **ret, struct dt_err *err);

/*
 * Typed members of o. If the key is missing or null: returns 0 and leaves *ret unchanged, or -EINVAL if
 * required. A wrong type or a value out of [min, max] is -EINVAL with the key named. Returns 1 when the key
 * was there.
 */
int dt_json_int(const json_t *o, const char *key, bool required, int64_t min, int64_t max, int64_t *ret,
		struct dt_err *err);
/* Up to n numbers above 0 of an array, if the key is there. Returns how many, or -EINVAL. */
int dt_json_floats(const json_t *o, const char *key, float *ret, size_t n, struct dt_err *err);
/* The number of the fewest decimal digits that is v as a float. */
double dt_json_short(float v);
int dt_json_real(const json_t *o, const char *key, bool required, double *ret, struct dt_err *err);
int dt_json_bool(const json_t *o, const char *key, bool required, bool *ret, struct dt_err *err);
/* *ret is borrowed from o. A string with a NUL in it is -EINVAL. */
int dt_json_str(const json_t *o, const char *key, bool required, const char **ret, struct dt_err *err);

/* Checks that o is an object with only keys of `known`, which ends with NULL; -EINVAL. */
int dt_json_keys(const json_t *o, const char *const *known, struct dt_err *err);

/*
 * Writes v compactly with a newline and flushes. -EPIPE, -ENOSPC ... when the stream fails. v is not stolen.
 * A full pipe is waited for; a signal that ends the program (dt_signals_ending) ends the wait after 5 s
 * (-EINTR).
 */
int dt_json_write_line(FILE *f, const json_t *v, struct dt_err *err);

/* Reads a whole file or standard input ("-") into a malloc'd, NUL-terminated buffer. */
int dt_read_file(const char *path, size_t max_bytes, char **ret, size_t *ret_n, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
