/* Options of the chat template. */
#include "serve/api/priv.h"

#include <errno.h>
#include <string.h>

/* The effort of this name, if the template has such words; NULL: it has not. */
static const char *effort_of(const struct dt_chat *chat, const char *word)
{
	static const char *const words[] = {"low", "medium", "high"};

	for (size_t i = 0; i < 3 && word && chat->kind == DT_CHAT_HARMONY; i++)
		if (!strcmp(words[i], word))
			return words[i];
	return NULL;
}

int dt_api_template(const json_t *o, const struct dt_chat *chat, struct dt_chat *ret, struct dt_api_error *e)
{
	static const char *const known[] = {"enable_thinking", NULL};
	const json_t *args = json_object_get(o, "chat_template_kwargs"), *thinks;
	const json_t *effort = json_object_get(o, "reasoning_effort");
	const char *key = dt_api_unknown(args, known, true), *word = json_string_value(effort);

	*ret = *chat;
	if (args && !json_is_null(args) && !json_is_object(args))
		return dt_body_bad(e, "chat_template_kwargs", "'chat_template_kwargs' is not an object");
	if (key)
		return dt_body_bad(e, "chat_template_kwargs",
				   "'chat_template_kwargs' has an unknown key '%.60s'", key);
	thinks = json_object_get(args, "enable_thinking");
	if (thinks && !json_is_null(thinks) && !json_is_boolean(thinks))
		return dt_body_bad(e, "chat_template_kwargs", "'enable_thinking' is not true or false");
	ret->effort = effort_of(chat, word);
	if (effort && !json_is_null(effort) && !ret->effort && (!word || strcmp(word, "none")))
		return dt_body_bad(e, "reasoning_effort", "'reasoning_effort' is only supported if it is %s",
				   chat->kind == DT_CHAT_HARMONY ? "low, medium or high" : "none");
	ret->quiet = json_is_false(thinks) || (word && !ret->effort);
	ret->quiet &= chat->thinks; /* otherwise there is nothing to turn off */
	if (ret->quiet && !chat->switches)
		return dt_body_bad(e, word ? "reasoning_effort" : "chat_template_kwargs",
				   "the chat template of this model cannot turn off reasoning");
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
