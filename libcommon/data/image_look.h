/* Printing a set of images, as text or JSON, for data/look.h. */
#ifndef DT_DATA_IMAGE_LOOK_H
#define DT_DATA_IMAGE_LOOK_H

#include "data/images.h"
#include "data/look.h"

/* Facts, and the images of each class: two tables, or one object. */
int dt_images_print_info(const struct dt_images *d, const char *path, const struct dt_data_look *how, FILE *f,
			 struct dt_err *err);
int dt_images_print_stats(const struct dt_images *d, const char *path, const struct dt_data_look *how,
			  FILE *f, struct dt_err *err);
/* Which images an epoch begins with. */
int dt_images_print_samples(const struct dt_images *d, const char *path, const struct dt_data_look *how,
			    FILE *f, struct dt_err *err);
/* Images as files, one behind the other: JPEG as it is stored, pixels as PGM or PPM. */
int dt_images_print_files(const struct dt_images *d, const char *path, const struct dt_data_look *how,
			  FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
