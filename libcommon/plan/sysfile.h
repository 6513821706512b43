/* What the system says of itself in files below root: "" or, in tests, a copy of /proc and /sys. */
#ifndef DT_PLAN_SYSFILE_H
#define DT_PLAN_SYSFILE_H

#include <stddef.h>

/* The first line of a file, without its newline, in buf; "" when there is none. fmt has one %s, for name. */
const char *dt_sys_line(const char *root, char *buf, size_t n, const char *fmt, const char *name);
/* The value of a line "key value" or "key : value" of a file, in buf; "" when there is none. */
const char *dt_sys_value(const char *root, const char *file, const char *key, char *buf, size_t n);
/* Calls take with the entries of a folder, in order of their names. */
void dt_sys_each(const char *root, const char *folder, void (*take)(void *, const char *), void *arg);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
