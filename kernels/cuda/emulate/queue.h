/*
 * Streams of the emulated card (queue.cc). A card begins what it is given some time between the call and the
 * moment somebody waits for it. The emulation does either:
 *   early  at the call, but that what a copy brings to the host is there only when the stream was waited
 *          for, by the host or by another stream;
 *   late   (DT_EMULATED_QUEUES=late) when somebody waits, and no sooner; of other streams only what that
 *          hangs on. What is used before it was waited for is not there, and what was changed has changed;
 *   mixed  (DT_EMULATED_QUEUES=mixed) late in streams that have cleared something, as a device's own does
 *          when it is opened, early in the others.
 */
#ifndef DT_KERNELS_CUDA_EMULATE_QUEUE_H
#define DT_KERNELS_CUDA_EMULATE_QUEUE_H

/* All that can run without waiting for libraries: memory is about to go, for which a card waits. */
void dt_emu_finish_all(void);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
