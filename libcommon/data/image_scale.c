/*
 * Scaling as in Pillow (src/libImaging/Resample.c, facts only): weights of a filter, widened by the
 * reduction, normalised in double, then in fixed point of 22 bits; first along rows, rounded to 8 bits,
 * then along columns.
 *
 * Both passes compute LANES results with the same weights at a time. Along columns these are neighbours in a
 * row. Along rows they are of LANES rows, which are transposed before and after.
 */
#include "base/clones.h"
#include "data/image_codec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BITS  22
#define LANES 16

#define ALWAYS static inline __attribute__((always_inline))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte c of a word is column c");
typedef int32_t sums __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef uint16_t halves
	__attribute__((vector_size(LANES * sizeof(uint16_t)))); /* gcc 12 widens well by 2 only */
typedef uint8_t bytes __attribute__((vector_size(LANES)));

struct space {
	uint8_t *rows;	 /* scaled rows, before the columns */
	uint8_t *turned; /* LANES bytes for each input and each result of a row */
};

struct weights {
	int taps;   /* weights reserved for each output */
	int *first; /* [output] first input */
	int *n;	    /* [output] number of inputs */
	int32_t *w; /* weights of output i start at i * taps */
};

static void weights_release(struct weights *k)
{
	free(k->first);
	free(k->n);
	free(k->w);
}

static double triangle(double x)
{
	x = fabs(x);
	return x < 1 ? 1 - x : 0;
}

/* Keys 1981, with a = -1/2. */
static double cubic(double x)
{
	const double a = -0.5;

	x = fabs(x);
	return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double sinc(double x)
{
	return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI);
}

