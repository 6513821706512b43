/* llama.cpp's key samplers: which samplers are applied, and in which order. */
#include "serve/api/priv.h"

#include <errno.h>
#include <string.h>

enum { PENALTIES = 100, DRY, NEITHER };

static const struct sampler {
	const char *name;
	char letter; /* in the short notation, a string */
	int what; /* enum dt_sampling_step or one of the above; NEITHER: its own key may only turn it off */
} samplers[] = {{"penalties", 'e', PENALTIES},
		{"dry", 'd', DRY},
		{"top_n_sigma", 's', NEITHER},
		{"top_k", 'k', DT_SAMPLER_TOP_K},
		{"typ_p", 'y', NEITHER},
		{"top_p", 'p', DT_SAMPLER_TOP_P},
		{"min_p", 'm', DT_SAMPLER_MIN_P},
		{"xtc", 'x', DT_SAMPLER_XTC},
		{"temperature", 't', DT_SAMPLER_TEMPERATURE}};

enum { NSAMPLERS = sizeof(samplers) / sizeof(*samplers) };

static const struct sampler *find(const char *name, char letter)
{
	for (int i = 0; i < NSAMPLERS; i++)
		if (name ? !strcmp(name, samplers[i].name) : letter == samplers[i].letter)
			return &samplers[i];
	return NULL;
}

static bool has_effect(const struct dt_sampling *s, int what)
{
	switch (what) {
	case PENALTIES:
		return dt_sampling_penalises(s);
	case DRY:
		return s->dry_multiplier > 0;
	case DT_SAMPLER_TEMPERATURE:
		return s->temperature != 1;
	case DT_SAMPLER_MIN_P:
		return s->min_p > 0;
	case DT_SAMPLER_TOP_K:
		return s->top_k > 0;
	case DT_SAMPLER_TOP_P:
		return s->top_p < 1;
	case DT_SAMPLER_XTC:
		return s->xtc_probability > 0;
	}
	return false;
}

static void turn_off(struct dt_sampling *s, int what)
{
	const struct dt_sampling off = DT_SAMPLING_DEFAULT;

	switch (what) {
	case PENALTIES:
		s->repetition_penalty = off.repetition_penalty;
		s->presence_penalty = off.presence_penalty;
		s->frequency_penalty = off.frequency_penalty;
		break;
	case DRY:
		s->dry_multiplier = off.dry_multiplier;
		break;
	case DT_SAMPLER_TEMPERATURE:
		s->temperature = off.temperature;
		break;
	case DT_SAMPLER_MIN_P:
		s->min_p = off.min_p;
		break;
	case DT_SAMPLER_TOP_K:
		s->top_k = off.top_k;
		break;
	case DT_SAMPLER_TOP_P:
		s->top_p = off.top_p;
		break;
	case DT_SAMPLER_XTC:
		s->xtc_probability = off.xtc_probability;
		break;
	}
}

/* Adds a sampler to the order, unless it is one of those that change logits, which come first. */
static int add(struct dt_body *b, const struct sampler *m, bool *dry_done)
{
	struct dt_sampling *s = &b->ask.sampling;

	if (!has_effect(s, m->what))
		return 0;
	if (m->what < PENALTIES) {
		if (s->norder == DT_SAMPLERS_MAX)
			return dt_body_bad(b->e, "samplers", "'samplers' has more than %d samplers",
					   DT_SAMPLERS_MAX);
		s->order[s->norder++] = (uint8_t)m->what;
		return 0;
	}
	if (s->norder > 0)
		return dt_body_bad(b->e, "samplers",
				   "'samplers': '%s' is only supported before samplers of another kind",
				   m->name);
	*dry_done |= m->what == DRY;
	if (m->what == PENALTIES && s->repetition_penalty != 1 && s->dry_multiplier > 0 && !*dry_done)
		return dt_body_bad(
			b->e, "samplers",
			"'samplers': a repetition penalty is only supported after 'dry', not before it");
	return 0;
}

/* Whether a draw without an order does the same: each sampler once, in the usual order. */
static bool is_usual(const struct dt_sampling *s)
{
	for (int i = 1; i < s->norder; i++)
		if (s->order[i] <= s->order[i - 1])
			return false;
	return true;
}

int dt_body_samplers(struct dt_body *b)
{
	const json_t *v = json_object_get(b->o, "samplers");
	struct dt_sampling *s = &b->ask.sampling;
	const char *letters = json_string_value(v);
	const size_t n = letters ? json_string_length(v) : json_array_size(v);
	const struct sampler *list[DT_SAMPLERS_MAX];
	bool dry_done = false;

	if (!v || json_is_null(v))
		return 0;
	if ((!letters && !json_is_array(v)) || n > DT_SAMPLERS_MAX)
		return dt_body_bad(
			b->e, "samplers",
			"'samplers' is not an array of at most %d names, nor a string of their letters",
			DT_SAMPLERS_MAX);
	for (size_t i = 0; i < n; i++) {
		const char *name = letters ? NULL : json_string_value(json_array_get(v, i));

		list[i] = letters || name ? find(name, letters ? letters[i] : 0) : NULL;
		if (!list[i])
			return dt_body_bad(
				b->e, "samplers",
				"'samplers': '%.*s' is none of penalties, dry, top_n_sigma, top_k, "
				"typ_p, top_p, min_p, xtc and temperature, or their letters edskypmxt",
				letters ? 1 : 40,
				letters ? letters + i
				: name	? name
					: "");
	}
	if (s->mirostat > 0) /* replaces them */
		return 0;
	for (int k = 0; k < NSAMPLERS; k++) {
		bool listed = false;

		for (size_t i = 0; i < n; i++)
			listed |= list[i] == &samplers[k];
		if (!listed)
			turn_off(s, samplers[k].what);
	}
	s->norder = 0;
	for (size_t i = 0; i < n; i++)
		if (add(b, list[i], &dry_done) < 0)
			return -EINVAL;
	if (is_usual(s))
		s->norder = -1;
	return 0;
}

json_t *dt_api_samplers(const struct dt_sampling *s)
{
	json_t *list = json_array();

	if (s->dry_multiplier > 0)
		json_array_append_new(list, json_string("dry"));
	if (dt_sampling_penalises(s))
		json_array_append_new(list, json_string("penalties"));
	for (int i = 0; i < (s->norder < 0 ? DT_SAMPLER_XTC + 1 : s->norder); i++) {
		const int what = s->norder < 0 ? i : s->order[i];

		for (int k = 0; k < NSAMPLERS && !s->mirostat; k++)
			if (samplers[k].what == what && has_effect(s, what))
				json_array_append_new(list, json_string(samplers[k].name));
	}
	return list;
}
/* SPDX-License-Identifier: Apache-2.0 */
