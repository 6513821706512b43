/* JSON as Python's json.dumps writes it, which templates use. */
#include "data/chat_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies a string of JSON from its quote on; Python writes the digits of \u001b in lower case. */
static const char *copy_string(FILE *f, const char *s)
{
	putc(*s++, f);
	while (*s && *s != '"') {
		int n = *s != '\\' ? 1 : s[1] == 'u' ? 6 : 2;

		for (int i = 0; i < n; i++, s++)
			putc(n == 6 && *s >= 'A' && *s <= 'F' ? *s + 'a' - 'A' : *s, f);
	}
	if (*s)
		putc(*s++, f);
	return s;
}

/* Writes x with the fewest digits that give it again, from 1e16 on and below 1e-4 with an exponent. */
static void put_real(FILE *f, double x)
{
	char s[32];
	int digits = 0, power;

	do
		snprintf(s, sizeof(s), "%.*e", digits, x);
	while (strtod(s, NULL) != x && digits++ < 17);
	power = atoi(strchr(s, 'e') + 1);
	if (power < -4 || power >= 16)
		fputs(s, f);
	else
		fprintf(f, "%.*f", digits - power > 1 ? digits - power : 1, x);
}

static const char *copy_number(FILE *f, const char *s)
{
	size_t n = strspn(s, "+-.0123456789eE");

	if (strcspn(s, ".eE") < n)
		put_real(f, strtod(s, NULL));
	else
		fwrite(s, 1, n, f);
	return s + n;
}

char *dt_chat_json_text(const json_t *v, size_t flags)
{
	char *text = json_dumps(v, flags | JSON_ENCODE_ANY), *out = NULL;
	FILE *f = text ? open_memstream(&out, &(size_t){0}) : NULL;
	const char *s = text;
	bool bad;

	while (f && *s) {
		if (*s == '"')
			s = copy_string(f, s);
		else if (*s == '-' || (*s >= '0' && *s <= '9'))
			s = copy_number(f, s);
		else
			putc(*s++, f);
	}
	bad = !f || ferror(f);
	bad |= f && fclose(f) != 0;
	free(text);
	if (bad) {
		free(out);
		out = NULL;
	}
	return out;
}

void dt_chat_json(struct dt_chat_out *o, const json_t *v, size_t flags)
{
	char *text = dt_chat_json_text(v, flags);

	if (text)
		dt_chat_put(o, text);
	else
		dt_chat_no_memory(o);
	free(text);
}
/* SPDX-License-Identifier: Apache-2.0 */
