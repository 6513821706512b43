/*
 * What a request asks of the draw of its next token, as kernels/sample.h takes it; that header says what is
 * computed and in which order. Temperature 0 is the argmax. The result is a function of (logits, parameters,
 * seed, stream, index) alone, whatever else is in the batch and wherever it is computed.
 *
 * Three samplers more, under llama.cpp's names and with its definitions:
 *
 *   DRY       (p-e-w, 2024) a token that would continue a repetition: where the last L >= dry_allowed
 *             tokens stand earlier too, the token behind loses dry_multiplier dry_base^(L - dry_allowed), L
 *             the longest such; added like a bias. A repetition does not reach over a breaker, and a breaker
 *             loses nothing.
 *   XTC       (p-e-w, 2024) with probability xtc_probability, of the tokens that stayed and whose share is
 *             xtc_threshold or more, all but the least likely one go.
 *   mirostat  (Basu et al. 2021) in place of min_p, top_k and top_p: how many stay follows mu, which moves
 *             by eta times what the surprise of each token drawn, in bits, is from tau. 1: by an estimate of
 *             Zipf's exponent from the 100 most likely; 2: those of at most mu bits.
 *
 * The last two are drawn here, in f64 from the same weights, never where the model is computed.
 */
#ifndef DT_SERVE_SAMPLING_H
#define DT_SERVE_SAMPLING_H

#include "kernels/sample.h"

struct dt_bias {
	int32_t id;
	float bias;
};

struct dt_sampling {
	double temperature;	   /* 0: greedy */
	double top_p;		   /* 1: off */
	double min_p;		   /* 0: off */
	int top_k;		   /* 0: off */
	double repetition_penalty; /* 1: off */
	double presence_penalty, frequency_penalty;
	uint64_t seed;
	uint32_t stream; /* which choice of a request with this seed */
	uint32_t from;	 /* draws before the first: where an answer goes on that began elsewhere */
	const struct dt_bias *bias;
	int nbias;
	const int32_t *ban; /* ids that may not come (end of text before min_tokens) */
	int nban;
	double dry_multiplier; /* 0: off */
	double dry_base;
	int dry_allowed, dry_last; /* tokens to look back over, -1: all, 0: off */
	const uint32_t *dry_break; /* bit id % 32 of word id / 32: a breaker; NULL: none */
	double xtc_probability;	   /* 0: off */
	double xtc_threshold;
	int mirostat; /* 0: off */
	double tau, eta;
	double *mu;	       /* mirostat's state, set when nout is 0 and then moved by each draw */
	const uint32_t *allow; /* bit id % 32 of word id / 32: only these may come; NULL: all */
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
			      .eta = 0.1})

struct dt_serve_sampler { /* scratch of one thread */
	int vocab;
	int32_t *edit_of; /* [vocab] all zero between calls */
	struct dt_edit *edit;
	int nedits, cap;
	void *room;
	int32_t *match; /* [match_cap], of DRY */
	size_t match_cap;
};

int dt_serve_sampler_init(struct dt_serve_sampler *s, int vocab); /* -ENOMEM */
void dt_serve_sampler_release(struct dt_serve_sampler *s);

/*
 * The draw of the token after prompt and out, number nout of the stream of random numbers; its edits are
 * appended to s->edit, of which the caller sets s->nedits to 0 when they are done with. p->allow is not
 * looked at. -ENOMEM.
 */
int dt_sampling_draw(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		     size_t nprompt, const int32_t *out, size_t nout, struct dt_draw *ret);

/*
 * That token, by this thread; logits [vocab] are overwritten. Returns the id, or -EDOM when no logit is
 * finite or one is NaN, -ENOMEM.
 */
int32_t dt_sample(struct dt_serve_sampler *s, const struct dt_sampling *p, float *logits,
		  const int32_t *prompt, size_t nprompt, const int32_t *out, size_t nout);

/* The token is drawn by this thread alone: XTC or mirostat. */
static inline bool dt_sampling_own(const struct dt_sampling *p)
{
	return p->temperature > 0 && (p->xtc_probability > 0 || p->mirostat > 0);
}

/* dry.c: DRY's edits of the token after prompt and out; there is room for nprompt + nout of them. -ENOMEM. */
int dt_sampling_dry(struct dt_serve_sampler *s, const struct dt_sampling *p, const int32_t *prompt,
		    size_t nprompt, const int32_t *out, size_t nout);
/* The edit of id, a new one where there is none yet. There is room. */
struct dt_edit *dt_sampling_edit(struct dt_serve_sampler *s, int32_t id);
/* own.c: the draw d of edited logits by XTC and mirostat; the id, -EDOM, or -ENOMEM. */
int32_t dt_sampling_draw_own(const struct dt_sampling *p, const struct dt_draw *d, const float *logits,
			     int vocab);

struct dt_logprob {
	int32_t id;
	float logprob;
	int rank; /* 1 + the ids that are likelier; 0: nobody has counted */
};

/*
 * The log-probability of id under softmax(logits) (what the model said, before any of the above) with its
 * rank, and the n most likely ids, best first. n <= vocab.
 */
void dt_logprobs(const float *logits, int vocab, int32_t id, struct dt_logprob *chosen, int n,
		 struct dt_logprob *top);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
