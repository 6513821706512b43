/* Weights rounded to blocks, to the bit what a format's own writer and reader make of them. */
#include "group.h"

#include "kernels/quant_formats.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_round)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
