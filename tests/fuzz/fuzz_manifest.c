/* manifest.json. The checksum is put right, so that what is behind it is reached. */
#include "ckpt/internal.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

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
	k += (size_t)snprintf(text + k, 64, "%s%08x\"}\n", mark, ck_crc32(0, text, k));
	if (ck_manifest_parse(text, k, "fuzz", &m, NULL) == 0) {
		for (int i = 0; i < m.npiece; i++)
			if (m.piece[i].file >= m.nfile ||
			    m.piece[i].at + m.piece[i].stored > m.file[m.piece[i].file].bytes)
				abort();
		ck_manifest_release(&m);
	}
	free(text);
	return 0;
}
