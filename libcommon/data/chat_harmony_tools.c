/*
 * Tools in prompts of harmony (gpt-oss): declarations as TypeScript, in the format of the published template,
 * with its blanks and line ends.
 */
#include "data/chat_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY_ABOVE 50 /* characters of an element's type, above which an array is any[] */

static void put_type(FILE *f, const json_t *spec);

/* Whether Jinja takes it for true. */
static bool given(const json_t *v)
{
	return json_is_true(v) || json_string_length(v) > 0 || json_array_size(v) > 0 ||
	       json_object_size(v) > 0 || (json_is_number(v) && json_number_value(v) != 0);
}

/* Whether the value's `key` is this word. */
static bool is(const json_t *spec, const char *key, const char *word)
{
	const char *s = json_string_value(json_object_get(spec, key));

	return s && !strcmp(s, word);
}

static void put_value(FILE *f, const json_t *v)
{
	char *s = dt_chat_json_text(v, 0);

	fputs(s ? s : "", f);
	free(s);
}

/* A text as it is, another value as JSON. */
static void put_plain(FILE *f, const json_t *v)
{
	if (json_is_string(v))
		fputs(json_string_value(v), f);
	else
		put_value(f, v);
}

static void put_list(FILE *f, const json_t *list, const char *between)
{
	const json_t *v;
	size_t i;

	json_array_foreach((json_t *)list, i, v)
	{
		if (i > 0)
			fputs(between, f);
		put_plain(f, v);
	}
}

/* Characters of UTF-8 text. */
static size_t characters(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static void put_array(FILE *f, const json_t *spec)
{
	const json_t *items = json_object_get(spec, "items");
	char *inner = NULL;
	size_t n;
	FILE *g;

	if (!given(items)) {
		fputs("any[]", f);
	} else if (is(items, "type", "string")) { /* without the values of an enum */
		fputs("string[]", f);
	} else {
		g = open_memstream(&inner, &n);
		if (g) {
			put_type(g, items);
			fclose(g);
		}
		fputs(!inner || !strcmp(inner, "object | object") || characters(inner) > ANY_ABOVE ? "any"
												   : inner,
		      f);
		fputs("[]", f);
		free(inner);
	}
	if (given(json_object_get(spec, "nullable")))
		fputs(" | null", f);
}

static void put_one_of(FILE *f, const json_t *list)
{
	const json_t *v;
	size_t i;

	json_array_foreach((json_t *)list, i, v)
	{
		const json_t *says = json_object_get(v, "description"),
			     *usual = json_object_get(v, "default");

		put_type(f, v);
		if (given(says)) {
			fputs("// ", f);
			put_plain(f, says);
		}
		if (usual) {
			fprintf(f, "%20s// default: ", "");
			put_value(f, usual);
		}
		if (i + 1 < json_array_size(list))
			fputs(" | \n", f);
	}
}

/* name, and ? unless it is one of the required. */
static void put_name(FILE *f, const char *name, const json_t *required)
{
	bool needed = false;
	const json_t *v;
	size_t i;

	json_array_foreach((json_t *)required, i, v)
	{
		needed |= json_is_string(v) && !strcmp(json_string_value(v), name);
	}
	fprintf(f, "%s%s: ", name, needed ? "" : "?");
}

static void put_object(FILE *f, const json_t *spec)
{
	json_t *properties = json_object_get(spec, "properties"), *v;
	const char *name, *between = "";

	if (!given(properties)) {
		fputs("object", f);
		return;
	}
	fputs("{\n", f);
	json_object_foreach(properties, name, v)
	{
		fputs(between, f);
		put_name(f, name, json_object_get(spec, "required"));
		fprintf(f, "\n%16s", "");
		put_type(f, v);
		between = ", ";
	}
	fputs("}", f);
}

static void put_string(FILE *f, const json_t *spec)
{
	const json_t *words = json_object_get(spec, "enum");

	if (given(words)) {
		fputs("\"", f);
		put_list(f, words, "\" | \"");
		fputs("\"", f);
	} else {
		fputs(given(json_object_get(spec, "nullable")) ? "string | null" : "string", f);
	}
}

/* The type of the values that a schema accepts. What the template does not know is any. */
static void put_type(FILE *f, const json_t *spec)
{
	const json_t *types = json_object_get(spec, "type"), *one = json_object_get(spec, "oneOf");

	if (is(spec, "type", "array"))
		put_array(f, spec);
	else if (json_array_size(types) > 0)
		put_list(f, types, " | ");
	else if (given(one))
		put_one_of(f, one);
	else if (is(spec, "type", "string"))
		put_string(f, spec);
	else if (is(spec, "type", "number") || is(spec, "type", "integer"))
		fputs("number", f);
	else if (is(spec, "type", "boolean"))
		fputs("boolean", f);
	else if (is(spec, "type", "object"))
		put_object(f, spec);
	else
		fputs("any", f);
}

/* An argument of a tool, on lines of its own. */
static void put_argument(FILE *f, const char *name, const json_t *spec, const json_t *required)
{
	const json_t *says = json_object_get(spec, "description"), *usual = json_object_get(spec, "default");

	if (given(says)) {
		fputs("// ", f);
		put_plain(f, says);
		fputs("\n", f);
	}
	put_name(f, name, required);
	put_type(f, spec);
	if (usual && given(json_object_get(spec, "enum"))) {
		fputs(", // default: ", f);
		put_plain(f, usual);
	} else if (usual && given(json_object_get(spec, "oneOf"))) {
		fputs("// default: ", f);
		put_plain(f, usual);
	} else if (usual) {
		fputs(", // default: ", f);
		put_value(f, usual);
	}
	fputs(",\n", f);
}

static void put_tool(FILE *f, const json_t *tool)
{
	const json_t *says = json_object_get(tool, "description"),
		     *schema = json_object_get(tool, "parameters");
	const char *name = json_string_value(json_object_get(tool, "name")), *key;
	json_t *properties = json_object_get(schema, "properties"), *v;

	if (json_is_string(says))
		fprintf(f, "// %s\n", json_string_value(says));
	fprintf(f, "type %s = ", name ? name : "");
	if (!given(properties)) {
		fputs("() => any;\n\n", f);
		return;
	}
	fputs("(_: {\n", f);
	json_object_foreach(properties, key, v)
	{
		put_argument(f, key, v, json_object_get(schema, "required"));
	}
	fputs("}) => any;\n\n", f);
}

void dt_chat_harmony_tools(struct dt_chat_out *o)
{
	char *text = NULL;
	size_t n, i;
	FILE *f = open_memstream(&text, &n);
	json_t *v;
	bool bad = !f;

	if (f) {
		fputs("# Tools\n\n## functions\n\nnamespace functions {\n\n", f);
		json_array_foreach((json_t *)o->tools->list, i, v)
		{
			put_tool(f, json_object_get(v, "function"));
		}
		fputs("} // namespace functions", f);
		bad = ferror(f);
		bad |= fclose(f) != 0;
	}
	if (bad)
		dt_chat_no_memory(o);
	else
		dt_chat_put_n(o, text, n);
	free(text);
}
/* SPDX-License-Identifier: Apache-2.0 */
