#include "serve/api/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * DeepSeek: the separator stands between a call's type and its name; the arguments are in a fenced block. The
 * text ends before the first call.
 */
#define DEEPSEEK_SEP   "<｜tool▁sep｜>"
#define DEEPSEEK_CALLS "<｜tool▁call"
#define FENCE	       "```json"

const char *dt_tools_opening(enum dt_tool_form form)
{
	static const char *const opening[] = {[DT_TOOLS_HERMES] = "<tool_call>",
					      [DT_TOOLS_LLAMA3] = NULL,
					      [DT_TOOLS_MISTRAL] = "[TOOL_CALLS]",
					      [DT_TOOLS_DEEPSEEK] = DEEPSEEK_SEP};

	return opening[form];
}

/* ---- the grammar ---- */

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
	char before[DT_TOOLS_MAX][64 + sizeof(FENCE) + 3];
	json_t *schema[DT_TOOLS_MAX];
	int n = 0, rc;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *tool = json_array_get(list, i);

		if (only && strcmp(name_of(tool), only))
			continue;
		snprintf(before[n], sizeof(before[n]), "%s\n" FENCE "\n", name_of(tool));
		schema[n] = args_schema(tool);
		f[n] = (struct dt_grammar_framed){before[n], "\n```", schema[n]};
		n++;
	}
	rc = dt_grammar_framed(f, n, ret, err);
	while (n > 0)
		json_decref(schema[--n]);
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
		     struct dt_grammar **ret, struct dt_err *err)
{
	const char *key = form == DT_TOOLS_LLAMA3 ? "parameters" : "arguments";
	json_t *any, *defs, *whole;
	int taken = check_tools(list, only, err), rc = taken;

