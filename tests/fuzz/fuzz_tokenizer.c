/* tokenizer.json; what is accepted encodes, and decodes what it encoded. */
#include "data/tokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static const char text[] = "Hello, world's 123 \xe2\x82\xac\n";
	struct dt_tokenizer *t;
	char *back;
	int32_t *ids;
	size_t count, len;

	if (dt_tokenizer_from_text((const char *)data, n, &t, NULL) < 0)
		return 0;
	if (dt_tokenizer_encode(t, text, sizeof(text) - 1, true, &ids, &count, NULL) == 0) {
		if (dt_tokenizer_decode(t, ids, count, true, &back, &len, NULL) < 0)
			abort();
		free(back);
		free(ids);
	}
	dt_tokenizer_close(t);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
