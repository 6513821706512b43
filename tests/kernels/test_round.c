/* Weights rounded to blocks, and read from them: the bits of the format's own writer and reader. */
#include "group.h"

#include "kernels/unpack.h"

/* Every format and type: what the format's own writer and reader make of each row. */
static void test_round(void **state)
{
	static const enum dt_dtype types[] = {DT_F32, DT_BF16, DT_F16};
	enum { WIDE = 1280, HIGH = 37, ALL = WIDE * HIGH };
	float *x = malloc(ALL * sizeof(*x)), *want = malloc(ALL * sizeof(*want));
	uint16_t *y = malloc(ALL * sizeof(*x)); /* of f32 too */
	uint8_t *blocks = malloc(2 * ALL);

	for (int f = 0; f < DT_FMT_N; f++) {
		const enum dt_format fmt = (enum dt_format)f;

		for (int k = 0; k < 3; k++) {
			const enum dt_dtype t = types[k];
			struct dt_tensor w = dt_t2(y, t, HIGH, WIDE);

			for (int i = 0; i < ALL; i++) {
				float v = sinf((float)i * 0.37f) * (float)(1 + i % 7);

				y[t == DT_F32 ? 0 : i] = t == DT_BF16 ? dt_f32_to_bf16(v) : dt_f32_to_f16(v);
				x[i] = t == DT_F32    ? v
				       : t == DT_BF16 ? dt_bf16_to_f32(y[i])
						      : dt_f16_to_f32(y[i]);
			}
			if (t == DT_F32)
				memcpy(y, x, ALL * sizeof(*x));
			if (dt_format_info(fmt)->dtype >= 0) {
				assert_int_equal(dev->ops->round_blocks(dev, w, fmt), -EINVAL);
				continue;
			}
			for (int r = 0; r < HIGH; r++) {
				dt_quantize(fmt, x + r * WIDE, WIDE, blocks);
				dt_dequantize(fmt, blocks, WIDE, want + r * WIDE);
			}
			assert_int_equal(dev->ops->round_blocks(dev, w, fmt), 0);
			for (int i = 0; i < ALL; i++)
				if (t == DT_F32	   ? memcmp((float *)y + i, want + i, 4)
				    : t == DT_BF16 ? y[i] != dt_f32_to_bf16(want[i])
						   : y[i] != dt_f32_to_f16(want[i]))
					fail_msg("%s: element %d is not %g", dt_format_info(fmt)->name, i,
						 (double)want[i]);
		}
	}
	assert_int_equal(dev->ops->round_blocks(dev, dt_t2(y, DT_F32, 4, 48), DT_FMT_Q4_0), -EINVAL);
	free(x);
	free(want);
	free(y);
	free(blocks);
}

/* Every kind of blocks but nf4 (tests/unit/test_unpack.c), from the device's memory. */
static void test_unpack(void **state)
{
	enum { WIDE = 512, HIGH = 5, ALL = WIDE * HIGH };
	float *x = malloc(ALL * sizeof(*x)), *want = malloc(ALL * sizeof(*want)),
	      *got = malloc(ALL * sizeof(*got));
	uint8_t *blocks = malloc(2 * ALL);
	void *stored, *made;

	assert_int_equal(dt_dev_alloc(dev, &stored, 2 * ALL), 0);
	assert_int_equal(dt_dev_alloc(dev, &made, ALL * sizeof(*got)), 0);
	for (int i = 0; i < ALL; i++)
		x[i] = sinf((float)i * 0.37f) * (float)(1 + i % 7);
	for (int k = DT_BLOCKS_NONE + 1; k < DT_BLOCKS_NF4; k++) {
		const enum dt_format f = dt_blocks_format((enum dt_block_kind)k);
		const int64_t bytes = (int64_t)dt_format_bytes(f, ALL);
		const struct dt_blocks_part part = {(enum dt_block_kind)k, stored, bytes, 0, WIDE, ALL};

		dt_quantize(f, x, ALL, blocks);
		dt_dequantize(f, blocks, ALL, want);
		assert_int_equal(dt_dev_copy(dev, stored, blocks, (size_t)bytes), 0);
		assert_int_equal(dev->ops->unpack(dev, dt_t2(made, DT_F32, HIGH, WIDE), &part), 0);
		assert_int_equal(dt_dev_copy(dev, got, made, ALL * sizeof(*got)), 0);
		assert_int_equal(dt_dev_sync(dev), 0);
		if (memcmp(got, want, ALL * sizeof(*got)))
			fail_msg("%s: not what its reader makes of it", dt_format_info(f)->name);
	}
	dt_dev_free(dev, stored);
	dt_dev_free(dev, made);
	free(x);
	free(want);
	free(got);
	free(blocks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_round), cmocka_unit_test(test_unpack)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
