#include "data/image.h"

#include "base/clones.h"
#include "data/image_codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int img_check_size(int channels, int height, int width, struct dt_err *err)
{
	if (channels < 1 || height < 1 || width < 1)
		return dt_err_set(err, -EBADMSG, "an image of %d x %d x %d is not supported", channels,
				  height, width);
	if (height > DT_IMAGE_SIDE_MAX || width > DT_IMAGE_SIDE_MAX ||
	    (int64_t)height * width > DT_IMAGE_PIXELS_MAX)
		return dt_err_set(err, -EBADMSG,
				  "%d x %d pixels are too many: the limit is %d a side and %d in all", height,
				  width, DT_IMAGE_SIDE_MAX, (int)DT_IMAGE_PIXELS_MAX);
	return 0;
}

int dt_image_resize(struct dt_image *x, int channels, int height, int width, struct dt_err *err)
{
	size_t need;
	uint8_t *grown;
	int rc = img_check_size(channels, height, width, err);

	if (rc == 0 && x->limit && (int64_t)height * width > x->limit)
		rc = dt_err_set(err, -EBADMSG, "%d x %d pixels are more than the %lld allowed", height, width,
				(long long)x->limit);
	if (rc < 0)
		return rc;
	need = (size_t)channels * (size_t)height * (size_t)width;
	if (need > x->room) {
		grown = malloc(need);
		if (!grown)
			return dt_err_sys(err, -ENOMEM, "cannot hold an image of %d x %d x %d", channels,
					  height, width);
		free(x->pixel);
		x->pixel = grown;
		x->room = need;
	}
	x->channels = channels;
	x->height = height;
	x->width = width;
	return 0;
}

void dt_image_release(struct dt_image *x)
{
	free(x->pixel);
	*x = (struct dt_image){0};
}

int img_claim(struct dt_image *ret, size_t n, int channels, uint32_t height, uint32_t width,
	      struct dt_err *err)
{
	if (height > DT_IMAGE_SIDE_MAX || width > DT_IMAGE_SIDE_MAX || (uint64_t)height * width / 16384 > n)
		return dt_err_set(err, -EBADMSG, "%u x %u pixels do not fit into a file of %zu bytes", height,
				  width, n);
	return dt_image_resize(ret, channels, (int)height, (int)width, err);
}

typedef uint8_t bytes __attribute__((vector_size(16)));

static DT_CLONES void split_rgb(const uint8_t *restrict from, int n, uint8_t *restrict red,
				uint8_t *restrict green, uint8_t *restrict blue)
{
	/* byte c of pixel k is at 3 * k + c: no two of a channel are at the same place of their 16 bytes */
	static const bytes third[3] = {{255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255},
				       {0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0},
				       {0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0}};

	for (int i = 0; n >= 16 && i < n; i += 16) {
		bytes v[3], r, g, b;

		i = i > n - 16 ? n - 16 : i;
		memcpy(v, from + 3 * i, sizeof(v));
		r = (v[0] & third[0]) | (v[1] & third[2]) | (v[2] & third[1]);
		g = (v[0] & third[1]) | (v[1] & third[0]) | (v[2] & third[2]);
		b = (v[0] & third[2]) | (v[1] & third[1]) | (v[2] & third[0]);
		r = __builtin_shufflevector(r, r, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13);
		g = __builtin_shufflevector(g, g, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14);
		b = __builtin_shufflevector(b, b, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15);
		memcpy(red + i, &r, sizeof(r));
		memcpy(green + i, &g, sizeof(g));
		memcpy(blue + i, &b, sizeof(b));
	}
	for (int i = 0; n < 16 && i < n; i++) {
		red[i] = from[3 * i];
		green[i] = from[3 * i + 1];
		blue[i] = from[3 * i + 2];
	}
}

void img_row_out(struct dt_image *x, int row, const uint8_t *from, int have)
{
	size_t plane = (size_t)x->height * (size_t)x->width, at = (size_t)row * (size_t)x->width;

	if (x->channels == 3 && have == 3) {
		split_rgb(from, x->width, x->pixel + at, x->pixel + plane + at, x->pixel + 2 * plane + at);
		return;
	}
	for (int c = 0; c < x->channels; c++) {
		uint8_t *to = x->pixel + (size_t)c * plane + at;

		if (x->channels == 1 && have >= 3)
			for (int i = 0; i < x->width; i++) {
				const uint8_t *p = from + (size_t)i * (size_t)have;

				to[i] = (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 32768) >>
						  16);
			}
		else
			for (int i = 0; i < x->width; i++)
				to[i] = from[(size_t)i * (size_t)have + (have >= 3 ? (size_t)c : 0)];
	}
}

static unsigned get16(const uint8_t *p, bool little)
{
	return little ? p[0] | (unsigned)p[1] << 8 : p[1] | (unsigned)p[0] << 8;
}

static unsigned get32(const uint8_t *p, bool little)
{
	return little ? get16(p, true) | get16(p + 2, true) << 16
		      : get16(p + 2, false) | get16(p, false) << 16;
}

/* Reads the orientation: TIFF 6.0, first directory, tag 0x0112, a short. */
int img_exif_orientation(const uint8_t *p, size_t n)
{
	bool little;
	size_t at;
	unsigned entries;

	if (n < 8 || (memcmp(p, "II*\0", 4) && memcmp(p, "MM\0*", 4)))
		return 1;
	little = p[0] == 'I';
	at = get32(p + 4, little);
	if (at > n - 2 || n < 2)
		return 1;
	entries = get16(p + at, little);
	at += 2;
	for (unsigned i = 0; i < entries && at + 12 <= n; i++, at += 12)
		if (get16(p + at, little) == 0x0112 && get16(p + at + 2, little) == 3) {
			unsigned v = get16(p + at + 8, little);

			return v >= 1 && v <= 8 ? (int)v : 1;
		}
	return 1;
}

int dt_image_size_parse(const char *s, int ret[2])
{
	char *end;
	long h = strtol(s, &end, 10), w = h;

	if (end != s && *end == 'x') {
		s = end + 1;
		w = strtol(s, &end, 10);
	}
	if (end == s || *end || h < 1 || w < 1 || h > DT_IMAGE_SIDE_MAX || w > DT_IMAGE_SIDE_MAX)
		return -EINVAL;
	ret[0] = (int)h;
	ret[1] = (int)w;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
