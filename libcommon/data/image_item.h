/* An image of an import (image_import.c) on its way from a source to a data set. */
#ifndef DT_DATA_IMAGE_ITEM_H
#define DT_DATA_IMAGE_ITEM_H

#include "data/image_import.h"

struct image_item {
	char *name;
	uint8_t *bytes;
	size_t n;
	bool raw;
	int channels, height, width, label;
	struct dt_image image;
	struct dt_image_facts facts;
	int rc;
	bool unread; /* its file cannot be read: the import ends */
	struct dt_err err;
};

/*
 * Reads the item's file if the source left that to the thread that decodes it (bytes NULL), decodes, scales
 * and crops, and re-encodes unless the original bytes are stored: rc and err. `decoded` is one for many
 * items, so that its memory stays in a cache.
 */
void image_item_take(const struct dt_image_import *im, struct image_item *it, struct dt_image *decoded);
/* Frees its name and bytes; the image's memory stays for the next one. */
void image_item_clear(struct image_item *it);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