static double lanczos(double x)
{
	return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct {
	double (*at)(double x);
	double radius; /* where it ends */
} filters[DT_IMAGE_FILTERS] = {[DT_IMAGE_BILINEAR] = {triangle, 1},
			       [DT_IMAGE_BICUBIC] = {cubic, 2},
			       [DT_IMAGE_LANCZOS] = {lanczos, 3}};

/* A weight in fixed point: halves go away from 0. */
static int32_t fixed(double w)
{
	return (int32_t)(w * (1 << BITS) + (w < 0 ? -0.5 : 0.5));
}

/*
 * Computes the weights of one output from its centre in inputs, clipped to the image. The filter is `widen`
 * times as wide as it is for enlarging.
 */
static void weigh(struct weights *k, enum dt_image_filter f, int i, double centre, double widen, int in,
		  double *v)
{
	const double radius = filters[f].radius * widen;
	int first = (int)(centre - radius + 0.5), last = (int)(centre + radius + 0.5);
	double sum = 0, narrow = 1 / widen; /* a product as in Pillow: dividing rounds differently */

	first = first < 0 ? 0 : first;
	last = last > in ? in : last;
	k->first[i] = first;
	k->n[i] = last - first;
	for (int j = 0; j < last - first; j++) {
		v[j] = filters[f].at((j + first - centre + 0.5) * narrow);
		sum += v[j];
	}
	for (int j = 0; j < last - first; j++)
		k->w[(size_t)i * (size_t)k->taps + (size_t)j] = fixed(sum != 0 ? v[j] / sum : v[j]);
}

/* The caller releases k, also after a failure. */
static int weights_make(struct weights *k, enum dt_image_filter f, int in, int out, struct dt_err *err)
{
	double scale = (double)in / out, widen = scale < 1 ? 1 : scale, *v;

	*k = (struct weights){.taps = (int)ceil(filters[f].radius * widen) * 2 + 1};
	k->first = malloc((size_t)out * sizeof(*k->first));
	k->n = malloc((size_t)out * sizeof(*k->n));
	k->w = calloc((size_t)out * (size_t)k->taps, sizeof(*k->w));
	v = malloc((size_t)k->taps * sizeof(*v));
	if (!k->first || !k->n || !k->w || !v) {
		free(v);
		return dt_err_sys(err, -ENOMEM, "cannot scale an image");
	}
	for (int i = 0; i < out; i++)
		weigh(k, f, i, (i + 0.5) * scale, widen, in, v);
	free(v);
	return 0;
}

/* Result i of inputs that begin at x, `step` bytes apart. */
static uint8_t weighted(const struct weights *k, int i, const uint8_t *x, size_t step)
{
	const int32_t *w = k->w + (size_t)i * (size_t)k->taps;
	int32_t sum = 1 << (BITS - 1);

	for (int j = 0; j < k->n[i]; j++)
		sum += x[(size_t)j * step] * w[j];
	sum >>= BITS;
	return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* The same of LANES neighbours. */
ALWAYS void put_sum(const struct weights *k, int i, const uint8_t *x, size_t step, uint8_t *y)
{
	const int32_t *w = k->w + (size_t)i * (size_t)k->taps;
	sums sum = (sums){0} + (1 << (BITS - 1));
	bytes v;

	for (int j = 0; j < k->n[i]; j++) {
		memcpy(&v, x + (size_t)j * step, sizeof(v));
		sum += __builtin_convertvector(__builtin_convertvector(v, halves), sums) * w[j];
	}
	sum >>= BITS;
	v = __builtin_convertvector((sum | ((255 - sum) >> 31)) & ~(sum >> 31) & 255, bytes);
	memcpy(y, &v, sizeof(v));
}

/*
 * Transposes 16 x 16 bytes: byte c of row r of x becomes byte r of row c of y. Rows are a step apart. 4 times
 * rows r and r + 8 are interleaved into rows 2 * r and 2 * r + 1, which turns an address left by a bit.
 */
ALWAYS void turn(const uint8_t *x, size_t x_step, uint8_t *y, size_t y_step)
{
	bytes a[LANES], b[LANES];

	for (int r = 0; r < LANES; r++)
		memcpy(&a[r], x + (size_t)r * x_step, LANES);
	for (int k = 0; k < 4; k++) {
		for (int r = 0; r < 8; r++) {
			b[2 * r] = __builtin_shufflevector(a[r], a[r + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20,
							   5, 21, 6, 22, 7, 23);
			b[2 * r + 1] = __builtin_shufflevector(a[r], a[r + 8], 8, 24, 9, 25, 10, 26, 11, 27,
							       12, 28, 13, 29, 14, 30, 15, 31);
		}
		memcpy(a, b, sizeof(a));
	}
	for (int c = 0; c < LANES; c++)
		memcpy(y + (size_t)c * y_step, &a[c], LANES);
}

/* Results begin .. end - 1 of one axis. */
struct span {
	const struct weights *k;
	int begin, end;
};

static int first_of(const struct span *s)
{
	return s->k->first[s->begin];
}

/* Inputs that the results need, from first_of on. */
static int inputs_of(const struct span *s)
{
	return s->k->first[s->end - 1] + s->k->n[s->end - 1] - first_of(s);
}

/* Scales a row, of which x is the first input. */
static void scale_row(const struct span *s, const uint8_t *x, uint8_t *y)
{
	const struct weights *k = s->k;

	for (int i = s->begin; i < s->end; i++)
		y[i - s->begin] = weighted(k, i, x + (k->first[i] - first_of(s)), 1);
}

/*
 * Scales LANES rows of x, `step` bytes apart, into rows of y that follow one another. turned: LANES bytes
 * for each input, then as many for each result. At least LANES inputs and results.
 */
static DT_CLONES void scale_rows(const struct span *s, const uint8_t *x, size_t step, uint8_t *turned,
				 uint8_t *y)
{
	const struct weights *k = s->k;
	const int in = inputs_of(s), n = s->end - s->begin;
	uint8_t *out = turned + (size_t)in * LANES;

	for (int c = 0; c < in; c += LANES) {
		c = c > in - LANES ? in - LANES : c;
		turn(x + c, step, turned + (size_t)c * LANES, LANES);
	}
	for (int i = 0; i < n; i++)
		put_sum(k, s->begin + i, turned + (size_t)(k->first[s->begin + i] - first_of(s)) * LANES,
			LANES, out + (size_t)i * LANES);
	for (int r = 0; r < n; r += LANES) {
		r = r > n - LANES ? n - LANES : r;
		turn(out + (size_t)r * LANES, LANES, y + r, (size_t)n);
	}
}

/* Computes row i of the result from rows of x, each width long, that begin with the first input. */
static DT_CLONES void scale_column(const struct span *s, int i, const uint8_t *x, int width, uint8_t *y)
{
	const uint8_t *from = x + (size_t)(s->k->first[i] - first_of(s)) * (size_t)width;

	for (int c = 0; width >= LANES && c < width; c += LANES) {
		c = c > width - LANES ? width - LANES : c;
		put_sum(s->k, i, from + c, (size_t)width, y + c);
	}
	for (int c = 0; width < LANES && c < width; c++)
		y[c] = weighted(s->k, i, from + c, (size_t)width);
}

/* Scales one plane, whose needed part begins at x: first the needed rows, then the columns. */
static void scale_plane(const struct span *across, const struct span *down, const uint8_t *x, size_t step,
			struct space *room, uint8_t *y)
{
	const int width = across->end - across->begin, high = inputs_of(down);
	const bool lanes = high >= LANES && width >= LANES && inputs_of(across) >= LANES;

	for (int r = 0; r < high; r += lanes ? LANES : 1) {
		if (lanes && r > high - LANES)
			r = high - LANES;
		if (lanes)
			scale_rows(across, x + (size_t)r * step, step, room->turned,
				   room->rows + (size_t)r * (size_t)width);
		else
			scale_row(across, x + (size_t)r * step, room->rows + (size_t)r * (size_t)width);
	}
	for (int i = down->begin; i < down->end; i++, y += width)
		scale_column(down, i, room->rows, width, y);
}

static void copy_box(const struct dt_image *x, struct dt_image_box b, struct dt_image *y)
{
	for (int c = 0; c < x->channels; c++)
		for (int r = 0; r < b.height; r++) {
			const uint8_t *from =
				x->pixel +
				((size_t)c * (size_t)x->height + (size_t)(b.top + r)) * (size_t)x->width +
				(size_t)b.left;
			uint8_t *to = y->pixel + ((size_t)c * (size_t)b.height + (size_t)r) * (size_t)b.width;

			memcpy(to, from, (size_t)b.width);
		}
}

static int check_box(struct dt_image_box b, int height, int width, struct dt_err *err)
{
	if (b.top < 0 || b.left < 0 || b.height < 1 || b.width < 1 || b.height > height - b.top ||
	    b.width > width - b.left)
		return dt_err_set(err, -EINVAL, "a part of %dx%d at %d,%d is not in an image of %dx%d",
				  b.height, b.width, b.top, b.left, height, width);
	return 0;
}

static int scale_planes(const struct dt_image *x, struct dt_image_box b, const struct span *across,
			const struct span *down, struct dt_image *y, struct dt_err *err)
{
	const size_t plane = (size_t)x->height * (size_t)x->width, width = (size_t)y->width;
	const uint8_t *from = x->pixel + (size_t)(b.top + first_of(down)) * (size_t)x->width +
			      (size_t)(b.left + first_of(across));
	struct space room = {.rows = malloc((size_t)inputs_of(down) * width),
			     .turned = malloc(((size_t)inputs_of(across) + width) * LANES)};
	int rc = room.rows && room.turned ? 0 : dt_err_sys(err, -ENOMEM, "cannot scale an image");

	for (int c = 0; c < x->channels && rc == 0; c++)
		scale_plane(across, down, from + (size_t)c * plane, (size_t)x->width, &room,
			    y->pixel + (size_t)c * (size_t)y->height * width);
	free(room.rows);
	free(room.turned);
	return rc;
}

static int scale_part(const struct dt_image *x, enum dt_image_filter f, struct dt_image_box b, int height,
		      int width, struct dt_image_box part, struct dt_image *ret, struct dt_err *err)
{
	struct weights k[2] = {0};
	const struct span across = {&k[0], part.left, part.left + part.width},
			  down = {&k[1], part.top, part.top + part.height};
	int rc = check_box(b, x->height, x->width, err);

	if (rc == 0)
		rc = img_check_size(x->channels, height, width, err);
	if (rc == 0)
		rc = check_box(part, height, width, err);
	if (rc == 0)
		rc = dt_image_resize(ret, x->channels, part.height, part.width, err);
	if (rc < 0)
		return rc;
	if (b.height == height && b.width == width) {
		copy_box(x,
			 (struct dt_image_box){b.top + part.top, b.left + part.left, part.height, part.width},
			 ret);
		return 0;
	}
	rc = weights_make(&k[0], f, b.width, width, err);
	if (rc == 0)
		rc = weights_make(&k[1], f, b.height, height, err);
	if (rc == 0)
		rc = scale_planes(x, b, &across, &down, ret, err);
	weights_release(&k[0]);
	weights_release(&k[1]);
	return rc;
}

int dt_image_scale_part(const struct dt_image *x, struct dt_image_box b, int height, int width,
			struct dt_image_box part, struct dt_image *ret, struct dt_err *err)
{
	return scale_part(x, DT_IMAGE_BILINEAR, b, height, width, part, ret, err);
}

int dt_image_scale_by(const struct dt_image *x, enum dt_image_filter f, int height, int width,
		      struct dt_image *ret, struct dt_err *err)
{
	const struct dt_image_box all = {0, 0, x->height, x->width}, out = {0, 0, height, width};

	return scale_part(x, f, all, height, width, out, ret, err);
}

int dt_image_scale(const struct dt_image *x, struct dt_image_box b, int height, int width,
		   struct dt_image *ret, struct dt_err *err)
{
	return dt_image_scale_part(x, b, height, width, (struct dt_image_box){0, 0, height, width}, ret, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
