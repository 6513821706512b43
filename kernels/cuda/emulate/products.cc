/* Products of matrices by the lanes of a warp, and the loads of their operands. */
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/memory.h"

void dt_emu_ldmatrix(uint32_t r[4], const void *row, bool trans)
{
	const int lane = dt_emu_lane();
	const char *all, *at;

	dt_emu_touch(row, 16);
	all = dt_emu_warp(row, trans ? "ldmatrix.trans" : "ldmatrix");
	for (int m = 0; m < 4; m++) {
		uint16_t h[2];

		for (int k = 0; k < 2; k++) {
			const int along = 2 * (lane % 4) + k, across = lane / 4;

			memcpy(&at, all + (m * 8 + (trans ? along : across)) * 64, sizeof at);
			memcpy(&h[k], at + 2 * (trans ? across : along), 2);
		}
		memcpy(&r[m], h, 4);
	}
}

struct operands {
	float a[8], b[4];
};

/* The last product of a warp. */
struct product {
	uint64_t of; /* dt_emu_met */
	alignas(64) float d[16][8];
};

static struct product product[DT_EMU_THREADS / 32];

/* d = a b of what the lanes gave, each sum in the order of k; lane 4 g + t has rows g, g + 8 and column g. */
static void multiply(float d[16][8], const char *all)
{
	float a[16][16], b[16][8];

	for (int lane = 0; lane < 32; lane++) {
		const struct operands *o = (const struct operands *)(all + lane * 64);
		const int g = lane / 4, t = 2 * (lane % 4);

		for (int i = 0; i < 8; i++)
			a[g + i / 2 % 2 * 8][t + i % 2 + i / 4 * 8] = o->a[i];
		for (int i = 0; i < 4; i++)
			b[t + i % 2 + i / 2 * 8][g] = o->b[i];
	}
	for (int row = 0; row < 16; row++) {
		float s[8] = {0};

		for (int k = 0; k < 16; k++)
			for (int col = 0; col < 8; col++)
				s[col] += a[row][k] * b[k][col];
		memcpy(d[row], s, sizeof s);
	}
}

void dt_emu_mma(float d[4], const uint32_t a[4], const uint32_t b[2], float (*widen)(uint16_t))
{
	struct product *p = &product[dt_emu_thread() / 32];
	const int lane = dt_emu_lane();
	const char *all;
	struct operands own;

	for (int i = 0; i < 8; i++)
		own.a[i] = widen((uint16_t)(a[i / 2] >> (i % 2 * 16)));
	for (int i = 0; i < 4; i++)
		own.b[i] = widen((uint16_t)(b[i / 2] >> (i % 2 * 16)));
	all = dt_emu_warp(own, "mma");
	if (p->of != dt_emu_met()) { /* the first lane to resume does it for all */
		multiply(p->d, all);
		p->of = dt_emu_met();
	}
	for (int i = 0; i < 4; i++)
		d[i] += p->d[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
}

/* Lane 4 g + t has bytes 4 t .. + 3 of rows g, g + 8, and with k 32 of both from 16 on; of column g likewise.
 */
void dt_emu_mma_s8(int d[4], const uint32_t *a, const uint32_t *b, int k, int c)
{
	struct {
		uint32_t a[4], b[2];
	} own = {{a[0], a[1], k > 16 ? a[2] : 0, k > 16 ? a[3] : 0}, {b[0], k > 16 ? b[1] : 0}}, from, with;
	const int lane = dt_emu_lane();
	const char *all = dt_emu_warp(own, k > 16 ? "mma.s8.k32" : "mma.s8.k16");

	for (int i = 0; i < 4; i++) {
		const int row = lane / 4, col = 2 * (lane % 4) + i % 2;

		d[i] = c;
		for (int j = 0; j < k; j++) {
			const int t = j % 16 / 4, by = j % 4 * 8;

			memcpy(&from, all + (4 * row + t) * 64, sizeof from);
			memcpy(&with, all + (4 * col + t) * 64, sizeof with);
			d[i] += (int)(int8_t)(from.a[i / 2 + j / 16 * 2] >> by) *
				(int)(int8_t)(with.b[j / 16] >> by);
		}
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
