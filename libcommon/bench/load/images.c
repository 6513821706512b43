/* Images to classify, and the responses. */
#include "base/json.h"
#include "bench/load/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_IMAGE ((size_t)64 << 20)

int dt_load_read_images(struct dt_load_target *t, const struct dt_strs *files, struct dt_err *err)
{
	t->image = calloc((size_t)files->n, sizeof(*t->image));
	if (!t->image)
		return dt_err_sys(err, -ENOMEM, "cannot read images");
	for (; t->nimage < files->n; t->nimage++) {
		struct dt_load_image *im = &t->image[t->nimage];
		int rc = dt_read_file(files->v[t->nimage], MOST_IMAGE, &im->data, &im->n, err);

		if (rc < 0)
			return rc;
		if (im->n == 0) {
			free(im->data);
			return dt_err_set(err, -EINVAL, "'%s' is empty", files->v[t->nimage]);
		}
	}
	return 0;
}

int dt_load_take_classes(struct load_stream *s, struct dt_load_result *r, const char *data, size_t n,
			 double now)
{
	if (r->first < 0)
		r->first = now;
	if (s->line.n + n > DT_LOAD_MOST_TEXT)
		return dt_load_too_long(s, "the answer");
	return dt_load_text_add(&s->line, data, n);
}

void dt_load_end_classes(struct load_stream *s)
{
	json_t *v = s->line.s ? json_loads(s->line.s, 0, NULL) : NULL;

	s->done = json_array_size(
			  json_object_get(json_array_get(json_object_get(v, "data"), 0), "predictions")) > 0;
	s->failed = !s->done;
	if (s->failed)
		snprintf(s->what, sizeof(s->what), "the answer has no predictions");
	json_decref(v);
}
/* SPDX-License-Identifier: Apache-2.0 */
