/*
 * manifest.json, and the tree of its tensors. The checksum is put right, so that what is behind it is
 * reached.
 */
#include "ckpt/internal.h"
#include "ckpt/look.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

struct seen {
	int64_t tensors;
	uint64_t bytes;
};

static void on_line(void *arg, const struct dt_tree_line *l)
{
	struct seen *v = arg;

	v->bytes += l->tensor >= 0 ? l->bytes : 0;
	v->tensors += l->tensor >= 0;
}

/* Every tensor has its line, and with or without folding their bytes are all there. */
static void try_tree(const struct ck_manifest *m)
{
	struct dt_ckpt c = {.m = *m};
	uint64_t total = 0;

	for (int i = 0; i < m->ntensor; i++)
		total += m->tensor[i].bytes;
	for (int all = 0; all < 2; all++) {
		struct seen v = {0};

		if (dt_ckpt_tree(&c, all, on_line, &v, NULL) < 0 || v.bytes != total ||
		    v.tensors > m->ntensor || (all && v.tensors < m->ntensor))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static const char mark[] = ",\n\"manifest_crc32\":\"";
	struct ck_manifest m;
	char *text = malloc(n + 64);
	const char *at;
	size_t k = n;

	memcpy(text, data, n);
	text[n] = '\0';
	at = memmem(text, n, mark, sizeof(mark) - 1);
	if (at)
		k = (size_t)(at - text);
	k += (size_t)snprintf(text + k, 64, "%s%08x\"}\n", mark, dt_crc32(0, text, k));
	if (ck_manifest_parse(text, k, "fuzz", &m, NULL) == 0) {
		for (int i = 0; i < m.npiece; i++)
			if (m.piece[i].file >= m.nfile ||
			    m.piece[i].at + m.piece[i].stored > m.file[m.piece[i].file].bytes)
				abort();
		try_tree(&m);
		ck_manifest_release(&m);
	}
	free(text);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
