/* Grammars of tool calls. */
#include "serve/api/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(const char *s)
{
	size_t n = s ? strlen(s) : 0;

	return n > 0 && n <= 64 &&
	       strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

static const char *name_of(const json_t *tool)
{
	return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static int check_tool(const json_t *list, size_t at, struct dt_err *err)
{
	const json_t *v = json_array_get(list, at), *f = json_object_get(v, "function");
	const char *type = json_string_value(json_object_get(v, "type"));
	const char *name = json_string_value(json_object_get(f, "name"));
	const json_t *schema = json_object_get(f, "parameters");

	if (!type || strcmp(type, "function") || !json_is_object(f))
		return dt_err_set(err, -EINVAL,
				  "tool %zu is not {\"type\": \"function\", \"function\": {...}}", at);
	if (!is_name(name))
		return dt_err_set(err, -EINVAL,
				  "tool %zu has no name of at most 64 letters, digits, _, . and -", at);
	if (schema && !json_is_null(schema) && !json_is_object(schema))
		return dt_err_set(err, -EINVAL, "the parameters of tool '%s' are not a JSON schema", name);
	for (size_t i = 0; i < at; i++)
		if (!strcmp(name_of(json_array_get(list, i)), name))
			return dt_err_set(err, -EINVAL, "two tools have the name '%s'", name);
	return 0;
}

/*
 * Schema of a tool's arguments. A schema without a type is an object's; without a schema there are no
 * arguments.
 */
static json_t *args_schema(const json_t *tool)
{
	const json_t *given = json_object_get(json_object_get(tool, "function"), "parameters");
	json_t *schema = json_is_object(given) ? json_copy((json_t *)given)
					       : json_pack("{s:b}", "additionalProperties", 0);

	if (schema && !json_object_get(schema, "type"))
		json_object_set_new(schema, "type", json_string("object"));
	return schema;
}

/* Schema of a call: {"name": the tool's, KEY: its arguments}. */
static json_t *call_schema(const json_t *tool, const char *key)
{
	const json_t *f = json_object_get(tool, "function");
	json_t *schema = args_schema(tool);

	return json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s,s], s:b}", "type", "object", "properties", "name",
			 "const", json_object_get(f, "name"), key, schema, "required", "name", key,
			 "additionalProperties", 0);
}

/* Moves a tool's $defs to the common ones, to which references inside its schema point. */
static int hoist(json_t *call, const char *key, json_t *defs, struct dt_err *err)
{
	json_t *schema = json_object_get(json_object_get(call, "properties"), key), *own, *v;
	const char *name;

	own = json_object_get(schema, "$defs");
	json_object_foreach(own, name, v)
	{
		json_t *other = json_object_get(defs, name);

		if (other && !json_equal(other, v))
			return dt_err_set(err, -ENOTSUP, "two tools have different $defs '%.60s'", name);
		json_object_set(defs, name, v);
	}
	json_object_del(schema, "$defs");
	json_object_del(schema, "$schema");
	return 0;
}

/* Grammar of NAME and fenced arguments, for all tools or only one. The tools were checked before. */
static int fenced_grammar(const json_t *list, const char *only, struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_grammar_framed f[DT_TOOLS_MAX];
	char before[DT_TOOLS_MAX][64 + sizeof(DT_TOOLS_FENCE) + 3];
	json_t *schema[DT_TOOLS_MAX];
	int n = 0, rc;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *tool = json_array_get(list, i);

		if (only && strcmp(name_of(tool), only))
			continue;
		snprintf(before[n], sizeof(before[n]), "%s\n" DT_TOOLS_FENCE "\n", name_of(tool));
		schema[n] = args_schema(tool);
		f[n] = (struct dt_grammar_framed){before[n], "\n```", schema[n]};
		n++;
	}
	rc = dt_grammar_framed(f, n, ret, err);
	while (n > 0)
		json_decref(schema[--n]);
	return rc;
}

/*
 * What stands between "to" and the arguments of a call of harmony: the receiver, the channel unless it came
 * before, and the type of the text.
 */
static int call_header(const char *name, const struct dt_grammar_tokens *tokens, struct dt_grammar **ret,
		       struct dt_err *err)
{
	static const char *const mark[] = {"<|channel|>", "<|constrain|>", "<|message|>"};
	char m[3][24], text[256];

