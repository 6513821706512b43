/* Packs blocks from files into panels; manages the parts of a dt_packed. */
#include "kernels/cpu/quant.h"

#include <math.h>
#include <stdlib.h>

int dt_packed_open(struct dt_packed **ret, struct dt_dev *dev, int64_t k)
{
	struct dt_packed *w;

	if (k <= 0)
		return -EINVAL;
	w = calloc(1, sizeof *w);
	if (!w)
		return -ENOMEM;
	w->k = k;
	w->blocks = dt_ceil_div(k, DT_QK);
	w->dev = dev->kind == DT_DEV_CPU ? NULL : dev;
	*ret = w;
	return 0;
}

/* Frees parts n and up, spare ones included. */
static void free_parts(struct dt_packed *w, int n)
{
	for (int i = n; i < w->nparts + w->spare; i++)
		if (w->dev && !w->lent)
			dt_dev_free(w->dev, w->part[i].data);
		else if (!w->lent && !w->part[i].borrowed)
			dt_panel_free(w->part[i].data, w->part[i].bytes);
	w->nparts = n < w->nparts ? n : w->nparts;
	w->spare = 0;
	w->lent = w->lent && w->nparts > 0;
}

void dt_packed_close(struct dt_packed *w)
{
	if (!w)
		return;
	free_parts(w, 0);
	free(w->part);
	free(w);
}

static bool borrows(const struct dt_packed *w)
{
	for (int i = 0; i < w->nparts; i++)
		if (w->part[i].borrowed)
			return true;
	return false;
}

void dt_packed_rewind(struct dt_packed *w)
{
	if (w->dev || w->lent || borrows(w))
		free_parts(w, 0);
	w->spare += w->nparts;
	w->nparts = 0;
	w->rows = 0;
}

/*
 * Converts a row to the format of its part, through f32 if the formats differ; wide and narrow are buffers
 * for one row. NULL: NaN or Inf on conversion to a block format.
 */
static const uint8_t *convert_row(enum dt_format to, enum dt_format have, const uint8_t *row, int64_t k,
				  float *wide, uint8_t *narrow)
{
	if (have == to)
		return row;
	if (dt_recode(have, row, k, to, narrow))
		return narrow;
	dt_dequantize(have, row, k, wide);
	for (int64_t j = 0; !dt_is_float(to) && j < k; j++)
		if (!isfinite(wide[j]))
			return NULL;
	dt_quantize(to, wide, k, narrow);
	return narrow;
}

/* Packs the rows of panel p. */
static int pack_panel(const struct dt_packed *w, const struct dt_packed_part *part, int64_t p,
		      enum dt_format have, const uint8_t *src, float *wide, uint8_t *narrow)
{
	const size_t row_bytes = dt_format_bytes(have, w->k);
	const bool plain = w->dev && dt_is_float(part->format);
	uint8_t *panel = part->data + (size_t)p * part->panel_bytes;

	memset(panel, 0, plain ? 0 : part->panel_bytes);
	for (int64_t i = p * DT_PANEL; i < dt_min64(part->rows, (p + 1) * DT_PANEL); i++) {
		const uint8_t *row =
			convert_row(part->format, have, src + (size_t)i * row_bytes, w->k, wide, narrow);
		const size_t n = plain ? dt_format_bytes(part->format, w->k) : 0;

		if (!row)
			return -EINVAL;
		if (plain) {
			memcpy(part->data + (size_t)i * n, row, n);
			continue;
		}
		dt_quant_pack_row(w, part->format, panel, (int)(i % DT_PANEL), row);
	}
	return 0;
}

static int pack_part(const struct dt_packed *w, const struct dt_packed_part *part, struct dt_dev *dev,
		     enum dt_format have, const void *src)
{
	int bad = 0, short_of = 0;

#pragma omp parallel num_threads(dev->nthreads) reduction(+ : bad, short_of)
	{
		/* Larger than a row, as blocks may have more bytes than their elements need. */
		float *wide = malloc((size_t)w->k * 4 + 64);
		uint8_t *narrow = malloc((size_t)w->k * 4 + 64);

		short_of += !wide || !narrow;
#pragma omp for schedule(static)
		for (int64_t p = 0; p < part->panels; p++)
			if (!short_of)
				bad += pack_panel(w, part, p, have, src, wide, narrow) < 0;
		free(wide);
		free(narrow);
	}
	return short_of ? -ENOMEM : bad ? -EINVAL : 0;
}

