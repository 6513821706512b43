/*
 * Streams of the emulated card (queue.cc). A real card starts work some time between the call and the moment
 * somebody waits for it. The emulation uses either extreme:
 *   early  at the call, except that data copied to the host arrives only when the host or another stream
 *          waits for the stream;
 *   late   (DT_EMULATED_QUEUES=late) only when somebody waits, and in other streams only what that depends
 *          on. Data used before it was waited for is missing, and inputs changed too early are changed;
 *   mixed  (DT_EMULATED_QUEUES=mixed) late in streams that have cleared memory, as a device's own stream
 *          does when it is opened, early in the others.
 */
#ifndef DT_KERNELS_CUDA_EMULATE_QUEUE_H
#define DT_KERNELS_CUDA_EMULATE_QUEUE_H

/* Runs everything that does not wait for libraries: before memory is freed, for which a card waits. */
void dt_emu_finish_all(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
