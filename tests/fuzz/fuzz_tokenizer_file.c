/* SentencePiece's tokenizer.model and the other files a tokenizer can be in; what is read is used. */
#include "ckpt/tokenizer_file.h"
#include "data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct dt_tokenizer *t;
	char path[64], *text;
	int32_t *ids;
	size_t len;

	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (dt_tokenizer_file_text(path, &text, &len, NULL) == 0) {
		if (dt_tokenizer_from_text(text, len, &t, NULL) == 0) {
			if (dt_tokenizer_encode(t, "a b\n\xc3\xa9 123", 10, true, &ids, &len, NULL) == 0)
				free(ids);
			dt_tokenizer_close(t);
		}
		free(text);
	}
	close(fd);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
