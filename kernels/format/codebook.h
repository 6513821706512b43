/*
 * Formats whose magnitudes come from a codebook: x = d B_FACTOR (2 s + 1) (+/- v), 256 elements, d f16, s
 * of 4 bits for each B_EACH elements, v of entry e of the codebook for each B_GROUP elements, a sign per
 * element. A format's file defines these and includes this file, which has no guard: each format has its
 * own copy.
 *
 *   B_BYTES, B_FACTOR, B_EACH
 *   B_GROUP, B_BITS  elements of an entry (4 or 8), and bits of each (iq_grids.h)
 *   B_ENTRIES        entries of the codebook `grid`
 *   B_VALUE(m)       the magnitude with index m
 *   B_EVEN           whether of eight signs an even number is negative
 *   struct fields    what a block says: fields_of reads a block, fields_put writes one but for d
 *
 * encode finds the best entry of each group by trying all of them, for several scales (search.h).
 */
#ifdef B_GROUP
#define B_SUBS	      (256 / B_EACH)
#define B_GROUPS      (256 / B_GROUP)
#define B_INDEX(e, j) (grid[e] >> B_BITS * (j) & ((1 << B_BITS) - 1))
#define B_HALF	      (B_GROUP / 2 * B_BITS) /* bits of half an entry */
#define B_TRIES	      9
#define B_TOP	      B_VALUE((1 << B_BITS) - (B_BITS == 2 ? 2 : 1))

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 256, s += B_BYTES, y += 256) {
		const float d = dt_half_at(s) * B_FACTOR;
		struct codebook_fields f;

		fields_of(s, &f);
		for (int i = 0; i < 256; i++) {
			const int v = B_VALUE(B_INDEX(f.entry[i / B_GROUP], i % B_GROUP));

			y[i] = d * (float)(2 * f.scale[i / B_EACH] + 1) *
			       (float)(f.sign[i / 8] >> i % 8 & 1 ? -v : v);
		}
	}
}

#ifdef DT_FORMAT_HOST
static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	struct codebook_fields f;

	fields_of(s, &f);
	r->d = dt_u16_at(s);
	r->sc = (uint8_t)(2 * f.scale[32 * j / B_EACH] + 1);
	r->mn = (uint8_t)(2 * f.scale[(32 * j + 16) / B_EACH] + 1);
	for (int i = 32 * j; i < 32 * j + 32; i++)
		r->q[i % 32] = (uint8_t)(B_INDEX(f.entry[i / B_GROUP], i % B_GROUP) |
					 (f.sign[i / 8] >> i % 8 & 1) << B_BITS);
}
#endif

/* The entry nearest to the magnitudes a / step, by squared error with weights w. */
static DT_FORMAT_CODE int nearest(const float *a, const float *w, float inverse)
{
	float cost[2][1 << B_HALF], least = INFINITY;
	int ret = 0;

	for (int h = 0; h < 2; h++)
		for (int e = 0; e < 1 << B_HALF; e++) {
			cost[h][e] = 0;
			for (int j = 0; j < B_GROUP / 2; j++) {
				const float v = (float)B_VALUE(e >> B_BITS * j & ((1 << B_BITS) - 1));
				const int i = h * B_GROUP / 2 + j;

				cost[h][e] += w[i] * v * (v - 2 * a[i] * inverse);
			}
		}
	for (int e = 0; e < B_ENTRIES; e++) {
		const float c = cost[0][grid[e] & ((1 << B_HALF) - 1)] + cost[1][grid[e] >> B_HALF];

		ret = c < least ? e : ret;
		least = c < least ? c : least;
	}
	return ret;
}

/* Sums of a scale's elements for their nearest entries: w q^2, and w a q. */
struct codebook_sums {
	float qq, aq;
};

static DT_FORMAT_CODE struct codebook_sums entries_of(const float *a, const float *w, float inverse,
						      uint16_t *entry)
{
	struct codebook_sums s = {0, 0};

	for (int g = 0; g < B_EACH / B_GROUP; g++) {
		const float *x = a + g * B_GROUP, *by = w + g * B_GROUP;

		entry[g] = (uint16_t)nearest(x, by, inverse);
		for (int j = 0; j < B_GROUP; j++) {
			const float v = (float)B_VALUE(B_INDEX(entry[g], j));

			s.qq += by[j] * v * v;
			s.aq += by[j] * x[j] * v;
		}
	}
	return s;
}

