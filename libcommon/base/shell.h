/* Words of a command line for sh(1). */
#ifndef DT_BASE_SHELL_H
#define DT_BASE_SHELL_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes s as one word: in single quotes if a shell would change it, or always. Returns the length of the
 * whole word, of which at most n - 1 bytes are in buf, as snprintf does.
 */
size_t dt_shell_word(const char *s, bool always, char *buf, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
