/* The lines of a request's head that libcurl sends, where memory may be short. */
#ifndef DT_BASE_CURL_LINES_H
#define DT_BASE_CURL_LINES_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds a copy of the line; false: out of memory, the list stays as it was. */
static inline bool dt_curl_line(struct curl_slist **list, const char *line)
{
	struct curl_slist *grown = curl_slist_append(*list, line);

	if (grown)
		*list = grown;
	return grown;
}

/* Adds the line that authorizes with a key. */
static inline bool dt_curl_bearer(struct curl_slist **list, const char *key)
{
	char *line;
	int n = asprintf(&line, "Authorization: Bearer %s", key);
	bool good = n >= 0 && dt_curl_line(list, line);

	if (n < 0)
		return false;
	explicit_bzero(line, (size_t)n);
	free(line);
	return good;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
