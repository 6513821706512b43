/* Which script the letters of a text are of: Latin, Cyrillic, Han ..., by Unicode as PCRE2 knows it. */
#ifndef DT_DATA_SCRIPT_H
#define DT_DATA_SCRIPT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct dt_script;

/* "NAME" or "NAME:SHARE". -EINVAL: no script of Unicode is called that, or SHARE is none. */
int dt_script_open(struct dt_script **ret, const char *text, struct dt_err *err);
void dt_script_close(struct dt_script *s); /* NULL is allowed */

/*
 * Whether at least SHARE, 50% where it is not given, of a text's letters are of the script; a text without
 * letters fits. Bytes that are not UTF-8 are no letters. Threads may ask at once. -ENOMEM.
 */
int dt_script_fits(const struct dt_script *s, const char *text, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
