/*
 * A file in the place of a block of a cache. Its checksum is put right where it has the size, so that what is
 * behind it is reached: a block is read only if it is the one asked for, byte by byte.
 */
#include "base/crc.h"
#include "serve/engine/kvdisk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

enum { SIZE = 4, BLOCK = 16, HEAD = 48, FILE_BYTES = HEAD + SIZE * 4 + BLOCK };

static struct dt_kvdisk *disk;
static char dir[] = "/tmp/fuzz-kv-XXXXXX";
static char path[256], folder[2][128];

static void clean_up(void)
{
	unlink(path);
	snprintf(path, sizeof(path), "%s/about.json", folder[0]);
	unlink(path);
	rmdir(folder[1]);
	rmdir(folder[0]);
	rmdir(dir);
	dt_kvdisk_close(disk);
}

static void open_once(void)
{
	static const struct dt_log silent = {0};
	const struct dt_kvdisk_params p = {.dir = dir,
					   .size = 1 << 20,
					   .name = 7,
					   .about = "{}",
					   .block_bytes = BLOCK,
					   .block_size = SIZE,
					   .log = &silent};

	if (disk)
		return;
	if (!mkdtemp(dir) || dt_kvdisk_open(&disk, &p, NULL) < 0)
		abort();
	snprintf(folder[0], sizeof(folder[0]), "%s/%016x", dir, 7);
	snprintf(folder[1], sizeof(folder[1]), "%s/00", folder[0]);
	snprintf(path, sizeof(path), "%s/%014x%016x.kv", folder[1], 5, 6);
	mkdir(folder[1], 0700);
	atexit(clean_up);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	const struct dt_kvkey key = {{5, 6}};
	const int32_t ids[SIZE] = {1, 2, 3, 4};
	unsigned char file[FILE_BYTES + 64], got[BLOCK];
	uint32_t crc;
	FILE *f;

	n = n < sizeof(file) ? n : sizeof(file);
	memcpy(file, data, n);
	if (n == FILE_BYTES) {
		memset(file + HEAD - 4, 0, 4);
		crc = dt_crc32(0, file, n);
		memcpy(file + HEAD - 4, &crc, 4);
	}
	open_once();
	f = fopen(path, "w");
	if (!f || fwrite(file, 1, n, f) != n || fclose(f) != 0)
		abort();
	if (dt_kvdisk_get(disk, key, ids, got) == 0 &&
	    (n != FILE_BYTES || memcmp(file + HEAD, ids, sizeof(ids)) != 0 ||
	     memcmp(file + HEAD + SIZE * 4, got, BLOCK) != 0 || memcmp(file, "dt-kv\n1\n", 8) != 0))
		abort();
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
