/*
 * The second half of dt_opt_main: checks across options and the command. given[i]: option i was on the
 * command line.
 */
#ifndef DT_BASE_OPT_CHECK_H
#define DT_BASE_OPT_CHECK_H

#include "base/opt.h"

/* Both return -1 to go on, or the exit status after printing an error. The command is argv[1]. */
int dt_opt_check_command(const struct dt_program *p, int nargs, char **argv, const bool *given, FILE *errout);
int dt_opt_check_pairs(const struct dt_program *p, const bool *given, FILE *errout);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
