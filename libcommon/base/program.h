/*
 * The common main() of programs with commands: parsing, the number of operands, the exit status, errors on
 * stderr, closing standard output.
 */
#ifndef DT_BASE_PROGRAM_H
#define DT_BASE_PROGRAM_H

#include "base/opt.h"

/*
 * Parses, runs the command and returns the exit status. A wrong number of operands is a usage error. SIGXFSZ
 * is ignored, so that exceeding a file size limit is an error like a full disk.
 */
int dt_program_main(const struct dt_program *p, int argc, char **argv);

/*
 * Writes err to stderr as one line, "NAME: what; hint". Prints nothing when the reader closed the pipe
 * (-EPIPE) or the message is empty (another process has printed it). Returns DT_EXIT_FAILED.
 */
int dt_program_fail(const struct dt_program *p, const struct dt_err *err);

/* Prints "NAME: text" on stderr. */
void dt_program_say(const struct dt_program *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The errno of an earlier failed write to standard output, or -EIO. Set errno to 0 before writing. */
int dt_program_check_stdout(struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
