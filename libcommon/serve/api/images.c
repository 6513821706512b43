/*
 * Images in messages: {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}. Only data:
 * URLs are read, because the server fetches nothing.
 */
#include "base/base64.h"
#include "base/sha256.h"
#include "data/vision.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PIXELS_MAX (1 << 25) /* of an image */

static int bad(struct dt_body *b, int i, const char *why)
{
	dt_api_fail(b->e, 400, "invalid_request_error", "bad_image", "image %d: %.400s", i, why);
	snprintf(b->e->param, sizeof(b->e->param), "messages");
	return -EINVAL;
}

/* The base64 of a data: URL of an image; NULL with the error: it is something else. */
static const char *base64_of(struct dt_body *b, const json_t *part, int i, size_t *ret_n)
{
	static const char *const detail[] = {"auto", "high"};
	const json_t *o = json_object_get(part, "image_url"), *url = json_object_get(o, "url"),
		     *how = json_object_get(o, "detail");
	const char *s = json_string_value(url), *word = json_string_value(how), *comma;
	bool known = !how || json_is_null(how);

	for (int k = 0; k < 2; k++)
		known |= word && !strcmp(word, detail[k]);
	if (!s || !known) {
		bad(b, i, s ? "'detail' must be auto or high" : "'image_url.url' is not a string");
		return NULL;
	}
	comma = strncasecmp(s, "data:", 5) ? NULL : strchr(s, ',');
	if (!comma) {
		bad(b, i,
		    "its URL is not a data: URL, as in data:image/png;base64,...; the server fetches no "
		    "images");
		return NULL;
	}
	if (comma - s < 7 || strncasecmp(comma - 7, ";base64", 7)) {
		bad(b, i, "its data: URL is not in base64");
		return NULL;
	}
	*ret_n = json_string_length(url) - (size_t)(comma + 1 - s);
	return comma + 1;
}

static int decode(struct dt_body *b, const json_t *part, int i, struct dt_image *ret)
{
	size_t n, size = 0;
	const char *s = base64_of(b, part, i, &n);
	unsigned char *bytes = s ? dt_base64_bytes(s, n, &size) : NULL;
	const enum dt_image_kind kind = bytes ? dt_image_kind(bytes, size) : DT_IMAGE_UNKNOWN;
	struct dt_err err;
	int rc = -EINVAL;

	if (!s)
		return -EINVAL;
	if (!bytes)
		bad(b, i, "its base64 is not valid");
	else if (kind != DT_IMAGE_PNG && kind != DT_IMAGE_JPEG)
		bad(b, i, "neither PNG nor JPEG");
	else if ((rc = dt_image_decode(bytes, size, 3, true, ret, NULL, &err)) < 0)
		bad(b, i, err.msg);
	free(bytes);
	return rc < 0 ? -EINVAL : 0;
}

/* The tiles of x, one behind another (malloc'd); NULL with the error. */
static uint8_t *cut(struct dt_body *b, const struct dt_image *x, int i, const struct dt_vision_grid *g)
{
	const struct dt_vision *v = b->m->engine->vision;
	uint8_t *pixels = malloc((size_t)g->tiles * 3 * (size_t)(v->tile * v->tile));
	struct dt_err err;

	if (!pixels) {
		dt_body_no_memory(b->e);
		return NULL;
	}
	if (dt_vision_cut(v, g, x, pixels, &err) == 0)
		return pixels;
	free(pixels);
	if (err.code == -ENOMEM)
		dt_body_no_memory(b->e);
	else
		bad(b, i, err.msg);
	return NULL;
}

