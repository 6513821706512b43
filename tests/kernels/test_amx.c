/*
 * Products by tiles: what stands in for the instructions against exact arithmetic; packed products of it and
 * of the instructions, which a processor without them has trapped, against quant_plain.c and the order of
 * amx.h.
 */
#include "check.h"

#ifdef __x86_64__
#include "amx_trap.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/quant.h"
#include "kernels/cpu/tile.h"

static struct dt_amx_config shapes(int rows, int words)
{
	struct dt_amx_config c = {.palette = 1};

	c.rows[0] = c.rows[1] = (uint8_t)rows;
	c.rows[2] = (uint8_t)words;
	c.bytes[0] = c.bytes[2] = 64;
	c.bytes[1] = (uint16_t)(4 * words);
	return c;
}

static int byte_of(uint32_t stream, int64_t i)
{
	return (int)(rnd(stream, i) * 128 + 128);
}

static void integers(int (*dot)(struct dt_amx_tiles *amx, int c, int a, int b))
{
	struct dt_amx_tiles amx;
	uint8_t a[16][64], b[16][64];
	int32_t c[16][16], was[16][16];

	for (int words = 1; words <= 16; words += 5) {
		const struct dt_amx_config config = shapes(13, words);

		for (int i = 0; i < 1024; i++) {
			a[i / 64][i % 64] = i < 64 ? 0x80 : (uint8_t)byte_of(1, i);
			b[i / 64][i % 64] = i % 3 ? (uint8_t)byte_of(2, i) : 0x80;
			was[i / 64][i % 16] = c[i / 64][i % 16] = (int32_t)(rnd(3, i) * 1e6);
		}
		assert_int_equal(dt_amx_configure(&amx, &config), 0);
		assert_int_equal(dt_amx_load(&amx, 0, c, 64), 0);
		assert_int_equal(dt_amx_load(&amx, 1, a, 64), 0);
		assert_int_equal(dt_amx_load(&amx, 2, b, 64), 0);
		assert_int_equal(dot(&amx, 0, 1, 2), 0);
		assert_int_equal(dt_amx_store(&amx, 0, c, 64), 0);
		for (int i = 0; i < 16; i++)
			for (int j = 0; j < 16; j++) {
				int64_t sum = was[i][j];

				for (int k = 0; k < 4 * words && i < 13; k++) {
					const uint8_t x = a[i][k], y = b[k / 4][4 * j + k % 4];

					sum += (dot == dt_amx_dot_us ? x : (int8_t)x) *
					       (dot == dt_amx_dot_su ? y : (int8_t)y);
				}
				assert_int_equal(c[i][j], sum);
			}
	}
}

static void test_integers(void **state)
{
	integers(dt_amx_dot_ss);
	integers(dt_amx_dot_su);
	integers(dt_amx_dot_us);
}

/* Shapes that the processor refuses. */
static void test_refused(void **state)
{
	struct dt_amx_config c = shapes(16, 8);
	struct dt_amx_tiles amx;
	uint8_t some[16 * 64];

	assert_int_equal(dt_amx_configure(&amx, &c), 0);
	assert_int_equal(dt_amx_zero(&amx, 3), -EINVAL);
	assert_int_equal(dt_amx_load(&amx, 8, some, 64), -EINVAL);
	assert_int_equal(dt_amx_dot_ss(&amx, 0, 2, 1), -EINVAL);
	assert_int_equal(dt_amx_dot_ss(&amx, 0, 1, 1), -EINVAL);
	c.rows[1] = 15;
	assert_int_equal(dt_amx_configure(&amx, &c), 0);
	assert_int_equal(dt_amx_dot_bf16(&amx, 0, 1, 2), -EINVAL);
	c.rows[1] = 17;
	assert_int_equal(dt_amx_configure(&amx, &c), -EINVAL);
	c.rows[1] = 0; /* and some bytes */
	assert_int_equal(dt_amx_configure(&amx, &c), -EINVAL);
}

