/* A source from bytes in memory: opened, described, every parameter read in part. */
#ifndef DT_TESTS_FUZZ_SOURCE_H
#define DT_TESTS_FUZZ_SOURCE_H

#include "ckpt/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

/* What is accepted can be read. */
static inline void try_path(const char *path, enum dt_source_kind kind)
{
	struct dt_source *s;
	struct dt_err err;

	if (dt_source_open(path, kind, NULL, &s, &err) == 0) {
		const struct dt_params *p = dt_source_params(s);

		for (int i = 0; i < p->n; i++) {
			int64_t off[2] = {p->p[i].shape[0] - 1, 0},
				shape[2] = {1, p->p[i].shape[1] < 64 ? p->p[i].shape[1] : 64};
			float x[64];

			if (p->p[i].ndim == 2)
				off[1] = p->p[i].shape[1] - shape[1];
			if (dt_source_read(s, i, off, shape, DT_F32, x, &err) < 0)
				abort();
		}
		dt_source_close(s);
	}
}

static inline void try_source(const unsigned char *data, size_t n, enum dt_source_kind kind)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	char path[64];

	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	try_path(path, kind);
	close(fd);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