/* Adds the tiles of image i, which ret tells a chat template of. */
static int add_image(struct dt_body *b, const struct dt_image *x, int i, struct dt_chat_image *ret)
{
	const struct dt_engine_params *m = b->m->engine;
	const struct dt_vision *v = m->vision;
	const size_t bytes = 3 * (size_t)(v->tile * v->tile);
	const int have = b->images ? b->images->n : 0;
	struct dt_vision_grid g;
	struct dt_call_images *p;
	uint8_t *pixels;
	struct dt_err err;

	if (dt_vision_grid(v, x->height, x->width, &g, &err) < 0)
		return bad(b, i, err.msg);
	if ((int64_t)(have + g.tiles) * m->model.tile_rows > m->max_len) {
		dt_api_fail_length(b->e, (size_t)(have + g.tiles) * (size_t)m->model.tile_rows, 1,
				   m->max_len);
		return -EINVAL;
	}
	p = realloc(b->images, sizeof(*p) + (size_t)(have + g.tiles) * sizeof(*p->tile));
	if (p) {
		p->n = have;
		p->rows = m->model.tile_rows;
		b->images = p;
	}
	if (!p)
		return dt_body_no_memory(b->e);
	pixels = cut(b, x, i, &g);
	if (!pixels)
		return -EINVAL;
	for (int t = 0; t < g.tiles; t++) {
		struct dt_call_tile *to = &p->tile[p->n];

		*to = (struct dt_call_tile){.pixels = malloc(bytes)};
		if (!to->pixels) {
			free(pixels);
			return dt_body_no_memory(b->e);
		}
		memcpy(to->pixels, pixels + (size_t)t * bytes, bytes);
		dt_sha256(to->pixels, bytes, to->sum);
		p->n++;
	}
	free(pixels);
	*ret = (struct dt_chat_image){g.rows, g.cols};
	return 0;
}

static bool is_image(const json_t *part)
{
	static const char *const types[] = {"image_url", "image", "input_image"};
	const char *type = json_string_value(json_object_get(part, "type"));

	for (int i = 0; type && i < 3; i++)
		if (!strcmp(type, types[i]))
			return true;
	return false;
}

/* Number of images of the messages; -EINVAL: they cannot be read. */
static int count(struct dt_body *b, const json_t *messages)
{
	const struct dt_engine_params *m = b->m->engine;
	json_t *message, *part;
	size_t i, k;
	int n = 0;

	json_array_foreach((json_t *)messages, i, message)
	{
		json_array_foreach(json_object_get(message, "content"), k, part)
		{
			n += is_image(part);
			if (!is_image(part) ||
			    !strcmp(json_string_value(json_object_get(part, "type")), "image_url"))
				continue;
			return bad(b, n - 1, "its type is not image_url");
		}
	}
	if (n > 0 && !m->vision)
		return dt_api_fail(b->e, 400, "invalid_request_error", "no_images",
				   "this model reads no images");
	if (n > m->images) {
		dt_api_fail(b->e, 400, "invalid_request_error", "too_many_images",
			    "the request has %d images, more than the %d allowed", n, m->images);
		return -EINVAL;
	}
	return n;
}

int dt_body_images(struct dt_body *b, const json_t *messages, struct dt_chat_image **ret, int *ret_n)
{
	const int n = count(b, messages);
	struct dt_chat_image *list = n > 0 ? calloc((size_t)n, sizeof(*list)) : NULL;
	json_t *message, *part;
	int at = 0, rc = 0;
	size_t i, k;

	if (n <= 0)
		return n;
	if (!list)
		return dt_body_no_memory(b->e);
	json_array_foreach((json_t *)messages, i, message)
	{
		json_array_foreach(json_object_get(message, "content"), k, part)
		{
			struct dt_image x = {.limit = PIXELS_MAX};

			if (rc < 0 || !is_image(part))
				continue;
			rc = decode(b, part, at, &x);
			if (rc == 0)
				rc = add_image(b, &x, at, &list[at]);
			dt_image_release(&x);
			at++;
		}
	}
	if (rc < 0) {
		free(list);
		return rc;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

int dt_body_place_images(struct dt_body *b, const struct dt_prompt *p)
{
	struct dt_call_images *x = b->images;
	size_t at = 0;

	for (int t = 0; t < x->n; t++, at += (size_t)x->rows) { /* text never has the image token */
		while (at < p->n && p->ids[at] != b->m->engine->image_token)
			at++;
		if (at + (size_t)x->rows > p->n)
			return dt_body_bad(b->e, "messages",
					   "the tokenizer of this model has no token for images");
		x->tile[t].at = (int)at;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
