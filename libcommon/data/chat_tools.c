/*
 * Tools in prompts, in the format of the published templates of Qwen 2.5 and Hermes, Llama 3.1 and Mistral
 * v0.3; calls and results also in DeepSeek-V3's.
 */
#include "data/chat_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum dt_tool_form dt_chat_tool_form(const struct dt_chat *c)
{
	static const enum dt_tool_form form[DT_CHAT_N] = {[DT_CHAT_CHATML] = DT_TOOLS_HERMES,
							  [DT_CHAT_LLAMA3] = DT_TOOLS_LLAMA3,
							  [DT_CHAT_MISTRAL] = DT_TOOLS_MISTRAL,
							  [DT_CHAT_DEEPSEEK3] = DT_TOOLS_DEEPSEEK,
							  [DT_CHAT_HARMONY] = DT_TOOLS_HARMONY};

	return form[c->kind];
}

int dt_chat_check_calls(const struct dt_chat_message *m, size_t at, struct dt_err *err)
{
	size_t i;
	json_t *v;

	if (strcmp(m->role, "assistant"))
		return dt_err_set(err, -EINVAL, "message %zu has tool_calls, but its role is not assistant",
				  at);
	json_array_foreach((json_t *)m->calls, i, v)
	{
		const json_t *f = json_object_get(v, "function"), *args = json_object_get(f, "arguments");
		json_t *parsed = json_is_string(args) ? json_loads(json_string_value(args), 0, NULL) : NULL;
		bool ok = json_is_string(json_object_get(f, "name")) && json_is_object(parsed);

		json_decref(parsed);
		if (!ok)
			return dt_err_set(err, -EINVAL,
					  "message %zu: call %zu needs a function with a name, and arguments "
					  "that are a JSON object as a string",
					  at, i);
	}
	return 0;
}

/* Writes a tool call: {"name": N, KEY: {...}}, and {"id": ID} if the family has it. */
static void put_call(struct dt_chat_out *o, const json_t *call, const char *key, bool id)
{
	const json_t *f = json_object_get(call, "function");
	json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);

	dt_chat_put(o, "{\"name\": ");
	dt_chat_json(o, json_object_get(f, "name"), 0);
	dt_chat_put(o, ", \"");
	dt_chat_put(o, key);
	dt_chat_put(o, "\": ");
	dt_chat_json(o, args, 0);
	if (id && json_is_string(json_object_get(call, "id"))) {
		dt_chat_put(o, ", \"id\": ");
		dt_chat_json(o, json_object_get(call, "id"), 0);
	}
	dt_chat_put(o, "}");
	json_decref(args);
}

/* Lists the tools, one a line, up to the closing tag; more: text comes before. */
static void list_in_tags(struct dt_chat_out *o, bool more)
{
	size_t i;
	json_t *v;

	if (more)
		dt_chat_put(o, "\n\n");
	dt_chat_put(o, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
		       "You are provided with function signatures within <tools></tools> XML tags:\n<tools>");
	json_array_foreach((json_t *)o->tools->list, i, v)
	{
		dt_chat_put(o, "\n");
		dt_chat_json(o, v, 0);
	}
}

/* ---- Hermes, Qwen ---- */

void dt_chat_hermes_tools(struct dt_chat_out *o, bool more)
{
	list_in_tags(o, more);
	dt_chat_put(
		o,
		"\n</tools>\n\nFor each function call, return a json object with function name and arguments "
		"within ");
	dt_chat_special(o, "<tool_call>");
	dt_chat_special(o, "</tool_call>");
	dt_chat_put(o, " XML tags:\n");
	dt_chat_special(o, "<tool_call>");
	dt_chat_put(o, "\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n");
	dt_chat_special(o, "</tool_call>");
}

void dt_chat_hermes_calls(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	size_t i;
	json_t *v;

	json_array_foreach((json_t *)m->calls, i, v)
	{
		if (i > 0 || m->n > 0)
			dt_chat_put(o, "\n");
		dt_chat_special(o, "<tool_call>");
		dt_chat_put(o, "\n");
		put_call(o, v, "arguments", false);
		dt_chat_put(o, "\n");
		dt_chat_special(o, "</tool_call>");
	}
}

void dt_chat_hermes_result(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	dt_chat_special(o, "<tool_response>");
	dt_chat_put(o, "\n");
	dt_chat_put_n(o, m->s, m->n);
	dt_chat_put(o, "\n");
	dt_chat_special(o, "</tool_response>");
}

/* ---- Llama 3 ---- */

void dt_chat_llama3_tools(struct dt_chat_out *o)
{
	size_t i;
	json_t *v;

	dt_chat_put(
		o, "Given the following functions, please respond with a JSON for a function call with its "
		   "proper arguments that best answers the given prompt.\n\nRespond in the format {\"name\": "
		   "function name, \"parameters\": dictionary of argument name and its value}.Do not use "
		   "variables.\n\n");
	json_array_foreach((json_t *)o->tools->list, i, v)
	{
		dt_chat_json(o, v, JSON_INDENT(4));
		dt_chat_put(o, "\n\n");
	}
}

