/*
 * Signals for programs that compute. A signal handler runs on a thread's stack, below its stack pointer.
 * oneDNN's fp32 matrix products on AVX2 (2.6, possibly other code) keep values more than 128 bytes below the
 * stack pointer, outside the red zone of the System V ABI. A handler that interrupts one overwrites them, and
 * the product writes to wrong addresses. So threads that compute must not take signals.
 */
#ifndef DT_BASE_SIGNALS_H
#define DT_BASE_SIGNALS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Runs handler for these signals in a thread of its own. They are blocked in the calling thread and in all
 * threads it starts later, so they interrupt none of their system calls. Call once, before starting other
 * threads. A forked process has them unblocked, as a program it executes expects; a forked process that
 * computes calls dt_signals_ignore. If no thread can be started, the calling thread takes the signals.
 */
void dt_signals_catch(const int *which, size_t n, void (*handler)(int));

/*
 * Whether one of these signals has come, except SIGUSR2, which asks for a checkpoint and ends nothing. For
 * code that waits for another program: blocked signals do not interrupt its system calls.
 */
bool dt_signals_ending(void);

/*
 * Removes the file `path`, a temporary, if SIGINT, SIGTERM or SIGHUP ends the program; a signal that is
 * ignored stays so. NULL: there is no such file any longer. For programs that do nothing else on these
 * signals.
 */
void dt_signals_remove(const char *path);

/* Ignores these signals. For a forked process that computes. */
void dt_signals_ignore(const int *which, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