	if (taken < 0 || form == DT_TOOLS_DEEPSEEK)
		return taken < 0 ? taken : fenced_grammar(list, only, ret, err);
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

/* ---- finding calls in text ---- */

struct cursor {
	const char *s, *end;
};

static void skip_space(struct cursor *c)
{
	while (c->s < c->end && strchr(" \t\r\n", *c->s))
		c->s++;
}

static bool eat(struct cursor *c, char b)
{
	skip_space(c);
	if (c->s == c->end || *c->s != b)
		return false;
	c->s++;
	return true;
}

/* Reads the contents of a string. false: it is incomplete. */
static bool string(struct cursor *c, const char **ret, size_t *ret_n)
{
	if (!eat(c, '"'))
		return false;
	*ret = c->s;
	for (; c->s < c->end; c->s++) {
		if (*c->s == '\\') {
			c->s++;
		} else if (*c->s == '"') {
			*ret_n = (size_t)(c->s - *ret);
			c->s++;
			return true;
		}
	}
	c->s = c->end;
	return false;
}

/* Reads an object as far as it is there; true: it is complete. */
static bool object(struct cursor *c, const char **ret, size_t *ret_n)
{
	size_t depth = 0, skip;
	const char *inner;

	skip_space(c);
	*ret = c->s;
	*ret_n = 0;
	if (c->s == c->end || *c->s != '{')
		return false;
	while (c->s < c->end) {
		if (*c->s == '"') {
			if (!string(c, &inner, &skip))
				break;
			continue;
		}
		depth += *c->s == '{' || *c->s == '[';
		depth -= *c->s == '}' || *c->s == ']';
		c->s++;
		if (depth == 0) {
			*ret_n = (size_t)(c->s - *ret);
			return true;
		}
	}
	*ret_n = (size_t)(c->end - *ret);
	return false;
}

/* Reads {"name": ..., KEY: {...}}. false: there is no call, or not enough of it yet. */
static bool call(struct cursor *c, struct dt_tool_call *ret)
{
	const char *key;
	size_t n;

	*ret = (struct dt_tool_call){0};
	if (!eat(c, '{') || !string(c, &key, &n) || n != 4 || memcmp(key, "name", 4) || !eat(c, ':') ||
	    !string(c, &ret->name, &ret->nname) || !eat(c, ',') || !string(c, &key, &n) || !eat(c, ':'))
		return false;
	ret->whole = object(c, &ret->args, &ret->nargs);
	if (ret->whole)
		eat(c, '}');
	return ret->nargs > 0;
}

/* Reads NAME, an opening fence, {...}, a closing fence. false as above. */
static bool fenced_call(struct cursor *c, struct dt_tool_call *ret)
{
	const size_t len = strlen(FENCE);
	const char *end;

	*ret = (struct dt_tool_call){0};
	skip_space(c);
	end = memchr(c->s, '\n', (size_t)(c->end - c->s));
	if (!end)
		return false;
	ret->name = c->s;
	ret->nname = (size_t)(end - c->s);
	while (ret->nname > 0 && strchr(" \t\r", c->s[ret->nname - 1]))
		ret->nname--;
	c->s = end;
	skip_space(c);
	if (ret->nname == 0 || (size_t)(c->end - c->s) < len || memcmp(c->s, FENCE, len))
		return false;
	c->s += len;
	ret->whole = object(c, &ret->args, &ret->nargs);
	return ret->nargs > 0;
}

/* Finds calls behind separators; inside: the first call begins at once. */
static void scan_fenced(struct cursor c, bool inside, struct dt_tool_calls *ret)
{
	while (ret->n < DT_CALLS_MAX) {
		const char *sep = memmem(c.s, (size_t)(c.end - c.s), DEEPSEEK_SEP, strlen(DEEPSEEK_SEP));

		if (!inside && !sep)
			break;
		c.s = inside ? c.s : sep + strlen(DEEPSEEK_SEP);
		inside = false;
		if (!fenced_call(&c, &ret->call[ret->n]) || !ret->call[ret->n++].whole)
			break;
	}
}

/* Bytes of s [n] before mark, or before a suffix that may become mark. */
size_t dt_tools_before(const char *s, size_t n, const char *mark, bool ended)
{
	size_t len = strlen(mark);
	const char *at = memmem(s, n, mark, len);

	if (at)
		return (size_t)(at - s);
	for (size_t k = n < len ? n : len - 1; k > 0 && !ended; k--)
		if (!memcmp(s + n - k, mark, k))
			return n - k;
	return n;
}

size_t dt_tools_trimmed(const char *s, size_t n)
{
	while (n > 0 && strchr(" \t\r\n", s[n - 1]))
		n--;
	return n;
}

void dt_tools_scan(enum dt_tool_form form, bool inside, const char *s, size_t n, bool ended,
		   struct dt_tool_calls *ret)
{
	const char *opening = form == DT_TOOLS_DEEPSEEK ? DEEPSEEK_CALLS : dt_tools_opening(form);
	struct cursor c = {s, s + n};
	size_t at;

	ret->n = 0;
	ret->from = ret->content = 0;
	if (!inside && opening) {
		at = dt_tools_before(s, n, opening, ended);
		ret->content = at == n && ended ? n : dt_tools_trimmed(s, at);
		c.s = s + (at + strlen(opening) < n ? at + strlen(opening) : n);
		if (at == n)
			return;
	} else if (!opening) {
		skip_space(&c);
		if (c.s < c.end && *c.s != '{') {
			ret->content = n;
			return;
		}
	}
	if (form == DT_TOOLS_MISTRAL)
		eat(&c, '[');
	if (form == DT_TOOLS_DEEPSEEK)
		scan_fenced(c, inside, ret);
	while (form != DT_TOOLS_DEEPSEEK && ret->n < DT_CALLS_MAX && call(&c, &ret->call[ret->n])) {
		if (!ret->call[ret->n++].whole)
			break;
		if (form == DT_TOOLS_HERMES) {
			const char *next = memmem(c.s, (size_t)(c.end - c.s), opening, strlen(opening));

			c.s = next ? next + strlen(opening) : c.end;
		} else if (!eat(&c, form == DT_TOOLS_MISTRAL ? ',' : ';')) {
			break;
		}
	}
	if (ret->n == 0 && ended) /* no call after all: it is text */
		ret->content = n;
}
/* SPDX-License-Identifier: Apache-2.0 */
