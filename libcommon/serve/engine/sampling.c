#include "serve/engine/sampling.h"

#include "base/clones.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>

int dt_serve_sampler_init(struct dt_serve_sampler *s, int vocab)
{
	*s = (struct dt_serve_sampler){.vocab = vocab};
	s->edit_of = calloc((size_t)vocab, sizeof(*s->edit_of));
	s->room = aligned_alloc(64, (dt_sample_room(vocab) + 63) / 64 * 64);
	if (s->edit_of && s->room)
		return 0;
	dt_serve_sampler_release(s);
	return -ENOMEM;
}

void dt_serve_sampler_release(struct dt_serve_sampler *s)
{
	free(s->edit_of);
	free(s->edit);
	free(s->room);
	free(s->match);
	*s = (struct dt_serve_sampler){0};
}

struct dt_edit *dt_sampling_edit(struct dt_serve_sampler *s, int32_t id)
{
	if (s->edit_of[id] == 0) {
		s->edit[s->nedits] = (struct dt_edit){.id = id};
		s->edit_of[id] = ++s->nedits;
	}
	return &s->edit[s->edit_of[id] - 1];
}

/* Room for n more edits; there are never more than ids. */
static int make_room(struct dt_serve_sampler *s, size_t n)
{
	struct dt_edit *p;
	int want;

	n = n < (size_t)s->vocab ? n : (size_t)s->vocab;
	want = s->nedits + (int)n;
	if (want <= s->cap)
		return 0;
	want = want < 2 * s->cap ? 2 * s->cap : want;
	p = realloc(s->edit, (size_t)want * sizeof(*p));
	if (!p)
		return -ENOMEM;
	s->edit = p;
	s->cap = want;
	return 0;
}

static int make_edits(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		      size_t nprompt, const int32_t *out, size_t nout)
{
	const bool penalties = dt_sampling_penalises(p);
	const bool dry = p->dry_multiplier > 0 && p->dry_last != 0;
	const int first = s->nedits;
	int rc = make_room(s, (size_t)p->nbias + (size_t)p->nban + (penalties || dry ? nprompt + nout : 0));

	if (rc == 0 && dry)
		rc = dt_sampling_dry(s, p, prompt, nprompt, out, nout);
	if (rc < 0)
		return rc;
	if (!penalties)
		nprompt = nout = 0;
	for (int i = 0; i < p->nbias; i++)
		dt_sampling_edit(s, p->bias[i].id)->bias += p->bias[i].bias;
	for (size_t i = 0; i < nout; i++)
		dt_sampling_edit(s, out[i])->count++;
	for (size_t i = 0; i < nprompt; i++) {
		struct dt_edit *e = dt_sampling_edit(s, prompt[i]);

		e->count = e->count ? e->count : -1;
	}
	for (int i = 0; i < p->nban; i++)
		dt_sampling_edit(s, p->ban[i])->bias = -INFINITY;
	for (int i = first; i < s->nedits; i++)
		s->edit_of[s->edit[i].id] = 0;
	return s->nedits - first;
}

int dt_sampling_draw(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		     size_t nprompt, const int32_t *out, size_t nout, struct dt_draw *ret)
{
	const int first = s->nedits, n = make_edits(s, p, prompt, nprompt, out, nout);

	if (n < 0)
		return n;
	*ret = (struct dt_draw){
		.cold = p->temperature == 0 ? 0 : fmin(1 / p->temperature, 1e300),
		.top_p = p->top_p,
		.min_p = p->min_p,
		.repetition = p->repetition_penalty,
		.presence = p->presence_penalty,
		.frequency = p->frequency_penalty,
		.top_k = p->top_k,
		.first = first,
		.edits = n,
		.stream = dt_rng_make(p->seed, DT_RNG_SAMPLE, p->stream).stream,
		.index = p->from + nout,
	};
	return 0;
}

int32_t dt_sample(struct dt_serve_sampler *s, const struct dt_sampling *p, float *logits,
		  const int32_t *prompt, size_t nprompt, const int32_t *out, size_t nout)
{
	struct dt_drawn drawn;
	struct dt_draw d;
	int rc;

	s->nedits = 0;
	rc = dt_sampling_draw(s, p, prompt, nprompt, out, nout, &d);
	if (rc < 0)
		return rc;
	for (int i = 0; p->allow && i < s->vocab; i++)
		if (!(p->allow[i / 32] >> i % 32 & 1) &&
		    !isnan(logits[i])) /* NaN shows that the model failed */
			logits[i] = -INFINITY;
	if (dt_sampling_own(p)) {
		for (int i = 0; i < d.edits; i++) {
			float *l = &logits[s->edit[i].id];

			*l = dt_sample_edit(*l, &d, s->edit[i]);
		}
		s->nedits = 0;
		return dt_sampling_draw_own(p, &d, logits, s->vocab, s->room);
	}
	dt_sample_row(s->room, &drawn, logits, s->vocab, &d, s->edit);
	s->nedits = 0;
	return drawn.id < 0 ? -EDOM : drawn.id;
}

#define SPAN 256 /* ids that are compared with the least of the best ones together */

static DT_CLONES bool any_above(const float *x, int n, float least)
{
	int above = 0;

	for (int i = 0; i < n; i++)
		above |= x[i] > least;
	return above;
}

static DT_CLONES int count_above(const float *x, int n, float least)
{
	int above = 0;

	for (int i = 0; i < n; i++)
		above += x[i] > least;
	return above;
}

/* Puts p among the `have` best, which are at most n; returns how many they are then. */
static int put_best(struct dt_logprob *top, int have, int n, struct dt_logprob p)
{
	int at = have < n ? have : n - 1;

	if (have == n && p.logprob <= top[n - 1].logprob)
		return have;
	for (; at > 0 && top[at - 1].logprob < p.logprob; at--)
		top[at] = top[at - 1];
	top[at] = p;
	return have < n ? have + 1 : n;
}

double dt_logprobs_top(const float *logits, int vocab, int n, struct dt_logprob *top)
{
	struct dt_drawn d = {.max = dt_sample_max(logits, vocab)};
	int have = 0;

	d.sum = dt_sample_sum(logits, vocab, d.max);
	const double sum = dt_drawn_log_sum(&d);

	for (int at = 0; at < vocab && n > 0; at += SPAN) {
		const int end = vocab - at < SPAN ? vocab : at + SPAN;

		if (have == n && !any_above(logits + at, end - at, logits[top[n - 1].id]))
			continue;
		for (int i = at; i < end; i++)
			if (have < n || logits[i] > logits[top[n - 1].id])
				have = put_best(top, have, n,
						(struct dt_logprob){i, (float)(logits[i] - sum), 0});
	}
	return sum;
}

struct dt_logprob dt_logprobs_of(const float *logits, int vocab, int32_t id, double log_sum)
{
	return (struct dt_logprob){id, (float)(logits[id] - log_sum),
				   1 + count_above(logits, vocab, logits[id])};
}
/* SPDX-License-Identifier: Apache-2.0 */