/* Bytes of a part without padding. */
static size_t used_bytes(const struct dt_packed *w, const struct dt_packed_part *part)
{
	return dt_is_float(part->format) ? (size_t)part->rows * dt_format_bytes(part->format, w->k)
					 : (size_t)part->panels * part->panel_bytes;
}

/*
 * Copies a part from `from`, on the host or the card, to memory of the card. A part of the same format as the
 * one before it is merged with it, so that one product covers both: always for floats, for blocks if the
 * panels before it are full. 1: it was merged.
 */
static int put_there(struct dt_packed *w, struct dt_packed_part *part, const void *from)
{
	struct dt_packed_part *last = w->nparts ? &w->part[w->nparts - 1] : NULL;
	const bool joins = last && last->format == part->format &&
			   (dt_is_float(part->format) || last->rows % DT_PANEL == 0);
	const size_t before = joins ? last->bytes : 0, above = joins ? used_bytes(w, last) : 0;
	void *there;
	int rc = dt_dev_alloc(w->dev, &there, before + part->bytes);

	if (rc == 0 && joins)
		rc = dt_dev_copy(w->dev, there, last->data, above);
	if (rc == 0)
		rc = dt_dev_copy(w->dev, (char *)there + above, from, used_bytes(w, part));
	if (rc == 0)
		rc = dt_dev_sync(w->dev);
	if (rc < 0)
		return rc;
	if (!joins) {
		part->data = there;
		return 0;
	}
	dt_dev_free(w->dev, last->data);
	last->data = there;
	last->rows += part->rows;
	last->panels += part->panels;
	last->bytes += part->bytes;
	return 1;
}

/* Uploads what was packed on the host. */
static int upload(struct dt_packed *w, struct dt_packed_part *part)
{
	uint8_t *host = part->data;
	int rc;

	part->data = NULL;
	rc = put_there(w, part, host);
	dt_panel_free(host, part->bytes);
	return rc;
}

/* Adds a part and its memory. 1: it reuses the memory of the first spare part, which has the right size. */
static int add_part(struct dt_packed *w, struct dt_packed_part *part)
{
	const struct dt_packed_part *kept = w->spare ? &w->part[w->nparts] : NULL;
	struct dt_packed_part *more;

	if (kept && kept->format == part->format && kept->rows == part->rows) {
		part->data = kept->data;
		return 1;
	}
	free_parts(w, w->nparts);
	more = realloc(w->part, (size_t)(w->nparts + 1) * sizeof *more);
	w->part = more ? more : w->part;
	part->data = more ? dt_panel_alloc(part->bytes) : NULL;
	return part->data ? 0 : -ENOMEM;
}

int dt_packed_append(struct dt_packed *w, struct dt_dev *dev, enum dt_format as, enum dt_format have,
		     const void *src, int64_t rows)
{
	struct dt_packed_part part = {
		.format = as, .first = w->rows, .rows = rows, .panels = dt_ceil_div(rows, DT_PANEL)};
	const struct dt_quant_shape *s = dt_quant_shape(as);
	int r, kept;

	if (!s->quants || w->lent)
		return -ENOTSUP;
	if (rows <= 0 || w->k % dt_format_info(as)->block || w->k % dt_format_info(have)->block)
		return -EINVAL;
	part.panel_bytes = dt_panel_bytes(as, w->k);
	part.bytes = dt_panels_bytes(as, rows, w->k);
	kept = add_part(w, &part);
	if (kept < 0)
		return kept;
	r = pack_part(w, &part, dev, have, src);
	if (r < 0 && !kept)
		dt_panel_free(part.data, part.bytes);
	else if (r == 0 && w->dev)
		r = upload(w, &part);
	if (r < 0)
		return r;
	if (r == 0)
		w->part[w->nparts++] = part;
	w->spare -= kept;
	w->rows += rows;
	return 0;
}

/* Room for one more part in the list; spare memory is freed. */
static struct dt_packed_part *room_for_one(struct dt_packed *w)
{
	struct dt_packed_part *more;

