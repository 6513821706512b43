/*
 * Products of int8 keys and values (tile_int8.h): many rows by tiles, and by what stands in for their
 * instructions, have the bits of each row alone, which goes by products of four bytes; and those are near a
 * product of what the bytes stand for.
 */
#include "check.h"

#ifdef __x86_64__
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tile_int8.h"

enum { GROUPS = DT_TILE / 16, MOST = 160 /* of elements */ };

static const int64_t rows[] = {1, 7, 8, 15, 16, 17, 33, 64}, sizes[] = {32, 64, 96, 128, 160};
enum { ROWS = sizeof rows / sizeof *rows, SIZES = sizeof sizes / sizeof *sizes };

static struct dt_tile_bytes bytes;
static uint32_t part[2][DT_TILE * MOST / 4];
static uint8_t group[GROUPS][16 * MOST];
static const void *at[GROUPS];
static float from[DT_TILE * MOST], scale[DT_TILE];

static bool by_tiles(void)
{
	return dt_isa()->amx == DT_AMX_TILES;
}

static void fill(void)
{
	bytes.parts = 2;
	for (int p = 0; p < 2; p++)
		bytes.part[p] = part[p];
	for (int g = 0; g < GROUPS; g++) {
		at[g] = group[g];
		for (int64_t i = 0; i < 16 * MOST; i++)
			group[g][i] = i % 5   ? (uint8_t)(rnd(21 + (uint32_t)g, i) * 128 + 128)
				      : i % 2 ? 0
					      : 255;
	}
	for (int64_t i = 0; i < DT_TILE; i++)
		scale[i] = i % 9 ? (float)(rnd(31, i) + 1.5) : 0;
	for (int64_t i = 0; i < DT_TILE * MOST; i++)
		from[i] = (float)rnd(32, i) * (i % 3 ? 1 : 100);
}

/* Row i alone, as the first of its own bytes. */
static struct dt_tile_bytes row_of(int64_t i, int64_t words)
{
	struct dt_tile_bytes one = bytes;

	for (int p = 0; p < 2; p++)
		one.part[p] = bytes.part[p] + i * words;
	one.scale[0] = bytes.scale[i];
	one.offset[0][0] = bytes.offset[0][i];
	one.offset[1][0] = bytes.offset[1][i];
	return one;
}

static void same(const float *got, const float *want, int64_t n, int64_t d, int64_t ld, const char *what)
{
	for (int64_t i = 0; i < n; i++)
		if (memcmp(got + i * ld, want + i * ld, (size_t)d * 4))
			fail_msg("%s: row %lld of %lld, %lld elements", what, (long long)i, (long long)n,
				 (long long)d);
}

static void test_across(void **state)
{
	static float want[DT_TILE * DT_TILE], got[DT_TILE * DT_TILE];
	const void *row[DT_TILE];

	if (!dt_tile_int8())
		skip();
	fill();
	for (int s = 0; s < SIZES; s++) {
		const int64_t d = sizes[s], words = d / 4;

		for (int64_t i = 0; i < DT_TILE; i++)
			row[i] = from + i * d;
		dt_tile_bytes_of(&bytes, row, DT_F32, DT_TILE, d);
		for (int64_t i = 0; i < DT_TILE; i++) {
			const struct dt_tile_bytes one = row_of(i, words);

			dt_tile_int8_across(want + i * DT_TILE, &one, at, at, scale, 1, words);
			for (int64_t j = 0; j < DT_TILE; j++) {
				double sum = 0, size = 0;

				for (int64_t e = 0; e < d; e++) {
					const double k =
						group[j / 16][e / 4 * 64 + j % 16 * 4 + e % 4] - 128.;

					sum += from[i * d + e] * k;
					size += fabs(from[i * d + e] * k);
				}
				assert_true(fabs(want[i * DT_TILE + j] - sum * scale[j]) <=
					    1e-4 * size * scale[j]);
			}
		}
		for (int r = 0; r < ROWS; r++) {
			memset(got, 0xff, sizeof got);
			dt_tile_int8_across_amx_plain_v4(got, &bytes, at, at, scale, rows[r], words);
			same(got, want, rows[r], DT_TILE, DT_TILE, "across, stand-in");
			assert_true(rows[r] == DT_TILE || isnan(got[rows[r] * DT_TILE]));
			if (by_tiles())
				dt_tile_int8_across_amx(got, &bytes, at, at, scale, rows[r], words);
			same(got, want, rows[r], DT_TILE, DT_TILE, "across, tiles");
			dt_tile_int8_across(got, &bytes, at, at, scale, rows[r], words);
			same(got, want, rows[r], DT_TILE, DT_TILE, "across");
		}
	}
}

static void test_down(void **state)
{
	static float was[DT_TILE * MOST], want[DT_TILE * MOST], got[DT_TILE * MOST];
	static float weight[DT_TILE * DT_TILE];

	if (!dt_tile_int8())
		skip();
	fill();
	for (int64_t i = 0; i < DT_TILE * DT_TILE; i++)
		weight[i] = i % 7 ? (float)fabs(rnd(33, i)) : 0;
	for (int64_t i = 0; i < DT_TILE * MOST; i++)
		was[i] = (float)rnd(34, i);
	dt_tile_bytes_of_weights(&bytes, weight, DT_TILE);
	for (int s = 0; s < SIZES; s++) {
		const int64_t d = sizes[s];

		memcpy(want, was, sizeof want);
		for (int64_t i = 0; i < DT_TILE; i++) {
			const struct dt_tile_bytes one = row_of(i, DT_TILE / 4);

			dt_tile_int8_down(want + i * MOST, MOST, &one, at, at, 1, d);
			for (int64_t e = 0; e < d; e++) {
				double sum = was[i * MOST + e], size = 1;

				for (int64_t j = 0; j < DT_TILE; j++) {
					const int8_t v =
						(int8_t)group[j / 16][4 * (j % 16 / 4 * d + e) + j % 4];

					sum += weight[i * DT_TILE + j] * (double)v;
					size += fabs(weight[i * DT_TILE + j] * (double)v);
				}
				assert_true(fabs(want[i * MOST + e] - sum) <= 1e-4 * size);
			}
		}
		for (int r = 0; r < ROWS; r++) {
			memcpy(got, was, sizeof got);
			dt_tile_int8_down_amx_plain_v4(got, MOST, &bytes, at, at, rows[r], d);
			same(got, want, rows[r], d, MOST, "down, stand-in");
			assert_true(rows[r] == DT_TILE || got[rows[r] * MOST] == was[rows[r] * MOST]);
			memcpy(got, was, sizeof got);
			dt_tile_int8_down(got, MOST, &bytes, at, at, rows[r], d);
			same(got, want, rows[r], d, MOST, "down");
			memcpy(got, was, sizeof got);
			if (by_tiles()) {
				dt_tile_int8_down_amx(got, MOST, &bytes, at, at, rows[r], d);
				same(got, want, rows[r], d, MOST, "down, tiles");
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_across), cmocka_unit_test(test_down)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	puts("no x86-64");
	return 77;
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
