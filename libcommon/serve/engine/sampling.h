/*
 * Sampling parameters of a request, in the form that kernels/sample.h takes; that header defines what is
 * computed and in which order. Temperature 0 is the argmax. The result depends on (logits, parameters, seed,
 * stream, index) alone, not on the rest of the batch or on where it is computed.
 *
 * Three more samplers, with llama.cpp's names and definitions:
 *
 *   DRY       (p-e-w, 2024) penalises tokens that would continue a repetition: if the last L >= dry_allowed
 *             tokens occurred before, the token that followed them loses dry_multiplier dry_base^(L -
 *             dry_allowed), for the largest such L; added like a bias. A repetition does not extend across
 *             a breaker token, and breakers are not penalised.
 *   XTC       (p-e-w, 2024) with probability xtc_probability, of the remaining tokens with a probability of
 *             xtc_threshold or more, all but the least likely one are removed.
 *   mirostat  (Basu et al. 2021) replaces min_p, top_k and top_p: the number of candidates follows mu. After
 *             each draw mu moves by eta times the difference of the token's surprise, in bits, from tau. 1:
 *             the number is estimated from Zipf's exponent of the 100 most likely tokens; 2: candidates are
 *             the tokens with a surprise of at most mu bits.
 *
 * XTC, mirostat and samplers in another order than that of enum dt_sampling_step run on the host, in f64 from
 * the same weights, never where the model is computed.
 */
#ifndef DT_SERVE_SAMPLING_H
#define DT_SERVE_SAMPLING_H

#include "kernels/sample.h"

struct dt_bias {
	int32_t id;
	float bias;
};

enum dt_sampling_step { /* in the order of a draw */
			DT_SAMPLER_TEMPERATURE,
			DT_SAMPLER_MIN_P,
			DT_SAMPLER_TOP_K,
			DT_SAMPLER_TOP_P,
			DT_SAMPLER_XTC,
};
enum { DT_SAMPLERS_MAX = 16 }; /* of an order, in which one may be repeated */

struct dt_logprob {
	int32_t id;
	float logprob;
	int rank; /* 1 + the number of likelier ids; 0: not computed */
};

struct dt_sampling {
	double temperature;	   /* 0: greedy */
	double top_p;		   /* 1: off */
	double min_p;		   /* 0: off */
	int top_k;		   /* 0: off */
	double repetition_penalty; /* 1: off */
	double presence_penalty, frequency_penalty;
	uint64_t seed;
	uint32_t stream; /* index of the choice among those of a request with this seed */
	uint32_t from;	 /* draws to skip: set when an answer continues one that began elsewhere */
	const struct dt_bias *bias;
	int nbias;
	const int32_t *ban; /* ids that may not be drawn (end of text before min_tokens) */
	int nban;
	double dry_multiplier; /* 0: off */
	double dry_base;
	int dry_allowed, dry_last; /* dry_last: tokens to look back over, -1: all, 0: off */
	const uint32_t *dry_break; /* breaker tokens: bit id % 32 of word id / 32; NULL: none */
	double xtc_probability;	   /* 0: off */
	double xtc_threshold;
	int mirostat; /* 0: off */
	double tau, eta;
	double *mu; /* mirostat's state, initialised when nout is 0 and updated by each draw */
	uint8_t order[DT_SAMPLERS_MAX]; /* enum dt_sampling_step: these in this order, without mirostat */
	int norder;			/* -1: all, in the usual order */
	/*
	 * [1 + ndrawn] set to the drawn token and the most likely ones that the samplers left, best first,
	 * with their log-probabilities among those left; id -1: there are no more. NULL: not wanted.
	 */
	struct dt_logprob *drawn;
	int ndrawn;
	const uint32_t *allow; /* bit id % 32 of word id / 32: only these ids may be drawn; NULL: all */
};

#define DT_SAMPLING_DEFAULT                                                                                  \
	((struct dt_sampling){.temperature = 1,                                                              \
			      .top_p = 1,                                                                    \
			      .repetition_penalty = 1,                                                       \
			      .dry_base = 1.75,                                                              \
			      .dry_allowed = 2,                                                              \
			      .dry_last = -1,                                                                \
			      .xtc_threshold = 0.1,                                                          \
			      .tau = 5,                                                                      \
			      .eta = 0.1,                                                                    \
			      .norder = -1})

struct dt_serve_sampler { /* scratch memory of one thread */
	int vocab;
	int32_t *edit_of; /* [vocab] all zero between calls */
	struct dt_edit *edit;
	int nedits, cap;
	void *room;
	int32_t *match; /* [match_cap], used by DRY */
	size_t match_cap;
};

int dt_serve_sampler_init(struct dt_serve_sampler *s, int vocab); /* -ENOMEM */
void dt_serve_sampler_release(struct dt_serve_sampler *s);

/*
 * Fills in *ret, the draw of the token that follows prompt and out, with random number nout of the stream.
 * Its edits are appended to s->edit; the caller sets s->nedits to 0 when the draws are done. Ignores
 * p->allow. -ENOMEM.
 */
int dt_sampling_draw(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		     size_t nprompt, const int32_t *out, size_t nout, struct dt_draw *ret);

/*
 * Draws that token in the calling thread; overwrites logits [vocab]. Returns the id, -EDOM when no logit is
 * finite or one is NaN, or -ENOMEM.
 */
int32_t dt_sample(struct dt_serve_sampler *s, const struct dt_sampling *p, float *logits,
		  const int32_t *prompt, size_t nprompt, const int32_t *out, size_t nout);

/* Whether tokens of the text so far are penalised (DRY apart). */
static inline bool dt_sampling_penalises(const struct dt_sampling *p)
{
	return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

/* Whether dt_sampling_draw_own must draw the token: no other draw does what p asks for. */
static inline bool dt_sampling_own(const struct dt_sampling *p)
{
	return p->drawn || p->norder >= 0 ||
	       (p->temperature > 0 && (p->xtc_probability > 0 || p->mirostat > 0));
}

/*
 * dry.c: appends DRY's edits for the token that follows prompt and out. s->edit must have room for nprompt +
 * nout more. -ENOMEM.
 */
int dt_sampling_dry(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		    size_t nprompt, const int32_t *out, size_t nout);
/* Returns the edit of id, and creates it if there is none. s->edit must have room. */
struct dt_edit *dt_sampling_edit(struct dt_serve_sampler *s, int32_t id);
/* own.c: the draw d from edited logits by any samplers, in dt_sample_room bytes; returns the id or -EDOM. */
int32_t dt_sampling_draw_own(const struct dt_sampling *p, const struct dt_draw *d, const float *logits,
			     int vocab, void *room);

/*
 * Under softmax(logits) (of the model, before any sampling parameter): the n <= vocab most likely ids, best
 * first; returns log sum exp(logits). Given that, the log-probability of id with its rank.
 */
double dt_logprobs_top(const float *logits, int vocab, int n, struct dt_logprob *top);
struct dt_logprob dt_logprobs_of(const float *logits, int vocab, int32_t id, double log_sum);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
