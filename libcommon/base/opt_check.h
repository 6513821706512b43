/* The second half of dt_opt_main: what options and command say together. given[i]: option i was there. */
#ifndef DT_BASE_OPT_CHECK_H
#define DT_BASE_OPT_CHECK_H

#include "base/opt.h"

/* Whether "a,b,c" holds word. */
bool dt_opt_word_in(const char *list, const char *word);

/* Both: -1 to go on, else the exit status of the error printed. The command is argv[1]. */
int dt_opt_check_command(const struct dt_program *p, int nargs, char **argv, const bool *given, FILE *errout);
int dt_opt_check_pairs(const struct dt_program *p, const bool *given, FILE *errout);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
