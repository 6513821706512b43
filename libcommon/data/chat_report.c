#include "data/chat_import.h"

#include <stdlib.h>

/* The first example as JSON: {"tokens", "targets", "parts"}. */
static json_t *shown(const struct dt_chat_import *im)
{
	const struct dt_chat_whole *w = &im->shown;
	json_t *parts = json_array();
	size_t targets = 0;

	for (size_t at = 0, end; parts && at < w->n; at = end) {
		size_t len = 0;
		char *text = NULL;
		json_t *o;

		for (end = at; end < w->n && w->mask[end] == w->mask[at];)
			end++;
		targets += w->mask[at] ? end - at : 0;
		if (dt_tokenizer_decode(im->tok, w->ids + at, end - at, true, &text, &len, NULL) < 0)
			continue;
		o = json_pack("{s:b}", "target", w->mask[at]);
		json_object_set_new(o, "text", json_stringn(text, len)); /* omitted if it is not UTF-8 */
		json_array_append_new(parts, o);
		free(text);
	}
	return json_pack("{s:I, s:I, s:o}", "tokens", (json_int_t)w->n, "targets", (json_int_t)targets,
			 "parts", parts);
}

static double filled(const struct dt_chat_import *im, const struct dt_chat_counts *c)
{
	return (double)c->tokens / ((double)c->samples * (double)im->seq);
}

void dt_chat_import_print(const struct dt_chat_import *im, const char *const out[2], FILE *f)
{
	json_t *o = shown(im), *part;
	size_t k;

	fprintf(f, "the first example, %lld tokens, %lld targets:\n",
		(long long)json_integer_value(json_object_get(o, "tokens")),
		(long long)json_integer_value(json_object_get(o, "targets")));
	json_array_foreach(json_object_get(o, "parts"), k, part)
	{
		char *text = json_dumps(json_object_get(part, "text"), JSON_ENCODE_ANY);

		fprintf(f, "  %s  %s\n",
			json_is_true(json_object_get(part, "target")) ? "target " : "context",
			text ? text : "(not UTF-8)");
		free(text);
	}
	json_decref(o);
	for (int i = 0; i < 2 && out[i]; i++) {
		const struct dt_chat_counts *c = &im->set[i];

		fprintf(f,
			"%s: %lld examples in %lld samples of %lld, %.1f%% filled; %lld tokens, %lld targets",
			out[i], (long long)c->examples, (long long)c->samples, (long long)im->seq,
			100 * filled(im, c), (long long)c->tokens, (long long)c->targets);
		if (!i && im->cut)
			fprintf(f, "; %lld cut, %lld targets lost", (long long)im->cut,
				(long long)im->cut_targets);
		if (!i && im->left_out)
			fprintf(f, "; %lld too long, dropped", (long long)im->left_out);
		if (!i && im->bad)
			fprintf(f, "; %lld invalid line%s skipped", (long long)im->bad,
				im->bad == 1 ? "" : "s");
		fputc('\n', f);
	}
}

static json_t *set_json(const struct dt_chat_import *im, const char *path, const struct dt_chat_counts *c)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "path", path, "examples", (json_int_t)c->examples,
			 "samples", (json_int_t)c->samples, "tokens", (json_int_t)c->tokens, "targets",
			 (json_int_t)c->targets, "filled", filled(im, c));
}

json_t *dt_chat_import_json(const struct dt_chat_import *im, const char *const out[2])
{
	json_t *o = json_pack("{s:i, s:o, s:I, s:I, s:I, s:I, s:o}", "schema", 1, "train",
			      set_json(im, out[0], &im->set[0]), "cut", (json_int_t)im->cut, "cut_targets",
			      (json_int_t)im->cut_targets, "left_out", (json_int_t)im->left_out, "bad_lines",
			      (json_int_t)im->bad, "example", shown(im));

	if (o && out[1])
		json_object_set_new(o, "eval", set_json(im, out[1], &im->set[1]));
	return o;
}
/* SPDX-License-Identifier: Apache-2.0 */