/*
 * Signs of eight numbers; replaces these by their magnitudes. Where signs must be even, the one that matters
 * least may be wrong: its magnitude becomes negative.
 */
static DT_FORMAT_CODE uint8_t take_signs(float *x, const float *w)
{
	unsigned sign = 0, parity = 0;
	int least = 0;

	for (int j = 0; j < 8; j++) {
		const bool negative = x[j] < 0;

		sign |= (unsigned)negative << j;
		parity ^= negative;
		x[j] = negative ? -x[j] : x[j];
		least = w[j] * x[j] * x[j] < w[least] * x[least] * x[least] ? j : least;
	}
	if (B_EVEN && parity) {
		x[least] = -x[least];
		sign ^= 1u << least;
	}
	return (uint8_t)sign;
}

/* The scale, in units of the values, that fits the best of several roundings; 0: none. */
static DT_FORMAT_CODE float fit(const float *a, const float *w)
{
	float most = 0, best = 0, scale = 0;
	uint16_t entry[B_EACH / B_GROUP];

	for (int i = 0; i < B_EACH; i++)
		most = a[i] > most ? a[i] : most;
	for (int t = 0; most > DT_LEAST && t < B_TRIES; t++) {
		const float to = (float)B_TOP * (0.55f + 0.075f * (float)t);
		const struct codebook_sums s = entries_of(a, w, to / most, entry);

		if (s.qq > 0 && s.aq > 0 && s.aq * s.aq > best * s.qq) {
			best = s.aq * s.aq / s.qq;
			scale = s.aq / s.qq;
		}
	}
	return scale;
}

/* Chooses s of a scale, near `about`, and its entries. */
static DT_FORMAT_CODE void settle(const float *a, const float *w, float d, int about, uint8_t *scale,
				  uint16_t *entry)
{
	uint16_t tried[B_EACH / B_GROUP];
	float least = INFINITY;

	for (int k = about > 0 ? about - 1 : 0; k <= about + 1 && k < 16; k++) {
		const float step = d * (float)(2 * k + 1);
		const struct codebook_sums s = entries_of(a, w, dt_inverse_of(step), tried);
		const float error = step * (step * s.qq - 2 * s.aq);

		if (error < least) {
			least = error;
			*scale = (uint8_t)k;
			memcpy(entry, tried, sizeof tried);
		}
	}
}

static DT_FORMAT_CODE void weighted(const struct dt_format_traits *t, const float *x, const float *w,
				    uint8_t *out)
{
	float a[256], scale[B_SUBS], most = 0, d;
	struct codebook_fields f;

	for (int i = 0; i < 256; i++)
		a[i] = x[i];
	for (int g = 0; g < 32; g++)
		f.sign[g] = take_signs(a + 8 * g, w + 8 * g);
	for (int j = 0; j < B_SUBS; j++) {
		scale[j] = fit(a + j * B_EACH, w + j * B_EACH);
		most = scale[j] > most ? scale[j] : most;
	}
	d = dt_put_half(out, most / (31 * B_FACTOR)) * B_FACTOR;
	for (int j = 0; j < B_SUBS; j++)
		settle(a + j * B_EACH, w + j * B_EACH, d, d > 0 ? dt_near((scale[j] / d - 1) / 2, 0, 15) : 0,
		       &f.scale[j], f.entry + j * B_EACH / B_GROUP);
	fields_put(&f, out);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, out += B_BYTES) {
		float x[256], w[256];

		dt_take_finite(src, 256, x);
		dt_own_weights(x, 32, w);
		weighted(t, x, w, out);
	}
}
#undef B_BYTES
#undef B_FACTOR
#undef B_EACH
#undef B_GROUP
#undef B_GROUPS
#undef B_SUBS
#undef B_BITS
#undef B_ENTRIES
#undef B_VALUE
#undef B_EVEN
#undef B_INDEX
#undef B_HALF
#undef B_TRIES
#undef B_TOP
#undef DT_IQ_GRID
#endif
/* SPDX-License-Identifier: Apache-2.0 */
