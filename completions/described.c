#include "completions/described.h"

#include <stdio.h>

json_t *options, *commands;
const char *program, *operands;
char *presets = (char[]){""}, *devices = (char[]){""};

const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

struct option option(size_t i)
{
	json_t *o = json_array_get(options, i);

	return (struct option){.name = str(o, "name"),
			       .shrt = str(o, "short"),
			       .type = str(o, "type"),
			       .arg = str(o, "arg"),
			       .help = str(o, "help"),
			       .commands = str(o, "commands"),
			       .complete = str(o, "complete"),
			       .negatable = json_is_true(json_object_get(o, "negatable"))};
}

bool is(const char *a, const char *b)
{
	return !strcmp(a, b);
}

bool listed(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, word, n) && (s[n] == ',' || !s[n]))
			return true;
	return false;
}

void put(const char *s, char from, const char *to, const char *escape)
{
	for (; *s; s++) {
		if (*s == from)
			fputs(to, stdout);
		else if (*s == '\n')
			putchar(' ');
		else if (strchr(escape, *s))
			printf("\\%c", *s);
		else
			putchar(*s);
	}
}

void put_choices(const char *s)
{
	put(s, '|', " ", "");
}

const char *command(size_t i, const char *key)
{
	return str(json_array_get(commands, i), key);
}

void put_commands(const char *between)
{
	for (size_t i = 0; i < json_array_size(commands); i++)
		printf("%s%s", i ? between : "", command(i, "name"));
}

void put_option_words(const char *c)
{
	for (size_t i = 0; i < json_array_size(options); i++) {
		struct option o = option(i);

		if (*o.commands ? !listed(o.commands, c) || !*c : *c != '\0')
			continue;
		printf(" --%s", o.name);
		if (o.negatable)
			printf(" --no-%s", o.name);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
