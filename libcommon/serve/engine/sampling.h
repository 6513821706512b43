/*
 * What a request asks of the draw of its next token, as kernels/sample.h takes it; that header says what is
 * computed and in which order. Temperature 0 is the argmax. The result is a function of (logits, parameters,
 * seed, stream, index) alone, whatever else is in the batch and wherever it is computed.
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
	const struct dt_bias *bias;
	int nbias;
	const int32_t *ban; /* ids that may not come (end of text before min_tokens) */
	int nban;
	const uint32_t *allow; /* bit id % 32 of word id / 32: only these may come; NULL: all */
};

#define DT_SAMPLING_DEFAULT ((struct dt_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1})

struct dt_serve_sampler { /* scratch of one thread */
	int vocab;
	int32_t *edit_of; /* [vocab] all zero between calls */
	struct dt_edit *edit;
	int nedits, cap;
	void *room;
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

struct dt_logprob {
	int32_t id;
	float logprob;
};

/*
 * The log-probability of id under softmax(logits) (what the model said, before any of the above) and the n
 * most likely ids, best first. n <= vocab.
 */
void dt_logprobs(const float *logits, int vocab, int32_t id, struct dt_logprob *chosen, int n,
		 struct dt_logprob *top);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
