/*
 * Frozen weights in blocks: NF4 against what bitsandbytes stores and makes of it (tests/data/golden_nf4.py),
 * to the bit; parts of a tensor against the whole; the other formats against their readers.
 */
#include "golden.h"
#include "kernels/nf4.h"
#include "kernels/ops.h"
#include "kernels/quant_formats.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 96, COLS = 192, N = ROWS * COLS, BLOCKS = N / DT_NF4_BLOCK };

static struct dt_dev *dev;

struct stored { /* bitsandbytes' */
	struct golden g;
	float *x, *code, *group, *offset, *y;
	int32_t *packed, *absmax;
};

static void open_stored(struct stored *s)
{
	int64_t n;

	golden_open(&s->g, "nf4");
	s->x = golden_f32(&s->g, "x", &n);
	assert_int_equal(n, N);
	s->y = golden_f32(&s->g, "y", NULL);
	s->code = golden_f32(&s->g, "code", NULL);
	s->group = golden_f32(&s->g, "group", NULL);
	s->offset = golden_f32(&s->g, "offset", NULL);
	s->packed = golden_i32(&s->g, "packed", NULL);
	s->absmax = golden_i32(&s->g, "absmax", NULL);
}

static void close_stored(struct stored *s)
{
	void *all[] = {s->x, s->y, s->code, s->group, s->offset, s->packed, s->absmax};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		free(all[i]);
	golden_close(&s->g);
}

static void test_encode(void **state)
{
	struct stored s;
	float scale[BLOCKS], code[256], group[(BLOCKS + 255) / 256];
	uint8_t packed[N / 2], u8[BLOCKS];
	int differ = 0;

	open_stored(&s);
	dt_nf4_scales(s.x, N, scale);
	dt_nf4_encode(s.x, N, scale, packed);
	for (int i = 0; i < N / 2; i++)
		assert_int_equal(packed[i], s.packed[i]);
	dt_nf4_code(code);
	assert_memory_equal(code, s.code, sizeof(code));
	assert_true(fabsf(dt_nf4_mean(scale, BLOCKS) - s.offset[0]) <= 2e-7f * s.offset[0]);
	dt_nf4_quantize_scales(scale, BLOCKS, s.offset[0], code, u8, group);
	assert_memory_equal(group, s.group, sizeof(group));
	for (int i = 0; i < BLOCKS; i++) { /* its processor code takes either where two are about as near */
		differ += u8[i] != s.absmax[i];
		assert_true(abs(u8[i] - s.absmax[i]) <= 1);
	}
	assert_true(differ <= BLOCKS / 100);
	close_stored(&s);
}

/* Rows [r0, r0 + rows) and columns [c0, c0 + cols) of what bitsandbytes stored. */
static void check_box(const struct stored *s, int64_t r0, int64_t rows, int64_t c0, int64_t cols)
{
	int64_t n = rows * cols, bytes = dt_blocks_bytes(DT_BLOCKS_NF4, n, N);
	uint8_t *data = calloc(1, (size_t)bytes), *scale = data + dt_nf4_scales_at(N),
		*nibble = data + dt_nf4_nibbles_at(n, N);
	float *head = (float *)data, *y = malloc((size_t)n * sizeof(*y));
	const struct dt_blocks_part part = {DT_BLOCKS_NF4, data, bytes, r0 * COLS + c0, COLS, N};

	memcpy(head, s->code, 256 * sizeof(*head));
	head[256] = s->offset[0];
	memcpy(head + 257, s->group, (BLOCKS + 255) / 256 * sizeof(*head));
	for (int64_t i = 0; i < n; i++) {
		int64_t at = (r0 + i / cols) * COLS + c0 + i % cols;
		int v = at % 2 ? s->packed[at / 2] & 15 : s->packed[at / 2] >> 4;

		scale[i / DT_NF4_BLOCK] = (uint8_t)s->absmax[at / DT_NF4_BLOCK];
		nibble[i / 2] |= (uint8_t)(i % 2 ? v : v << 4);
	}
	assert_int_equal(dev->ops->unpack(dev, dt_t2(y, DT_F32, rows, cols), &part), 0);
	for (int64_t i = 0; i < n; i++) {
		float want = s->y[(r0 + i / cols) * COLS + c0 + i % cols];

		if (memcmp(&y[i], &want, sizeof(want)) && !(y[i] == 0 && want == 0))
			fail_msg("element %lld: %.9g, bitsandbytes %.9g", (long long)i, (double)y[i],
				 (double)want);
	}
	free(data);
	free(y);
}

static void test_decode(void **state)
{
	struct stored s;

	open_stored(&s);
	check_box(&s, 0, ROWS, 0, COLS);
	check_box(&s, 32, 40, 0, COLS); /* cut over tensor-parallel ranks */
	check_box(&s, 0, ROWS, 64, 128);
	check_box(&s, 95, 1, 128, 64);
	close_stored(&s);
}

static void test_rows(void **state)
{
	static const struct {
		enum dt_block_kind kind;
		enum dt_format f;
		int64_t cols;
	} kinds[] = {{DT_BLOCKS_Q8_0, DT_FMT_Q8_0, COLS},
		     {DT_BLOCKS_Q4_0, DT_FMT_Q4_0, COLS},
		     {DT_BLOCKS_Q4_K, DT_FMT_Q4_K, 256}};
	struct stored s;

	open_stored(&s);
	for (int k = 0; k < 3; k++) {
		int64_t cols = kinds[k].cols, bytes = dt_blocks_bytes(kinds[k].kind, N, N);
		uint8_t *data = malloc((size_t)bytes);
		float *want = malloc(N * sizeof(*want)), *y = malloc(N * sizeof(*y));
		const struct dt_blocks_part part = {kinds[k].kind, data, bytes, 0, cols, N};

		dt_quantize(kinds[k].f, s.x, N, data);
		dt_dequantize(kinds[k].f, data, N, want);
		assert_int_equal(dev->ops->unpack(dev, dt_t2(y, DT_F32, N / cols, cols), &part), 0);
		assert_memory_equal(y, want, N * sizeof(*y));
		assert_int_equal(dev->ops->unpack(dev, dt_t2(y, DT_F32, COLS, ROWS - 1), &part), -EINVAL);
		free(data);
		free(want);
		free(y);
	}
	close_stored(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_encode),
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_rows),
	};
	int rc;

	if (dt_dev_open(&dev, DT_DEV_CPU, 0, 2) < 0)
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
