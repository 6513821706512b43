/* A chat template's text, a NUL, and messages: whatever the text is taken for, messages become tokens. */
#include "data/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	static struct dt_tokenizer *tok;
	const unsigned char *nul = memchr(data, 0, n);
	size_t len = nul ? (size_t)(nul - data) : n, ids_n;
	char *text = strndup((const char *)data, len);
	struct dt_chat c;
	int32_t *ids;
	json_t *v;
	int kind;

	if (!text || (!tok && dt_tokenizer_open("byte", &tok, NULL) < 0))
		abort();
	kind = dt_chat_recognise(text, tok);
	if (kind < 0)
		kind = (int)(n % DT_CHAT_N);
	dt_chat_init(&c, (enum dt_chat_kind)kind, text, tok);
	v = nul ? json_loadb((const char *)nul + 1, n - len - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
			     NULL)
		: NULL;
	if (v && dt_chat_encode(&c, v, NULL, &ids, &ids_n, NULL) == 0) {
		for (size_t i = 0; i < ids_n; i++)
			if (ids[i] < 0 || ids[i] >= dt_tokenizer_vocab(tok))
				abort();
		free(ids);
	}
	json_decref(v);
	free(text);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
