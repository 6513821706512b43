/*
 * Tile products (Intel AMX): eight registers of up to 16 rows of 64 bytes. c [rows, 16] += a [rows, k] b:
 *
 *   tile_dot_ss    a and b int8, c int32; k up to 64. Row i of b has elements 4 i .. 4 i + 3 of 16
 *                  columns, four bytes each. Exact, modulo 2^32.
 *   tile_dot_su    the same, but b uint8
 *   tile_dot_us    the same, but a uint8
 *   tile_dot_bf16  a and b bf16, c f32; k up to 32. Row i of b has elements 2 i and 2 i + 1 of 16 columns.
 *                  For each element of c one chain of fused multiply-adds from 0 over even elements in
 *                  ascending order, one over odd ones; then c += even + odd, in two roundings. All to nearest
 *                  even. Denormal operands count as zero, and denormal results become zero, with their sign;
 *                  a result is denormal if it is after rounding to 24 bits.
 *
 * Source: Intel Architecture Software Developer's Manual, volume 2, LDTILECFG, TILELOADD, TILESTORED,
 * TILEZERO, TDPBSSD, TDPBSUD, TDPBUSD, TDPBF16PS; they ignore MXCSR. If several operands are NaN, it is
 * unspecified which one results.
 *
 * An object is compiled with the instructions or, with AMX_PLAIN, with functions that give the same bits.
 * Tile numbers are constants; amx is the emulated state with AMX_PLAIN. A tile of zero rows is unused.
 */
#ifndef DT_KERNELS_CPU_AMX_H
#define DT_KERNELS_CPU_AMX_H

#include "kernels/cpu/cpu.h"

enum { DT_AMX_REGISTERS = 8, DT_AMX_ROWS = 16, DT_AMX_BYTES = 64 };

/* The operand of LDTILECFG. */
struct dt_amx_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t bytes[16]; /* bytes per row of each tile */
	uint8_t rows[16];
};
_Static_assert(sizeof(struct dt_amx_config) == 64, "the processor's layout");

struct dt_amx_tiles {
	struct dt_amx_config config;
	_Alignas(64) uint8_t tile[DT_AMX_REGISTERS][DT_AMX_ROWS][DT_AMX_BYTES];
};

/* -EINVAL where the processor would fault: shapes that do not match, or the same tile twice. */
int dt_amx_configure(struct dt_amx_tiles *amx, const struct dt_amx_config *config);
int dt_amx_zero(struct dt_amx_tiles *amx, int n);
int dt_amx_load(struct dt_amx_tiles *amx, int n, const void *from, int64_t stride);
int dt_amx_store(const struct dt_amx_tiles *amx, int n, void *to, int64_t stride);
int dt_amx_dot_ss(struct dt_amx_tiles *amx, int c, int a, int b);
int dt_amx_dot_su(struct dt_amx_tiles *amx, int c, int a, int b);
int dt_amx_dot_us(struct dt_amx_tiles *amx, int c, int a, int b);
int dt_amx_dot_bf16(struct dt_amx_tiles *amx, int c, int a, int b);

#ifdef AMX_PLAIN
#define tile_configure(amx, config)	dt_amx_configure(amx, config)
#define tile_release(amx)		((amx)->config = (struct dt_amx_config){0})
#define tile_zero(amx, n)		dt_amx_zero(amx, n)
#define tile_load(amx, n, from, stride) dt_amx_load(amx, n, from, stride)
#define tile_store(amx, n, to, stride)	dt_amx_store(amx, n, to, stride)
#define tile_dot_ss(amx, c, a, b)	dt_amx_dot_ss(amx, c, a, b)
#define tile_dot_su(amx, c, a, b)	dt_amx_dot_su(amx, c, a, b)
#define tile_dot_us(amx, c, a, b)	dt_amx_dot_us(amx, c, a, b)
#define tile_dot_bf16(amx, c, a, b)	dt_amx_dot_bf16(amx, c, a, b)
#elif defined(__AMX_TILE__) || defined(__AMXTILE__) /* gcc and new clang; clang before 17 */
#include <immintrin.h>

/* gcc 12's intrinsics do not declare that they read memory. */
#define tile_written(p) __asm__ volatile("" : : "r"(p) : "memory")
#define tile_configure(amx, config)                                                                          \
	do {                                                                                                 \
		tile_written(config);                                                                        \
		_tile_loadconfig(config);                                                                    \
	} while (0)
#define tile_release(amx) _tile_release()
#define tile_zero(amx, n) _tile_zero(n)
#define tile_load(amx, n, from, stride)                                                                      \
	do {                                                                                                 \
		tile_written(from);                                                                          \
		_tile_loadd(n, from, stride);                                                                \
	} while (0)
#define tile_store(amx, n, to, stride)                                                                       \
	do {                                                                                                 \
		_tile_stored(n, to, stride);                                                                 \
		tile_written(to);                                                                            \
	} while (0)
#define tile_dot_ss(amx, c, a, b)   _tile_dpbssd(c, a, b)
#define tile_dot_su(amx, c, a, b)   _tile_dpbsud(c, a, b)
#define tile_dot_us(amx, c, a, b)   _tile_dpbusd(c, a, b)
#define tile_dot_bf16(amx, c, a, b) _tile_dpbf16ps(c, a, b)
#endif

#endif
/* SPDX-License-Identifier: Apache-2.0 */
