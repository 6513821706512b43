/*
 * A GGUF model in two files. An input is the length of the first (4 bytes, little-endian), the first, the
 * second: both change, and where one ends.
 */
#include "base/tmpfile.h"
#include "source.h"

#include <limits.h>
#include <string.h>

static char folder[PATH_MAX];

static void clean(void)
{
	dt_remove_tree(folder, NULL);
}

static void make_folder(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(folder, sizeof(folder), "%.400s/dt-fuzz-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(folder))
		abort();
	atexit(clean);
}

static void put(char path[PATH_MAX + 32], int part, const unsigned char *data, size_t n)
{
	FILE *f;

	snprintf(path, PATH_MAX + 32, "%s/m-%05d-of-00002.gguf", folder, part);
	f = fopen(path, "w");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	char first[PATH_MAX + 32], second[PATH_MAX + 32];
	uint32_t k;

	if (n < 4)
		return 0;
	if (!folder[0])
		make_folder();
	memcpy(&k, data, 4);
	data += 4;
	n -= 4;
	k = k < n ? k : (uint32_t)n;
	put(second, 2, data + k, n - k);
	put(first, 1, data, k);
	try_path(first, DT_SOURCE_GGUF);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
