/* What a person or a script is told of a set of images. */
#ifndef DT_DATA_IMAGE_LOOK_H
#define DT_DATA_IMAGE_LOOK_H

#include "base/json.h"
#include "base/table.h"
#include "data/image_import.h"

/* One object: facts, and the images of each class. The caller's. */
int dt_images_json(const struct dt_images *d, const char *path, json_t **ret, struct dt_err *err);
/* Tables property|value and label|class|images. The caller's. */
int dt_images_tables(const struct dt_images *d, struct dt_table **ret_facts, struct dt_table **ret_classes,
		     struct dt_err *err);
/* What an import found: in words, and as an object, the caller's. */
void dt_image_import_summary(const struct dt_image_import *im, char *buf, size_t n);
json_t *dt_image_import_json(const struct dt_image_import *im, const char *path);
/* As PGM or PPM. */
int dt_image_write_pnm(const struct dt_image *x, FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
