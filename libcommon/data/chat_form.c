#include "data/chat_form.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct dt_err *err)
{
	return dt_err_sys(err, -ENOMEM, "cannot read the messages");
}

static int add(json_t *list, const char *role, const json_t *content, struct dt_err *err)
{
	json_t *m = json_pack("{s:s, s:O}", "role", role, "content", content);

	return m && json_array_append_new(list, m) == 0 ? 0 : no_memory(err);
}

/* Converts tool-call arguments to text, as in the API; data sets often have them as objects. */
static int arguments_as_text(json_t *message, struct dt_err *err)
{
	json_t *call;
	size_t i;

	json_array_foreach(json_object_get(message, "tool_calls"), i, call)
	{
		json_t *f = json_object_get(call, "function"), *a = json_object_get(f, "arguments");
		char *text = json_is_object(a) ? json_dumps(a, 0) : NULL;
		int rc = text ? json_object_set_new(f, "arguments", json_string(text)) : 0;

		free(text);
		if (rc < 0)
			return no_memory(err);
	}
	return 0;
}

static int add_messages(json_t *list, const json_t *from, struct dt_err *err)
{
	const json_t *m;
	size_t i;

	json_array_foreach((json_t *)from, i, m)
	{
		json_t *copy = json_deep_copy(m);

		if (!copy || json_array_append_new(list, copy) < 0 || arguments_as_text(copy, err) < 0)
			return no_memory(err);
	}
	return 0;
}

