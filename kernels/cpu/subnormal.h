/* Sections of code in which the processor treats subnormal f32 as zero. */
#ifndef DT_KERNELS_CPU_SUBNORMAL_H
#define DT_KERNELS_CPU_SUBNORMAL_H

#include <stdint.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

/*
 * Subnormal f32 operands and results become zero in this thread until dt_subnormals_keep(the value returned).
 * Intel's processors take some hundred cycles for an instruction that meets one. The compiler may
 * move arithmetic out of the section unless a function that is not inlined does it.
 */
static inline uint64_t dt_subnormals_flush(void)
{
#if defined(__x86_64__)
	const unsigned was = _mm_getcsr();

	_mm_setcsr(was | 0x8040u); /* flush results, and read operands as zero */
	return was;
#elif defined(__aarch64__)
	uint64_t was;

	__asm__ volatile("mrs %0, fpcr" : "=r"(was));
	__asm__ volatile("msr fpcr, %0" : : "r"(was | 1u << 24));
	return was;
#else
	return 0;
#endif
}

static inline void dt_subnormals_keep(uint64_t was)
{
#if defined(__x86_64__)
	_mm_setcsr((unsigned)was);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"(was));
#else
	(void)was;
#endif
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
