/* Regular expressions of schemas, and a text behind a NUL: an automaton and what it says no to agree. */
#include "base/utf8.h"
#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);

#define STEPS 1000000

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
	struct dt_auto_budget work = {STEPS};
	struct dt_auto *a = NULL, *all = NULL, *other = NULL;
	const unsigned char *nul = memchr(data, 0, n);
	size_t len = nul ? (size_t)(nul - data) : n, rest = nul ? n - len - 1 : 0;
	/* jansson hands over only well-formed text */
	char *pattern = dt_utf8_clean((const char *)data, len, &len);
	char *text = dt_utf8_clean(nul ? (const char *)nul + 1 : "", rest, &rest);

	if (!pattern || !text)
		abort();
	text[strlen(text)] = '\0';
	if (dt_auto_regex(pattern, &work, &a, NULL) == 0 && dt_auto_length(0, -1, &work, &all) == 0 &&
	    dt_auto_product(all, a, true, &work, &other) == 0) {
		if (dt_auto_accepts(a, text) == dt_auto_accepts(other, text))
			abort(); /* exactly one of a set and its complement has the text */
	}
	dt_auto_free(a);
	dt_auto_free(all);
	dt_auto_free(other);
	free(pattern);
	free(text);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
