/*
 * What main() of every program with commands shares: parsing, the number of operands, the exit status, errors
 * on stderr, a closed standard output.
 */
#ifndef DT_BASE_PROGRAM_H
#define DT_BASE_PROGRAM_H

#include "base/opt.h"

/*
 * Parses, runs the command and returns the exit status. A number of operands that the command does not take
 * is a usage error. A file size limit is an error like a full disk: SIGXFSZ is ignored.
 */
int dt_program_main(const struct dt_program *p, int argc, char **argv);

/*
 * Writes err on stderr as one line, "NAME: what; hint". Silent when a reader left (-EPIPE) and when the
 * message is empty (another process has written it). Returns DT_EXIT_FAILED.
 */
int dt_program_fail(const struct dt_program *p, const struct dt_err *err);

/* A line on stderr as "NAME: text". */
void dt_program_say(const struct dt_program *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -EIO or the errno of an earlier write to standard output that failed; errno is 0 before that write. */
int dt_program_check_stdout(struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
