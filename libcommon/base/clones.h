/*
 * DT_CLONES before a function compiles it for each level of x86-64; the loader picks one for the processor.
 */
#ifndef DT_BASE_CLONES_H
#define DT_BASE_CLONES_H

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) &&                \
	!defined(__clang__)
#define DT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DT_CLONES
#endif

#endif
/* SPDX-License-Identifier: Apache-2.0 */
