/*
 * DT_SIMD before a function compiles it for each level of x86-64; the loader picks one for the processor.
 * Such functions are static, with names that are unique across files: clang 14 gives a clone a local symbol,
 * but its resolver a global one.
 */
#ifndef DT_KERNELS_SIMD_H
#define DT_KERNELS_SIMD_H

#ifdef __has_feature
#define DT_CLANG_TSAN __has_feature(thread_sanitizer)
#else
#define DT_CLANG_TSAN 0
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !DT_CLANG_TSAN /* TSan crashes in resolvers */
#define DT_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DT_SIMD
#endif
#define DT_INLINE static inline __attribute__((always_inline))

/*
 * DT_FOR(n, int i = 0; i < count; i++): a loop of at most n iterations, whose count is constant after
 * inlining. It must be unrolled completely, so that the arrays it indexes stay in registers. clang does that
 * early enough only for a full unroll.
 */
#define DT_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define DT_FOR(n, ...) DT_PRAGMA(clang loop unroll(full)) for (__VA_ARGS__)
#else
#define DT_FOR(n, ...) DT_PRAGMA(GCC unroll n) for (__VA_ARGS__)
#endif

#endif
/* SPDX-License-Identifier: Apache-2.0 */