/*
 * x, exact but for far less than matters, as f32: to nearest even with any exponent, then what is smaller
 * than any normal number becomes zero.
 */
static float rounded(__float128 x)
{
	const float wide = (float)(x * 0x1p60q); /* normal wherever it matters */

	if (x == 0 || fabsf(wide) >= 0x1p-66f)
		return (float)x;
	return copysignf(0, wide);
}

static float normal(float x)
{
	return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* amx.h's order, for one element of c. */
static float reference(float c, const uint16_t *a, int64_t step_a, const uint16_t *b, int64_t step_b,
		       int words)
{
	float sum[2] = {0, 0};

	for (int k = 0; k < words; k++)
		for (int e = 0; e < 2; e++)
			sum[e] = rounded((__float128)normal(dt_bf16_to_f32(a[k * step_a + e])) *
						 normal(dt_bf16_to_f32(b[k * step_b + e])) +
					 sum[e]);
	return rounded((__float128)normal(c) + rounded((__float128)sum[0] + sum[1]));
}

static void check_bits(const char *what, int64_t i, int64_t j, float got, float want)
{
	if (memcmp(&got, &want, 4))
		fail_msg("%s: [%lld, %lld] %a, not %a", what, (long long)i, (long long)j, (double)got,
			 (double)want);
}

/* Numbers of any size and about the smallest; the rest of a tile stays as it is. */
static void test_bf16(void **state)
{
	static const int least[] = {-20, -70, -64, -63};
	const struct dt_amx_config config = shapes(16, 16);
	struct dt_amx_tiles amx;
	uint16_t a[16][32], b[16][32];
	float c[16][16], was[16][16];
	int zeros = 0;

	for (int round = 0; round < 4; round++) {
		const int range = round ? 8 : 40;

		for (int i = 0; i < 512; i++) {
			a[i / 32][i % 32] = dt_f32_to_bf16(
				(float)ldexp(rnd(4, i + 512 * round), least[round] + byte_of(5, i) % range));
			b[i / 32][i % 32] = dt_f32_to_bf16(
				(float)ldexp(rnd(6, i + 512 * round), least[round] + byte_of(7, i) % range));
		}
		for (int i = 0; i < 256; i++)
			was[i / 16][i % 16] = i % 2 ? 0 : (float)ldexp(rnd(8, i), 2 * least[round]);
		memcpy(c, was, sizeof c);
		assert_int_equal(dt_amx_configure(&amx, &config), 0);
		dt_amx_load(&amx, 0, c, 64);
		dt_amx_load(&amx, 1, a, 64);
		dt_amx_load(&amx, 2, b, 64);
		assert_int_equal(dt_amx_dot_bf16(&amx, 0, 1, 2), 0);
		dt_amx_store(&amx, 0, c, 64);
		for (int i = 0; i < 16; i++)
			for (int j = 0; j < 16; j++) {
				check_bits("bf16", i, j, c[i][j],
					   reference(was[i][j], a[i], 2, &b[0][2 * j], 32, 16));
				zeros += c[i][j] == 0;
			}
	}
	assert_true(zeros > 0); /* denormals were met */
}

/* 2^-126 - 1.5 x 2^-151 is denormal, though its nearest among denormals and normals is 2^-126. */
static void test_smallest(void **state)
{
	const float of[][2] = {{0x1p-63f, -0x1.8p-100f}, {-0x1p-63f, 0x1.8p-100f}, {0x1p-63f, -0x1p-103f}};
	const float by[] = {0x1p-63f, 0x1p-51f};
	const float want[] = {0, -0.f, 0x1p-126f};
	const struct dt_amx_config config = shapes(1, 2);
	struct dt_amx_tiles amx;

	for (int i = 0; i < 3; i++) {
		uint16_t a[4] = {dt_f32_to_bf16(of[i][0]), 0, dt_f32_to_bf16(of[i][1]), 0};
		uint16_t b[2][32] = {{dt_f32_to_bf16(by[0])}, {dt_f32_to_bf16(by[1])}};
		float c[16] = {-0.f};

		assert_int_equal(dt_amx_configure(&amx, &config), 0);
		dt_amx_load(&amx, 0, c, 64);
		dt_amx_load(&amx, 1, a, 64);
		dt_amx_load(&amx, 2, b, 64);
		assert_int_equal(dt_amx_dot_bf16(&amx, 0, 1, 2), 0);
		dt_amx_store(&amx, 0, c, 64);
		/* the odd chain is +0, and so is -0 + 0 */
		check_bits("smallest", i, 0, c[0], i == 1 ? 0 : want[i]);
		check_bits("reference", i, 0, reference(-0.f, a, 2, b[0], 32, 2), c[0]);
	}
}

/* Every kernel by tiles: of the instructions one with AVX2 around them, which runs nowhere but here. */
static const struct kernel {
	const char *name;
	bool avx512, vnni, instructions; /* what it is made of */
	dt_quant_mul_fn *quants, *bf16;
	struct dt_tile tile;
} kernels[] = {
#define TILE(name)                                                                                           \
	{                                                                                                    \
		.begin = dt_tile_begin_##name, .end = dt_tile_end_##name, .mul = dt_tile_mul_##name,         \
		.mul_across = dt_tile_mul_across_##name, .mul_down = dt_tile_mul_down_##name,                \
		.mul_asking = dt_tile_mul_asking_##name                                                      \
	}
	{"stand-in, AVX2", false, false, false, dt_quant_mul_amx_plain_v3, dt_quant_mul_bf16_amx_plain_v3,
	 TILE(amx_plain_v3)},
	{"stand-in, AVX-512", true, false, false, dt_quant_mul_amx_plain_v4, dt_quant_mul_bf16_amx_plain_v4,
	 TILE(amx_plain_v4)},
	{"instructions, AVX2", false, false, true, dt_quant_mul_amx_v3, dt_quant_mul_bf16_amx_v3,
	 TILE(amx_v3)},
	{"instructions, AVX-512", true, true, true, dt_quant_mul_amx, dt_quant_mul_bf16_amx, TILE(amx)},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static bool can(const struct kernel *k)
{
	const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
		   avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
			    __builtin_cpu_supports("avx512dq");

	return avx2 && (!k->avx512 || avx512) && (!k->vnni || __builtin_cpu_supports("avx512vnni"));
}

/* Without AMX its instructions are trapped; end: whether some were met. */
static bool begin(const struct kernel *k)
{
	const bool trap = k->instructions && dt_isa()->amx != DT_AMX_TILES;

	if (trap)
		amx_trap_begin();
	return trap;
}

static void end(const struct kernel *k, bool trap)
{
	if (trap && amx_trap_end() == 0)
		fail_msg("%s: none was met", k->name);
}

static void call(const struct kernel *k, dt_quant_mul_fn *fn, struct dt_tensor y, enum dt_format f,
		 const struct dt_packed_part *p, const void *x, int64_t m, int64_t blocks)
{
	bool trap;

	memset(y.data, 0xff, bytes_of(y));
	trap = begin(k);
	fn(y.data, dt_cols(y), f, p->data, p->panel_bytes, p->panels, NULL, x, NULL, m, blocks);
	end(k, trap);
}

/* m rows of bytes as tiles; memory has them. */
static struct dt_quant_tiles tiles(void **memory, const int8_t *q, const struct dt_xblock *xb, int64_t m,
				   int64_t blocks)
{
	struct dt_quant_tiles t = {.n = 1, .m = m, .blocks = blocks};
	const size_t bytes = dt_quant_tiles_bytes(&t);

	*memory = bytes ? aligned_alloc(64, bytes) : NULL;
	if (bytes)
		memset(*memory, 0xff, bytes); /* NaN, where nothing is filled in */
	dt_quant_tiles_lay(&t, *memory);
	for (int64_t r = 0; r < m; r++)
		dt_quant_tiles_fill(&t, r, q, xb);
	return t;
}

static struct dt_packed *packed(struct dt_dev *dev, enum dt_format as, int64_t n, int64_t k)
{
	struct dt_tensor w = random_tensor(DT_F32, n, k, 9, 1);
	struct dt_packed *p;

	if (as == DT_FMT_Q8_0) /* the largest and the least integer too */
		for (int64_t i = 0; i < k; i++)
			((float *)w.data)[i] = i % 64 < 32 ? 1 : -1;
	assert_int_equal(dt_packed_open(&p, dev, k), 0);
	assert_int_equal(dt_packed_append(p, dev, as, DT_FMT_F32, w.data, n), 0);
	free(w.data);
	return p;
}

/* Odd numbers of panels, and of blocks where a format's blocks allow it. */
static const struct {
	int64_t n, k;
} sizes[] = {{16, 256}, {48, 1280}, {80, 256}, {96, 1184}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static const int64_t rows[] = {1, 7, 8, 14, 16, 17, 28, 33, 48};

/* The products of every kernel with the first of these rows of x, bit by bit. */
static void compare(enum dt_format f, const struct dt_packed_part *p, const void *x,
		    const struct dt_xblock *xb, struct dt_tensor want, int64_t blocks)
{
	const int64_t n = dt_cols(want);
	const bool bf16 = f == DT_FMT_BF16;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (const struct kernel *c = kernels; c < kernels + KERNELS; c++) {
			const int64_t most = dt_ceil_div(rows[i], DT_XTILE_ROWS) * DT_XTILE_ROWS;
			struct dt_tensor got = tensor(DT_F32, most, n);
			const void *from = x;
			void *memory = NULL;

			if (!bf16) {
				struct dt_quant_tiles t = tiles(&memory, x, xb, rows[i], blocks);

				if (!t.n) /* too few rows for tiles of their own: those of all */
					t = tiles(&memory, x, xb, rows[sizeof rows / sizeof *rows - 1],
						  blocks);
				from = dt_quant_tiles_at(&t, 0);
			}
			if (can(c))
				call(c, bf16 ? c->bf16 : c->quants, got, f, p, from, rows[i], blocks);
			free(memory);
			for (int64_t j = 0; can(c) && j < rows[i] * n; j++)
				if (isnan(get(want, j)))
					assert_true(isnan(get(got, j)));
				else
					check_bits(c->name, j / n, j % n, (float)get(got, j),
						   (float)get(want, j));
			free(got.data);
		}
}

static void test_quants(void **state)
{
	static const enum dt_format formats[] = {DT_PANEL_FORMATS(DT_FORMAT_ENTRY)};
	struct dt_dev *dev = *state;

	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
		for (size_t s = 0; s < SIZES; s++) {
			const int64_t n = sizes[s].n, k = sizes[s].k, blocks = k / 32, most = 48;

			if (k % dt_format_info(formats[f])->block)
				continue;
			struct dt_packed *w = packed(dev, formats[f], n, k);
			struct dt_tensor x = random_tensor(DT_F32, most, k, 10, 2);
			struct dt_tensor want = tensor(DT_F32, most, n);
			int8_t *q = malloc((size_t)(most * k));
			struct dt_xblock *xb = malloc((size_t)(most * blocks) * sizeof *xb);

			((float *)x.data)[5 * k] = NAN;
			for (int64_t r = 0; r < most; r++)
				dt_quant_row_plain(q + r * k, xb + r * blocks, (float *)x.data + r * k,
						   DT_F32, blocks);
			dt_quant_mul_plain(want.data, n, formats[f], w->part->data, w->part->panel_bytes,
					   w->part->panels, NULL, q, xb, most, blocks);
			for (int64_t j = 0; j < n; j++)
				assert_true(isnan(get(want, 5 * n + j)));
			compare(formats[f], w->part, q, xb, want, blocks);
			dt_packed_close(w);
			free(x.data);
			free(want.data);
			free(q);
			free(xb);
		}
}

/* Bits depend on the row alone, whatever its neighbours. */
static void test_bf16_panels(void **state)
{
	struct dt_dev *dev = *state;

	for (size_t s = 0; s < SIZES; s++) {
		const int64_t n = sizes[s].n, k = sizes[s].k, blocks = k / 32, most = 48;
		struct dt_packed *w = packed(dev, DT_FMT_BF16, n, k);
		struct dt_tensor x = random_tensor(DT_BF16, most, k, 11, 1), want = tensor(DT_F32, most, n);

		for (int64_t r = 0; r < most; r++)
			for (int64_t j = 0; j < n; j++) {
				const uint16_t *a = (uint16_t *)x.data + r * k;
				const uint8_t *panel = w->part->data + j / 16 * w->part->panel_bytes;
				float sum = 0;

				for (int64_t b = 0; b < blocks; b++)
					sum = reference(sum, a + 32 * b, 2,
							(const uint16_t *)(panel + 1024 * b) + 2 * (j % 16),
							32, 16);
				put(want, r * n + j, sum);
			}
		compare(DT_FMT_BF16, w->part, x.data, NULL, want, blocks);
		dt_packed_close(w);
		free(x.data);
		free(want.data);
	}
}

/* Products of attention's tiles: bands, edges of a sequence, odd heads; a of words that lie DT_TILE apart. */
static const struct product {
	int64_t rows, cols, words;
	bool across, accumulate, asking;
} products[] = {
	{16, 64, 32, false, false},
	{16, 16, 8, false, false},
	{7, 48, 20, false, false},
	{1, 32, 33, false, false},
	{16, 64, 8, false, true},
	{9, 144, 24, false, true},
	{16, 128, 32, false, true},
	{64, 64, 32, true, true},
	{16, 80, 24, true, true},
	{64, 144, 32, true, true},
	{16, 64, 8, true, true},
	{16, 64, 64, .asking = true},
	{16, 16, 16, .accumulate = true, .asking = true},
};

enum { LD = 160, TALL = 80 }; /* of all operands, with room behind what is read and written */

/* Word w of row i of a product's first operand. */
static int64_t word_at(const struct product *p, int64_t i, int64_t w)
{
	return p->across ? w * DT_TILE + i : i * LD + w;
}

static void check_product(const struct kernel *k, const struct product *p)
{
	static uint32_t a[TALL * LD], b[TALL * LD];
	static float was[TALL * LD], c[TALL * LD];
	const struct dt_tile_next next = {p->accumulate ? NULL : b, 64, LD};
	bool trap;

	for (int64_t i = 0; i < TALL * LD; i++) { /* what is not the operands' is NaN */
		a[i] = b[i] = 0x7fc07fc0;
		was[i] = (float)rnd(12, i);
	}
	for (int64_t w = 0; w < p->words; w++) {
		for (int64_t i = 0; i < p->rows; i++)
			a[word_at(p, i, w)] = dt_f32_to_bf16((float)rnd(13, i * LD + w)) |
					      (uint32_t)dt_f32_to_bf16((float)rnd(14, i * LD + w)) << 16;
		for (int64_t j = 0; j < p->cols; j++)
			b[w * LD + j] = dt_f32_to_bf16((float)rnd(15, w * LD + j)) |
					(uint32_t)dt_f32_to_bf16((float)rnd(16, w * LD + j)) << 16;
	}
	memcpy(c, was, sizeof c);
	trap = begin(k);
	dt_tile_begin(&k->tile, p->rows);
	if (p->asking)
		k->tile.mul_asking(c, LD, a, LD, b, LD, p->cols, p->words, p->accumulate, next);
	else
		k->tile.mul(c, LD, a, p->across ? 1 : LD, p->across ? DT_TILE : 1, b, LD, p->rows, p->cols,
			    p->words, p->accumulate);
	dt_tile_end(&k->tile);
	end(k, trap);
	for (int64_t i = 0; i < TALL; i++)
		for (int64_t j = 0; j < LD; j++) {
			const bool inside = i < p->rows && j < p->cols;
			float want = inside && !p->accumulate ? 0 : was[i * LD + j];

			for (int64_t w = 0; inside && w < p->words; w += 16)
				want = reference(want, (uint16_t *)(a + word_at(p, i, w)),
						 2 * (word_at(p, i, 1) - word_at(p, i, 0)),
						 (uint16_t *)(b + w * LD + j), 2 * LD,
						 (int)(p->words - w < 16 ? p->words - w : 16));
			check_bits(k->name, i, j, c[i * LD + j], want);
		}
}

static void test_attention_tiles(void **state)
{
	for (const struct kernel *k = kernels; k < kernels + KERNELS; k++)
		for (size_t i = 0; can(k) && i < sizeof products / sizeof *products; i++)
			check_product(k, &products[i]);
}

/* Products of few rows by other instructions, in the same order; the smallest numbers too. */
static void test_few_rows(void **state)
{
	static const struct kernel few = {.name = "few rows", .tile = {.mul = dt_tile_mul_few_bf16}};
	static uint16_t a[64], b[32 * 2 * 80];
	float c[80], was[80];
	int small = 0;

	if (!__builtin_cpu_supports("avx512bf16")) {
		print_message("no AVX512_BF16\n");
		skip();
	}
	for (size_t i = 0; i < sizeof products / sizeof *products; i++)
		if (!products[i].across && !products[i].asking)
			check_product(&few, &products[i]);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 64; i++)
			a[i] = dt_f32_to_bf16(
				(float)ldexp(rnd(25, i + 64 * round), -70 + byte_of(26, i) % 12));
		for (int i = 0; i < 32 * 2 * 80; i++)
			b[i] = dt_f32_to_bf16((float)ldexp(rnd(27, i), -66 + byte_of(28, i + round) % 10));
		for (int j = 0; j < 80; j++) {
			c[j] = j % 2 ? 0 : (float)ldexp(rnd(29, j), -130 + j % 8);
			small += c[j] != 0 && fabsf(c[j]) < 0x1p-126f;
		}
		memcpy(was, c, sizeof c);
		dt_tile_mul_few_bf16(c, 80, (uint32_t *)a, 32, 1, (uint32_t *)b, 80, 1, 80, 32, true);
		for (int j = 0; j < 80; j++)
			check_bits("few rows, small", round, j, c[j],
				   reference(reference(was[j], a, 2, b + 2 * j, 160, 16), a + 32, 2,
					     b + 16 * 160 + 2 * j, 160, 16));
	}
	assert_true(small > 0);
}

/* Rows of words [m to 16, LD] of small numbers, and four groups of n words; the rest is NaN. */
static void fill_groups(uint32_t *a, int64_t m, int64_t words, uint32_t (*b)[TALL * LD], int64_t n)
{
	for (int64_t i = 0; i < TALL * LD; i++) {
		a[i] = i / LD < (m + 15) / 16 * 16 && i % LD < words
			       ? dt_f32_to_bf16((float)rnd(17, i)) |
					 (uint32_t)dt_f32_to_bf16((float)rnd(18, i)) << 16
			       : 0x7fc07fc0;
		for (int g = 0; g < 4; g++)
			b[g][i] = i < n ? dt_f32_to_bf16((float)rnd(19 + (uint32_t)g, i)) |
						  (uint32_t)dt_f32_to_bf16((float)rnd(23, g * n + i)) << 16
					: 0x7fc07fc0;
	}
}

/* Scores with keys in groups: 16 keys of `words` words each. */
static void check_across(const struct kernel *k, int64_t m, int64_t words)
{
	static uint32_t a[TALL * LD], b[4][TALL * LD];
	static float c[TALL * LD];
	const uint32_t *const group[4] = {b[0], b[1], b[2], b[3]};
	bool trap;

	fill_groups(a, m, words, b, 16 * words);
	memset(c, 0xff, sizeof c);
	trap = begin(k);
	k->tile.begin(m);
	k->tile.mul_across(c, LD, a, LD, group, group, m, words);
	k->tile.end();
	end(k, trap);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < 64; j++) {
			float want = 0;

			for (int64_t w = 0; w < words; w += 16)
				want = reference(want, (uint16_t *)(a + i * LD + w), 2,
						 (uint16_t *)(b[j / 16] + 16 * w + j % 16), 32, 16);
			check_bits(k->name, i, j, c[i * LD + j], want);
		}
}