void dt_chat_llama3_calls(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	put_call(o, json_array_get(m->calls, 0), "parameters", false);
}

/* The published template writes a result as JSON, a text in quotes. */
void dt_chat_llama3_result(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	json_t *text = json_stringn(m->s, m->n);

	dt_chat_json(o, text, 0);
	json_decref(text);
}

/* ---- Mistral ---- */

void dt_chat_mistral_tools(struct dt_chat_out *o)
{
	dt_chat_special(o, "[AVAILABLE_TOOLS]");
	dt_chat_put(o, " ");
	dt_chat_json(o, o->tools->list, 0);
	dt_chat_special(o, "[/AVAILABLE_TOOLS]");
}

void dt_chat_mistral_calls(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	size_t i;
	json_t *v;

	dt_chat_special(o, "[TOOL_CALLS]");
	dt_chat_put(o, " [");
	json_array_foreach((json_t *)m->calls, i, v)
	{
		if (i > 0)
			dt_chat_put(o, ", ");
		put_call(o, v, "arguments", true);
	}
	dt_chat_put(o, "]");
}

void dt_chat_mistral_result(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	json_t *text = json_stringn(m->s, m->n);

	dt_chat_special(o, "[TOOL_RESULTS]");
	dt_chat_put(o, " {\"content\": ");
	if (o->c->v3) /* the published template does not quote it */
		dt_chat_put_n(o, m->s, m->n);
	else
		dt_chat_json(o, text, 0);
	if (m->call_id) {
		json_t *id = json_string(m->call_id);

		dt_chat_put(o, ", \"call_id\": ");
		dt_chat_json(o, id, 0);
		json_decref(id);
	}
	dt_chat_put(o, "}");
	dt_chat_special(o, "[/TOOL_RESULTS]");
	json_decref(text);
}

/* ---- DeepSeek-V3 and R1 ---- */

void dt_chat_deepseek_open(struct dt_chat_out *o)
{
	dt_chat_special(o, DT_CHAT_DEEPSEEK_CALLS);
	dt_chat_special(o, DT_CHAT_DEEPSEEK_CALL);
	dt_chat_put(o, "function");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_SEP);
}

/* The authors' template does not list tools; these are the words of servers that support the model. */
void dt_chat_deepseek_tools(struct dt_chat_out *o, bool more)
{
	list_in_tags(o, more);
	dt_chat_put(o, "\n</tools>\n\nFor function call returns, you should first print ");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_CALLS);
	dt_chat_put(o, "\nFor each function call, you should return object like:\n");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_CALL);
	dt_chat_put(o, "function");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_SEP);
	dt_chat_put(o, "<function_name>\n```json\n<function_arguments_in_json_format>\n```");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_CALLED);
	dt_chat_put(o, "\nAt the end of function call returns, you should print ");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_END);
	dt_chat_special(o, DT_CHAT_DEEPSEEK_EOS);
}

void dt_chat_deepseek_calls(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	size_t i;
	json_t *v;

	json_array_foreach((json_t *)m->calls, i, v)
	{
		const json_t *f = json_object_get(v, "function");
		json_t *args = json_loads(json_string_value(json_object_get(f, "arguments")), 0, NULL);

		if (i == 0) {
			dt_chat_deepseek_open(o);
		} else {
			dt_chat_put(o, "\n");
			dt_chat_special(o, DT_CHAT_DEEPSEEK_CALL);
			dt_chat_put(o, "function");
			dt_chat_special(o, DT_CHAT_DEEPSEEK_SEP);
		}
		dt_chat_put(o, json_string_value(json_object_get(f, "name")));
		dt_chat_put(o, "\n```json\n");
		dt_chat_json(o, args, 0);
		dt_chat_put(o, "\n```");
		dt_chat_special(o, DT_CHAT_DEEPSEEK_CALLED);
		json_decref(args);
	}
	dt_chat_special(o, DT_CHAT_DEEPSEEK_END);
}

void dt_chat_deepseek_result(struct dt_chat_out *o, const struct dt_chat_message *m, bool first, bool last)
{
	if (first)
		dt_chat_special(o, DT_CHAT_DEEPSEEK_RESULTS);
	else
		dt_chat_put(o, "\n");
	dt_chat_special(o, DT_CHAT_DEEPSEEK_RESULT);
	dt_chat_put_n(o, m->s, m->n);
	dt_chat_special(o, DT_CHAT_DEEPSEEK_GIVEN);
	if (last)
		dt_chat_special(o, DT_CHAT_DEEPSEEK_TOLD);
}
/* SPDX-License-Identifier: Apache-2.0 */
