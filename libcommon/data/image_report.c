#include "base/units.h"
#include "data/image_import.h"

#include <stddef.h>

static const struct {
	const char *key, *words;
	size_t at;
} found[] = {
	{"bad", "invalid images skipped", offsetof(struct dt_image_import, bad)},
	{"passed_over", "other files skipped", offsetof(struct dt_image_import, passed)},
	{"grey", "converted from greyscale to colour", offsetof(struct dt_image_import, grey)},
	{"cmyk", "converted from CMYK", offsetof(struct dt_image_import, cmyk)},
	{"deep", "converted from 16 to 8 bits", offsetof(struct dt_image_import, deep)},
	{"alpha", "stripped of alpha", offsetof(struct dt_image_import, alpha)},
	{"turned", "rotated as EXIF says", offsetof(struct dt_image_import, turned)},
};
#define FOUND (sizeof(found) / sizeof(found[0]))

static int64_t found_of(const struct dt_image_import *im, size_t i)
{
	return *(const int64_t *)((const char *)im + found[i].at);
}

void dt_image_import_print(const struct dt_image_import *im, const char *const out[2], double seconds,
			   FILE *f)
{
	char took[32];

	for (int k = 0; k < 2 && out[k]; k++)
		fprintf(f, "%s%s: %lld image%s of %d class%s", k ? "; " : "", out[k],
			(long long)im->images[k], im->images[k] == 1 ? "" : "s", im->classes,
			im->classes == 1 ? "" : "es");
	for (size_t i = 0; i < FOUND; i++)
		if (found_of(im, i))
			fprintf(f, "; %lld %s", (long long)found_of(im, i), found[i].words);
	fprintf(f, "; in %s\n", dt_format_duration(seconds, took, sizeof(took)));
}

json_t *dt_image_import_json(const struct dt_image_import *im, const char *const out[2], double seconds)
{
	json_t *o = json_pack("{s:i, s:s, s:I, s:i, s:i, s:s, s:i}", "schema", 1, "path", out[0], "images",
			      (json_int_t)im->images[0], "classes", im->classes, "empty_classes",
			      im->empty_classes[0], "encoding", im->store == DT_STORE_JPEG ? "jpeg" : "raw",
			      "shards", im->shards);

	for (size_t i = 0; i < FOUND; i++)
		json_object_set_new(o, found[i].key, json_integer((json_int_t)found_of(im, i)));
	if (out[1])
		json_object_set_new(o, "eval",
				    json_pack("{s:s, s:I, s:i}", "path", out[1], "images",
					      (json_int_t)im->images[1], "empty_classes",
					      im->empty_classes[1]));
	json_object_set_new(o, "build_s", json_real(seconds));
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