/* Values in groups of eight pairs, of which those from first to last count, by sums over 32 keys. */
static void check_down(const struct kernel *k, int64_t m, int64_t cols, int64_t first, int64_t last)
{
	static uint32_t a[TALL * LD], b[4][TALL * LD], joined[32][LD];
	static float was[TALL * LD], c[TALL * LD];
	const uint32_t *const group[4] = {b[0], b[1], b[2], b[3]};
	bool trap;

	fill_groups(a, m, 32, b, 8 * cols);
	for (int64_t i = 0; i < TALL * LD; i++)
		c[i] = was[i] = (float)rnd(24, i);
	for (int64_t w = 0; w < 32; w++)
		for (int64_t j = 0; j < cols; j++)
			joined[w][j] = w >= first && w < last ? b[w / 8][w % 8 * cols + j] : 0;
	trap = begin(k);
	k->tile.begin(m);
	k->tile.mul_down(c, LD, a, LD, group, group, m, cols, first, last);
	k->tile.end();
	end(k, trap);
	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < cols; j++) {
			float want = was[i * LD + j];

			for (int64_t w = 0; w < last; w += 16)
				want = reference(want, (uint16_t *)(a + i * LD + w), 2,
						 (uint16_t *)(joined[w] + j), 2 * LD, 16);
			check_bits(k->name, i, j, c[i * LD + j], want);
		}
}

