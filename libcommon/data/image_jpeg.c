#include "data/image_codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DT_HAVE_JPEG
int img_jpeg_decode(const uint8_t *b, size_t n, int channels, struct dt_image *ret,
		    struct dt_image_facts *facts, struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "cannot read JPEG: this dt was built without libjpeg");
}

int dt_image_encode_jpeg(const struct dt_image *x, int quality, uint8_t **ret, size_t *ret_n,
			 struct dt_err *err)
{
	return dt_err_set(err, -ENOTSUP, "cannot write JPEG: this dt was built without libjpeg");
}
#else
#include <setjmp.h>

#include <jerror.h>
#include <jpeglib.h>

#define SCANS_MAX 500
#define ROW_AT	  8 /* libjpeg-turbo writes aligned rows past the caches; here they are read at once */

struct failing {
	struct jpeg_error_mgr base;
	jmp_buf back;
	char text[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr c)
{
	struct failing *f = (struct failing *)c->err;

	c->err->format_message(c, f->text);
	longjmp(f->back, 1);
}

/* Fails on warnings (level -1) that mean lost pixels: the rest of the picture would be grey. */
static void warn(j_common_ptr c, int level)
{
	int code = c->err->msg_code;

	if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
			  code == JWRN_MUST_RESYNC))
		fail(c);
}

/* Limits the passes of a progressive file: a small file may ask for any number over a large image. */
static void limit_scans(j_common_ptr c)
{
	struct failing *f = (struct failing *)c->err;

	if (!c->is_decompressor || ((j_decompress_ptr)c)->input_scan_number <= SCANS_MAX)
		return;
	snprintf(f->text, sizeof(f->text), "more than %d passes", SCANS_MAX);
	longjmp(f->back, 1);
}

static struct jpeg_error_mgr *failing_init(struct failing *f)
{
	jpeg_std_error(&f->base);
	f->base.error_exit = fail;
	f->base.emit_message = warn;
	return &f->base;
}

static int exif_of(const struct jpeg_decompress_struct *d)
{
	for (const struct jpeg_marker_struct *m = d->marker_list; m; m = m->next)
		if (m->marker == JPEG_APP0 + 1 && m->data_length > 6 && !memcmp(m->data, "Exif\0\0", 6))
			return img_exif_orientation(m->data + 6, m->data_length - 6);
	return 1;
}

/* Converts a row from CMYK to RGB in place. Adobe stores it inverted. */
static void cmyk_row(uint8_t *row, unsigned width, bool inverted)
{
	for (unsigned i = 0; i < width; i++) {
		uint8_t *p = row + 4 * i;
		int k = inverted ? p[3] : 255 - p[3];

		for (int c = 0; c < 3; c++) {
			int v = (inverted ? p[c] : 255 - p[c]) * k + 128;

			p[c] = (uint8_t)(((v >> 8) + v) >> 8);
		}
	}
}

static void start(struct jpeg_decompress_struct *d, struct jpeg_progress_mgr *progress, const uint8_t *b,
		  size_t n, struct dt_image_facts *facts)
{
	jpeg_create_decompress(d);
	d->progress = progress;
	jpeg_save_markers(d, JPEG_APP0 + 1, 0xffff);
	jpeg_mem_src(d, b, n);
	jpeg_read_header(d, TRUE);
	facts->grey = d->num_components == 1;
	facts->cmyk = d->num_components == 4;
	facts->orientation = exif_of(d);
	d->out_color_space = facts->cmyk ? JCS_CMYK : facts->grey ? JCS_GRAYSCALE : JCS_RGB;
	d->dct_method = JDCT_ISLOW;
}

int img_jpeg_decode(const uint8_t *b, size_t n, int channels, struct dt_image *ret,
		    struct dt_image_facts *facts, struct dt_err *err)
{
	struct jpeg_decompress_struct d = {0};
	struct jpeg_progress_mgr progress = {.progress_monitor = limit_scans};
	struct failing f;
	uint8_t *volatile room = NULL;
	int rc;

	d.err = failing_init(&f);
	if (setjmp(f.back)) {
		jpeg_destroy_decompress(&d);
		free(room);
		return dt_err_set(err, -EBADMSG, "damaged JPEG: %.200s", f.text);
	}
	start(&d, &progress, b, n, facts);
	rc = dt_image_resize(ret,
			     channels	   ? channels
			     : facts->grey ? 1
					   : 3,
			     (int)d.image_height, (int)d.image_width, err);
	if (rc == 0) {
		room = malloc((size_t)d.image_width * 4 + ROW_AT);
		rc = room ? 0 : dt_err_sys(err, -ENOMEM, "cannot read an image");
	}
	if (rc < 0) {
		jpeg_destroy_decompress(&d);
		return rc;
	}
	jpeg_start_decompress(&d);
	while (d.output_scanline < d.output_height) {
		JSAMPROW row = room + ROW_AT;

		jpeg_read_scanlines(&d, &row, 1);
		if (facts->cmyk)
			cmyk_row(row, d.output_width, d.saw_Adobe_marker);
		img_row_out(ret, (int)d.output_scanline - 1, row, d.output_components);
	}
	jpeg_finish_decompress(&d);
	jpeg_destroy_decompress(&d);
	free(room);
	return 0;
}

static void compress(struct jpeg_compress_struct *c, const struct dt_image *x, int quality, uint8_t *row)
{
	size_t plane = (size_t)x->height * (size_t)x->width;

	c->image_width = (JDIMENSION)x->width;
	c->image_height = (JDIMENSION)x->height;
	c->input_components = x->channels;
	c->in_color_space = x->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(c);
	jpeg_set_quality(c, quality, TRUE);
	c->comp_info[0].h_samp_factor = c->comp_info[0].v_samp_factor = 1;
	jpeg_start_compress(c, TRUE);
	while (c->next_scanline < c->image_height) {
		JSAMPROW from = row;

		for (int i = 0; i < x->width; i++)
			for (int k = 0; k < x->channels; k++)
				row[i * x->channels + k] =
					x->pixel[(size_t)k * plane +
						 (size_t)c->next_scanline * (size_t)x->width + (size_t)i];
		jpeg_write_scanlines(c, &from, 1);
	}
	jpeg_finish_compress(c);
}

int dt_image_encode_jpeg(const struct dt_image *x, int quality, uint8_t **ret, size_t *ret_n,
			 struct dt_err *err)
{
	struct jpeg_compress_struct c = {0};
	struct failing f;
	unsigned char *bytes = NULL;
	unsigned long n = 0;
	uint8_t *row = malloc((size_t)x->width * (size_t)x->channels);

	if (!row)
		return dt_err_sys(err, -ENOMEM, "cannot write a JPEG");
	c.err = failing_init(&f);
	if (setjmp(f.back)) {
		jpeg_destroy_compress(&c);
		free(bytes);
		free(row);
		return dt_err_set(err, -EINVAL, "cannot write a JPEG: %.200s", f.text);
	}
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &bytes, &n);
	compress(&c, x, quality, row);
	jpeg_destroy_compress(&c);
	free(row);
	*ret = bytes;
	*ret_n = n;
	return 0;
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
