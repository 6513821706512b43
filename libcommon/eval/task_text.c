#include "eval/task.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct out {
	char *s;
	size_t n, cap;
};

static int put(struct out *o, const char *s, size_t n)
{
	if (o->n + n + 1 > o->cap) {
		size_t cap = 2 * (o->n + n) + 64;
		char *grown = realloc(o->s, cap);

		if (!grown)
			return -ENOMEM;
		o->s = grown;
		o->cap = cap;
	}
	memcpy(o->s + o->n, s, n);
	o->n += n;
	o->s[o->n] = '\0';
	return 0;
}

/* Writes a field as text: strings as they are, other values as JSON. */
static int put_field(struct out *o, const json_t *item, const char *name, size_t n, struct dt_err *err)
{
	char key[256];
	const json_t *v;
	char *text;
	int rc;

	if (n >= sizeof(key))
		return dt_err_set(err, -EINVAL,
				  "a field name in the template has %zu characters, more than 255", n);
	if (!item)
		return 0;
	memcpy(key, name, n);
	key[n] = '\0';
	v = json_object_get(item, key);
	if (!v)
		return dt_err_set(err, -EINVAL, "the item lacks '%s', which the template uses", key);
	if (json_is_string(v))
		return put(o, json_string_value(v), json_string_length(v));
	text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
	rc = text ? put(o, text, strlen(text)) : -ENOMEM;
	free(text);
	return rc;
}

char *dt_task_fill(const char *template, const json_t *item, struct dt_err *err)
{
	struct out o = {0};
	int rc = put(&o, "", 0);

	for (const char *s = template; *s && rc == 0;) {
		const char *end;

		if ((s[0] == '{' || s[0] == '}') && s[1] == s[0]) {
			rc = put(&o, s, 1);
			s += 2;
		} else if (s[0] != '{') {
			size_t n = strcspn(s + 1, "{}") + 1;

			rc = put(&o, s, n);
			s += n;
		} else if (!(end = strchr(s, '}'))) {
			rc = dt_err_set(err, -EINVAL, "the template has a '{' without '}'");
		} else {
			rc = put_field(&o, item, s + 1, (size_t)(end - s - 1), err);
			s = end + 1;
		}
	}
	if (rc == 0)
		return o.s;
	if (rc == -ENOMEM)
		dt_err_sys(err, -ENOMEM, "cannot fill the template");
	free(o.s);
	return NULL;
}

static bool is_article(const char *word, size_t n)
{
	return (n == 1 && word[0] == 'a') || (n == 2 && !memcmp(word, "an", 2)) ||
	       (n == 3 && !memcmp(word, "the", 3));
}

/* Lower-cases, removes punctuation and articles, and collapses blanks. */
static void loosen(char *s)
{
	char *to = s, *word;
	size_t n = 0;

	for (char *from = s; *from; from++)
		if (!ispunct((unsigned char)*from))
			s[n++] = (char)tolower((unsigned char)*from);
	s[n] = '\0';
	for (char *at = s; *at;) {
		at += strspn(at, " \t\r\n");
		word = at;
		at += strcspn(at, " \t\r\n");
		n = (size_t)(at - word);
		if (!n || is_article(word, n))
			continue;
		if (to != s)
			*to++ = ' ';
		memmove(to, word, n);
		to += n;
	}
	*to = '\0';
}

/* Writes a decimal number in its shortest form: 07.50 as 7.5, 0.5 as .5, -0 as 0. 1.2.0 stays as it is. */
static void shorten(char *s)
{
	char *digit = s + (*s == '-'), *point = strchr(s, '.'), *end = s + strlen(s);
	size_t zeros;

	if (point && strchr(point + 1, '.'))
		return;
	while (point && end > point && (end[-1] == '0' || end[-1] == '.'))
		if (*--end == '.')
			point = NULL;
	*end = '\0';
	zeros = strspn(digit, "0");
	if (zeros && !digit[zeros])
		zeros--;
	memmove(digit, digit + zeros, strlen(digit + zeros) + 1);
	if (!strcmp(s, "-0"))
		strcpy(s, "0");
}

/* Keeps the last number, without thousands separators or a final point. */
static void last_number(char *s)
{
	char *begin = NULL, *end = NULL, *to = s;

	for (char *at = s; *at; at++) {
		if (!isdigit((unsigned char)*at))
			continue;
		begin = at;
		if (begin > s && begin[-1] == '.' && (begin - 1 == s || strchr(" \t\n$=(+-", begin[-2])))
			begin--;
		if (begin > s && begin[-1] == '-')
			begin--;
		while (isdigit((unsigned char)*at) ||
		       ((*at == ',' || *at == '.') && isdigit((unsigned char)at[1])))
			at++;
		end = at--;
	}
	for (char *at = begin; at && at < end; at++)
		if (*at != ',')
			*to++ = *at;
	*to = '\0';
	shorten(s);
}

char *dt_task_normal(enum dt_task_match how, const char *text)
{
	char *s, *end;

	text += strspn(text, " \t\r\n");
	s = strdup(text);
	if (!s)
		return NULL;
	for (end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);)
		*--end = '\0';
	if (how == DT_MATCH_LOOSE)
		loosen(s);
	else if (how == DT_MATCH_NUMBER)
		last_number(s);
	return s;
}

bool dt_task_matches(const struct dt_task *t, const struct dt_task_item *item, const char *text)
{
	char *got = dt_task_normal(t->match, text);
	bool same = false;

	if (got && t->match == DT_MATCH_NUMBER && !*got) { /* no number equals none */
		free(got);
		return false;
	}
	for (int i = 0; i < item->naccepted && got && !same; i++) {
		char *want = dt_task_normal(t->match, item->accepted[i]);

		same = want && !strcmp(got, want);
		free(want);
	}
	free(got);
	return same;
}
/* SPDX-License-Identifier: Apache-2.0 */