	for (int i = 0; i < 3; i++) {
		const int32_t id = tokens ? tokens->find(tokens->arg, mark[i], strlen(mark[i])) : -1;

		if (id >= 0 && tokens->fits(tokens->arg, id))
			snprintf(m[i], sizeof(m[i]), "<[%d]>", id);
		else
			snprintf(m[i], sizeof(m[i]), "\"%s\"", mark[i]);
	}
	snprintf(text, sizeof(text),
		 "root ::= \"=functions.%s\" (\" \"? %s \"commentary\")? (\" \"? %s \"json\" | \" json\" | "
		 "\" \")? %s",
		 name, m[0], m[1], m[2]);
	return dt_grammar_gbnf(text, strlen(text), tokens, ret, err);
}

/* Grammar of a call of harmony, for all tools or only one. The tools were checked before. */
static int channel_grammar(const json_t *list, const char *only, const struct dt_grammar_tokens *tokens,
			   struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_grammar_framed f[DT_TOOLS_MAX];
	struct dt_grammar *head[DT_TOOLS_MAX];
	json_t *schema[DT_TOOLS_MAX];
	int n = 0, rc = 0;

	for (size_t i = 0; i < json_array_size(list) && rc >= 0; i++) {
		const json_t *tool = json_array_get(list, i);

		if (only && strcmp(name_of(tool), only))
			continue;
		rc = call_header(name_of(tool), tokens, &head[n], err);
		if (rc < 0)
			break;
		schema[n] = args_schema(tool);
		f[n] = (struct dt_grammar_framed){.after = "", .schema = schema[n], .head = head[n]};
		n++;
	}
	if (rc >= 0)
		rc = dt_grammar_framed(f, n, ret, err);
	while (n > 0) {
		json_decref(schema[--n]);
		dt_grammar_drop(head[n]);
	}
	return rc;
}

/* Checks all tools; returns the number of those that may be called. */
static int check_tools(const json_t *list, const char *only, struct dt_err *err)
{
	size_t n = json_array_size(list);
	int taken = 0, rc = 0;

	if (n == 0 || n > DT_TOOLS_MAX)
		return dt_err_set(err, -EINVAL, "%zu tools were given; the number must be 1 to %d", n,
				  DT_TOOLS_MAX);
	for (size_t i = 0; i < n && rc >= 0; i++) {
		rc = check_tool(list, i, err);
		taken += rc >= 0 && (!only || !strcmp(name_of(json_array_get(list, i)), only));
	}
	if (rc >= 0 && taken == 0)
		rc = dt_err_set(err, -EINVAL, "'tool_choice' names a tool that is not in 'tools'");
	return rc < 0 ? rc : taken;
}

int dt_tools_grammar(enum dt_tool_form form, const json_t *list, const char *only, bool parallel,
		     const struct dt_grammar_tokens *tokens, struct dt_grammar **ret, struct dt_err *err)
{
	const char *key = form == DT_TOOLS_LLAMA3 ? "parameters" : "arguments";
	json_t *any, *defs, *whole;
	int taken = check_tools(list, only, err), rc = taken;

	if (taken < 0 || form == DT_TOOLS_DEEPSEEK)
		return taken < 0 ? taken : fenced_grammar(list, only, ret, err);
	if (form == DT_TOOLS_HARMONY)
		return channel_grammar(list, only, tokens, ret, err);
	any = json_array();
	defs = json_object();
	for (size_t i = 0; i < json_array_size(list) && rc >= 0; i++) {
		const json_t *tool = json_array_get(list, i);
		json_t *call;

		if (only && strcmp(name_of(tool), only))
			continue;
		call = call_schema(tool, key);
		rc = hoist(call, key, defs, err);
		json_array_append_new(any, call);
	}
	whole = taken == 1 ? json_incref(json_array_get(any, 0)) : json_pack("{s:O}", "anyOf", any);
	if (form == DT_TOOLS_MISTRAL)
		whole = json_pack("{s:s, s:o, s:i, s:i}", "type", "array", "items", whole, "minItems", 1,
				  "maxItems", parallel ? DT_CALLS_MAX : 1);
	if (json_object_size(defs) > 0)
		json_object_set(whole, "$defs", defs);
	if (rc >= 0)
		rc = whole ? dt_grammar_schema(whole, ret, err)
			   : dt_err_sys(err, -ENOMEM, "cannot read the tools");
	json_decref(whole);
	json_decref(any);
	json_decref(defs);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