static int sharegpt(json_t *list, const json_t *from, struct dt_err *err)
{
	static const char *const words[][2] = {
		{"human", "user"},    {"user", "user"}, {"gpt", "assistant"},	{"assistant", "assistant"},
		{"system", "system"}, {"tool", "tool"}, {"observation", "tool"}};
	const json_t *m;
	size_t i;

	json_array_foreach((json_t *)from, i, m)
	{
		const char *who = json_string_value(json_object_get(m, "from")), *role = NULL;
		const json_t *value = json_object_get(m, "value");
		int rc;

		for (size_t k = 0; who && k < sizeof(words) / sizeof(*words); k++)
			if (!strcmp(who, words[k][0]))
				role = words[k][1];
		if (!role || !json_is_string(value))
			return dt_err_set(err, -EINVAL,
					  "turn %zu needs a 'from' that is human, gpt, system or tool, and a "
					  "'value' that is a string",
					  i);
		rc = add(list, role, value, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Adds a part of an example: an array of messages, or a text, which becomes one message of the role. */
static int part(struct dt_chat_example *e, const json_t *v, const char *role, const char *name,
		struct dt_err *err)
{
	if (json_is_array(v))
		return add_messages(e->messages, v, err);
	if (!json_is_string(v))
		return dt_err_set(err, -EINVAL, "'%s' is neither a string nor a list of messages", name);
	e->texts = true;
	return add(e->messages, role, v, err);
}

static int alpaca(struct dt_chat_example *e, const json_t *line, struct dt_err *err)
{
	const json_t *what = json_object_get(line, "instruction"), *input = json_object_get(line, "input"),
		     *output = json_object_get(line, "output");
	json_t *ask;
	int rc;

	if (!json_is_string(what) || !json_is_string(output) || (input && !json_is_string(input)))
		return dt_err_set(err, -EINVAL, "'instruction', 'input' and 'output' must be strings");
	ask = json_string_length(input)
		      ? json_sprintf("%s\n\n%s", json_string_value(what), json_string_value(input))
		      : json_incref((json_t *)what);
	rc = ask ? add(e->messages, "user", ask, err) : no_memory(err);
	json_decref(ask);
	return rc < 0 ? rc : add(e->messages, "assistant", output, err);
}

static int conversation(struct dt_chat_example *e, const json_t *line, struct dt_err *err)
{
	const json_t *messages = json_object_get(line, "messages"), *turns, *prompt, *completion;
	int rc;

	turns = json_object_get(line, "conversations");
	prompt = json_object_get(line, "prompt");
	completion = json_object_get(line, "completion");
	if (json_is_array(messages))
		return add_messages(e->messages, messages, err);
	if (json_is_array(turns))
		return sharegpt(e->messages, turns, err);
	if (json_object_get(line, "instruction"))
		return alpaca(e, line, err);
	if (!prompt || !completion)
		return dt_err_set(err, -EINVAL,
				  "the line needs 'messages', 'conversations', 'prompt' and 'completion', or "
				  "'instruction' and 'output'");
	rc = part(e, prompt, "user", "prompt", err);
	e->from = json_array_size(e->messages);
	return rc < 0 ? rc : part(e, completion, "assistant", "completion", err);
}

/* Number of messages with which both conversations begin. */
static size_t common(const json_t *a, const json_t *b)
{
	size_t n = 0;

	while (n < json_array_size(a) && n < json_array_size(b) &&
	       json_equal(json_array_get(a, n), json_array_get(b, n)))
		n++;
	return n;
}

static int pair(struct dt_chat_example ret[2], const json_t *line, struct dt_err *err)
{
	static const char *const names[] = {"chosen", "rejected"};
	const json_t *prompt = json_object_get(line, "prompt"), *side[2];
	int rc = 0;

	for (int i = 0; i < 2; i++)
		side[i] = json_object_get(line, names[i]);
	for (int i = 0; i < 2 && rc == 0; i++) {
		ret[i].kind = i ? DT_DOCUMENT_REJECTED : DT_DOCUMENT_CHOSEN;
		if (prompt)
			rc = part(&ret[i], prompt, "user", "prompt", err);
		ret[i].from = prompt ? json_array_size(ret[i].messages) : common(side[0], side[1]);
		if (rc == 0)
			rc = part(&ret[i], side[i], "assistant", names[i], err);
	}
	if (rc == 0 && json_equal(side[0], side[1]))
		rc = dt_err_set(err, -EINVAL, "'chosen' and 'rejected' are the same");
	if (rc == 0 && !ret[0].from)
		rc = dt_err_set(err, -EINVAL, "'chosen' and 'rejected' do not begin with the same prompt");
	return rc;
}

static int labelled(struct dt_chat_example ret[2], const json_t *line, const json_t *other,
		    struct dt_err *err)
{
	const json_t *prompt = json_object_get(line, "prompt"), *label = json_object_get(line, "label");
	int rc = 0;

	if (!prompt || !json_object_get(line, "completion") || !json_is_boolean(label))
		return dt_err_set(
			err, -EINVAL,
			"the line needs 'prompt', 'completion' and a 'label' that is true or false");
	for (int i = 0; i < 2 && rc == 0; i++) {
		ret[i].kind = i			    ? DT_DOCUMENT_MISMATCHED
			      : json_is_true(label) ? DT_DOCUMENT_CHOSEN
						    : DT_DOCUMENT_REJECTED;
		rc = part(&ret[i], prompt, "user", "prompt", err);
		ret[i].from = json_array_size(ret[i].messages);
		if (rc == 0)
			rc = part(&ret[i], json_object_get(i ? other : line, "completion"), "assistant",
				  "completion", err);
	}
	return rc;
}

static int preference(struct dt_chat_example ret[2], const json_t *line, const json_t *other,
		      struct dt_err *err)
{
	if (dt_chat_labelled(line))
		return labelled(ret, line, other, err);
	if (json_object_get(line, "chosen") && json_object_get(line, "rejected"))
		return pair(ret, line, err);
	return dt_err_set(err, -EINVAL, "the line has neither 'chosen' and 'rejected' nor a 'label'");
}

int dt_chat_examples(const json_t *line, bool preferences, const json_t *other, struct dt_chat_example ret[2],
		     struct dt_err *err)
{
	const bool two = json_object_get(line, "rejected") || dt_chat_labelled(line);
	int rc = 0, n = preferences && two ? 2 : 1;

	memset(ret, 0, 2 * sizeof(*ret));
	for (int i = 0; i < n && rc == 0; i++) {
		ret[i].messages = json_array();
		ret[i].tools = json_object_get(line, "tools");
		rc = ret[i].messages ? 0 : no_memory(err);
	}
	if (rc == 0)
		rc = preferences ? preference(ret, line, other, err) : conversation(&ret[0], line, err);
	for (int i = 0; i < 2 && rc < 0; i++)
		dt_chat_example_release(&ret[i]);
	return rc < 0 ? rc : n;
}

void dt_chat_example_release(struct dt_chat_example *e)
{
	json_decref(e->messages);
	*e = (struct dt_chat_example){0};
}

int dt_chat_example_encode(const struct dt_chat *c, const struct dt_chat_example *e,
			   struct dt_chat_whole *ret, struct dt_err *err)
{
	const struct dt_chat_tools tools = {.list = e->tools};
	const json_t *asked, *said;

	if (e->tools && !json_is_array(e->tools) && !json_is_null(e->tools))
		return dt_err_set(err, -EINVAL, "'tools' is not an array");
	if (e->texts && c->kind == DT_CHAT_NONE && json_array_size(e->messages) == 2) {
		asked = json_object_get(json_array_get(e->messages, 0), "content");
		said = json_object_get(json_array_get(e->messages, 1), "content");
		return dt_chat_encode_texts(c, json_string_value(asked), json_string_length(asked),
					    json_string_value(said), json_string_length(said), ret, err);
	}
	return dt_chat_encode_whole(c, e->messages, json_array_size(e->tools) ? &tools : NULL, e->from, ret,
				    err);
}
/* SPDX-License-Identifier: Apache-2.0 */
