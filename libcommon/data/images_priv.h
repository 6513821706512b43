/* Shared by images_open.c and images_read.c alone. */
#ifndef DT_DATA_IMAGES_PRIV_H
#define DT_DATA_IMAGES_PRIV_H

#include "data/images.h"
#include "data/shard_set.h"

struct dt_images_shard {
	char *path;
	int fd;		       /* of the file's bytes: HDF5 is for one thread */
	int64_t first, n;      /* images */
	int64_t offset, bytes; /* of /data */
	int64_t *at;	       /* jpeg: n + 1 offsets in /data */
	uint32_t crc;
};

struct dt_images {
	struct dt_images_info info;
	char *path, *source, *names, **name;
	struct dt_images_shard *shard;
	int32_t *label;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
