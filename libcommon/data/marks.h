/*
 * Which tokens of a data set are targets: runs [first, end) in ascending order, none of which touch. Private
 * to the files of data/ that read and write sets.
 */
#ifndef DT_DATA_MARKS_H
#define DT_DATA_MARKS_H

#include "base/h5.h"

#include <stdbool.h>

struct dt_marks {
	int64_t *first, *end; /* [n]; NULL: every token is a target */
	int64_t n, cap;
};

/* Appends token `at`, which must follow all earlier ones, as a target. -ENOMEM. */
int dt_marks_add(struct dt_marks *m, int64_t at);
void dt_marks_release(struct dt_marks *m);

/* As /target_starts and /target_ends. Nothing is written where there are none. */
int dt_marks_put(const struct dt_marks *m, hid_t f);
/* Reads them from f, a set of `tokens` tokens. -EBADMSG if they are not in order. */
int dt_marks_read(struct dt_marks *m, hid_t f, const char *path, int64_t tokens, struct dt_err *err);

/* Targets among tokens [at, at + n). */
int64_t dt_marks_count(const struct dt_marks *m, int64_t at, int64_t n);
/* ret[i]: whether token at + i is one. */
void dt_marks_fill(const struct dt_marks *m, int64_t at, int64_t n, uint8_t *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
