/*
 * Files of images: the first byte says which reader; IDX has the two files one behind the other, the length
 * of the first in the next two bytes.
 */
#include "data/image_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static int take(void *ctx, const struct dt_image_item *item, struct dt_err *err)
{
	unsigned *sum = ctx;

	if (!item->name ||
	    (item->raw && item->n != (size_t)item->channels * (size_t)item->height * (size_t)item->width))
		abort();
	for (size_t i = 0; i < item->n; i++)
		*sum += item->bytes[i];
	return 0;
}

static void passed(void *ctx, const char *name, const char *why)
{
	unsigned *sum = ctx;

	*sum += (unsigned)(*name + *why);
}

static int open_bytes(const unsigned char *data, size_t n, char path[64])
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	unsigned sum = 0;
	struct dt_image_sink to = {&sum, take, NULL, passed};
	char path[2][64];
	const char *both[2] = {path[0], path[1]};
	struct dt_err err;
	size_t cut;
	int fd[2];

	if (n < 3)
		return 0;
	cut = (size_t)data[1] << 8 | data[2];
	cut = 3 + cut > n ? n : 3 + cut;
	if (data[0] % 4 != 0)
		cut = n;
	fd[0] = open_bytes(data + 3, cut - 3, path[0]);
	fd[1] = open_bytes(data + cut, n - cut, path[1]);
	if (data[0] % 4 == 0)
		dt_image_from_idx(both, &to, &err);
	else if (data[0] % 4 == 1)
		dt_image_from_tar(path[0], NULL, &to, &err);
	else
		dt_image_from_cifar(path[0], data[0] % 4 == 3, &to, &err);
	close(fd[0]);
	close(fd[1]);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
