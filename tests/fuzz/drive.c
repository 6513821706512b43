/*
 * Runs a libFuzzer harness without libFuzzer: DRIVE CORPUS-FOLDER ROUNDS [SEED]. Every file of the folder as
 * it is, then ROUNDS changed ones: bits, bytes, numbers at any place, pieces cut out, doubled or taken from
 * another file. The same seed gives the same inputs. Exit 77 when the folder holds nothing.
 */
#include "base/rng.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 256
#define MAX_BYTES (1 << 20)

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

static struct {
	unsigned char *p;
	size_t n;
} file[MAX_FILES];
static int nfile;
static uint64_t state;

static uint64_t below(uint64_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return n ? (state >> 33) % n : 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load(const char *folder)
{
	struct dirent **list;
	int n = scandir(folder, &list, NULL, by_name);

	for (int i = 0; i < n && nfile < MAX_FILES; i++) {
		char path[4096];
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", folder, list[i]->d_name);
		f = list[i]->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (f) {
			file[nfile].p = malloc(MAX_BYTES);
			file[nfile].n = fread(file[nfile].p, 1, MAX_BYTES, f);
			nfile++;
			fclose(f);
		}
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

static size_t change(unsigned char *p, size_t n)
{
	static const uint64_t odd[] = {0,      1,	   2,	       0x7f,	  0xff,	      0x7fff,
				       0xffff, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX, 1u << 20};
	size_t at = below(n), len = below(n - at) % 64, width = (size_t)1 << below(4);
	const uint64_t v = odd[below(sizeof(odd) / sizeof(odd[0]))];
	int other = (int)below((uint64_t)nfile);

	switch (below(7)) {
	case 0:
		p[at] ^= (unsigned char)(1 << below(8));
		break;
	case 1:
		p[at] = (unsigned char)below(256);
		break;
	case 2: /* a number */
		if (n - at >= width)
			memcpy(p + at, &v, width);
		break;
	case 3: /* cut off */
		n = at + 1;
		break;
	case 4: /* cut out */
		memmove(p + at, p + at + len, n - at - len);
		n -= len ? len : 0;
		break;
	case 5: /* doubled */
		if (n + len < MAX_BYTES) {
			memmove(p + at + len, p + at, n - at);
			n += len;
		}
		break;
	default: /* from another file */
		if (len > file[other].n)
			len = file[other].n;
		if (at + len <= n)
			memcpy(p + at, file[other].p + below(file[other].n - len), len);
	}
	return n ? n : 1;
}

int main(int argc, char **argv)
{
	long rounds = argc > 2 ? atol(argv[2]) : 1000;
	unsigned char *p;

	if (argc < 2)
		return 2;
	state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	load(argv[1]);
	if (!nfile) {
		fprintf(stderr, "no files in %s\n", argv[1]);
		return 77;
	}
	for (int i = 0; i < nfile; i++)
		LLVMFuzzerTestOneInput(file[i].p, file[i].n);
	for (long r = 0; r < rounds; r++) {
		int i = (int)below((uint64_t)nfile);
		size_t n = file[i].n;
		unsigned char *exact;

		p = malloc(MAX_BYTES);
		memcpy(p, file[i].p, n);
		for (uint64_t k = below(4) + 1; k && n; k--)
			n = change(p, n);
		exact = malloc(n + !n); /* so that a read past the end is one past the allocation */
		memcpy(exact, p, n);
		free(p);
		LLVMFuzzerTestOneInput(exact, n);
		free(exact);
	}
	printf("%d files, %ld changed ones\n", nfile, rounds);
	for (int i = 0; i < nfile; i++)
		free(file[i].p);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
