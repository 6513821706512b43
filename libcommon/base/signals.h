/*
 * Signals for programs that compute. A handler runs on the stack of a thread, below that thread's stack
 * pointer. oneDNN's products of fp32 on AVX2 (2.6, and whatever else was made without heed to it) keep values
 * below that pointer, beyond the 128 bytes that the System V ABI leaves alone: a handler that interrupts one
 * overwrites them, and the product writes to wrong places. So no thread that computes may take a signal.
 */
#ifndef DT_BASE_SIGNALS_H
#define DT_BASE_SIGNALS_H

#include <stddef.h>

/*
 * From now on handler takes these signals, in a thread of its own; the calling thread and all that it
 * starts do not take them, and no wait of theirs ends with EINTR for one. Once, before other threads start.
 * A process that is forked has them unblocked, as a program that it executes expects; one that computes
 * calls dt_signals_ignore. If no thread can be started, the calling one takes them.
 */
void dt_signals_catch(const int *which, size_t n, void (*handler)(int));

/* In a forked process that computes: these signals do nothing. */
void dt_signals_ignore(const int *which, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