	free_parts(w, w->nparts);
	more = realloc(w->part, (size_t)(w->nparts + 1) * sizeof(*more));
	w->part = more ? more : w->part;
	return more;
}

/* Copies rows of a part on the card, from its row `at` on. */
static int copy_there(struct dt_packed *w, const struct dt_packed_part *of, int64_t at, int64_t rows)
{
	struct dt_packed_part part = {.format = of->format,
				      .first = w->rows,
				      .rows = rows,
				      .panels = dt_ceil_div(rows, DT_PANEL),
				      .panel_bytes = of->panel_bytes,
				      .bytes = dt_panels_bytes(of->format, rows, w->k)};
	const size_t skip = dt_is_float(of->format) ? (size_t)at * dt_format_bytes(of->format, w->k)
						    : (size_t)(at / DT_PANEL) * of->panel_bytes;
	int r;

	if (!dt_is_float(of->format) && at % DT_PANEL)
		return -EINVAL;
	if (!room_for_one(w))
		return -ENOMEM;
	r = put_there(w, &part, of->data + skip);
	if (r < 0)
		return r;
	if (r == 0)
		w->part[w->nparts++] = part;
	w->rows += rows;
	return 0;
}

int dt_packed_borrow(struct dt_packed *w, const struct dt_packed *from, int64_t first, int64_t rows)
{
	const struct dt_packed_part *of = NULL;
	struct dt_packed_part *more;

	if (w->dev != from->dev || w->lent || from->lent)
		return -ENOTSUP;
	for (int i = 0; i < from->nparts; i++)
		if (first >= from->part[i].first && first + rows <= from->part[i].first + from->part[i].rows)
			of = &from->part[i];
	if (!of || w->k != from->k || rows <= 0)
		return -EINVAL;
	if (w->dev)
		return copy_there(w, of, first - of->first, rows);
	if (first != of->first || rows != of->rows)
		return -EINVAL;
	more = room_for_one(w);
	if (!more)
		return -ENOMEM;
	more[w->nparts] = *of;
	more[w->nparts].first = w->rows;
	more[w->nparts++].borrowed = true;
	w->rows += of->rows;
	return 0;
}

int64_t dt_packed_rows(const struct dt_packed *w)
{
	return w->rows;
}

void dt_packed_follow(struct dt_packed *w, const struct dt_packed *then)
{
	w->then = then;
}

int64_t dt_packed_k(const struct dt_packed *w)
{
	return w->k;
}

size_t dt_packed_bytes(const struct dt_packed *w)
{
	size_t n = 0;

	for (int i = 0; i < w->nparts && !w->lent; i++)
		n += w->part[i].borrowed ? 0 : w->part[i].bytes;
	return n;
}

static size_t close_bytes(const struct dt_packed_part *part)
{
	return (size_t)part->panels * part->panel_bytes;
}

size_t dt_packed_close_bytes(const struct dt_packed *w)
{
	size_t n = 0;

	for (int i = 0; i < w->nparts; i++)
		n += close_bytes(&w->part[i]);
	return n;
}

int dt_packed_lend(struct dt_packed *w, void *to)
{
	uint8_t *at = to;
	int rc = 0;

	if (w->lent || borrows(w))
		return -ENOTSUP;
	for (int i = 0; i < w->nparts && rc == 0; i++) {
		if (w->dev)
			rc = dt_dev_copy(w->dev, at, w->part[i].data, used_bytes(w, &w->part[i]));
		else
			memcpy(at, w->part[i].data, close_bytes(&w->part[i]));
		at += close_bytes(&w->part[i]);
	}
	if (rc < 0)
		return rc;
	for (int i = 0; i < w->nparts + w->spare; i++) {
		if (w->dev)
			dt_dev_free(w->dev, w->part[i].data); /* waits for the copy */
		else
			dt_panel_free(w->part[i].data, w->part[i].bytes);
		w->part[i].data = NULL;
	}
	w->spare = 0;
	w->lent = true;
	return 0;
}

void dt_packed_at(struct dt_packed *w, void *copy)
{
	uint8_t *at = copy;

	for (int i = 0; i < w->nparts; i++) {
		w->part[i].data = at;
		at += close_bytes(&w->part[i]);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