/* A server's, with caches that lie in groups: a token's few rows, and a prompt's. */
static void test_groups(void **state)
{
	for (const struct kernel *k = kernels; k < kernels + KERNELS; k++) {
		for (int64_t m = 1; can(k) && m <= 64; m = 3 * m + 1) {
			check_across(k, m, m < 16 ? 16 : 48);
			check_down(k, m, m < 16 ? 96 : 64, 0, 32);
		}
		if (can(k)) {
			check_down(k, 2, 32, 8, 13);
			check_down(k, 63, 128, 16, 32);
		}
	}
}

static int setup(void **state)
{
	struct dt_dev *dev;

	if (dt_dev_open(&dev, DT_DEV_CPU, 0, 1) < 0)
		return -1;
	*state = dev;
	print_message("isa %s\n", dt_dev_isa(dev));
	for (const struct kernel *k = kernels; k < kernels + KERNELS; k++)
		if (!can(k))
			print_message("not on this processor: %s\n", k->name);
	if (dt_isa()->amx != DT_AMX_TILES)
		print_message("the instructions are trapped\n");
	return 0;
}

static int teardown(void **state)
{
	dt_dev_close(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_smallest),
		cmocka_unit_test(test_quants),
		cmocka_unit_test(test_bf16_panels),
		cmocka_unit_test(test_attention_tiles),
		cmocka_unit_test(test_few_rows),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
#else
int main(void)
{
	puts("no x86-64");
	return 77;
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
