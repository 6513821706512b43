/*
 * From logits to a token. In this order, as vLLM and Hugging Face do it:
 *   banned ids and those not allowed, logit_bias, repetition penalty (prompt and output; Keskar et al. 2019),
 * frequency and presence penalties (output only; OpenAI), temperature, min_p, top_k, top_p (Holtzman et al.
 * 2020), the draw. Arithmetic is in double. Temperature 0 is the argmax. Ties always go to the lowest id, so
 * that the result is a function of (logits, parameters, seed, stream, index) alone, whatever else is in the
 * batch.
 */
#ifndef DT_SERVE_SAMPLING_H
#define DT_SERVE_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

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

struct dt_sampler { /* scratch of one thread */
	int vocab;
	int32_t *count; /* [vocab]: uses in the output; -1: in the prompt only. All zero between calls */
	struct dt_cand {
		double p;
		int32_t id;
	} * cand;	/* [vocab] */
	double *weight; /* [vocab] */
};

int dt_sampler_init(struct dt_sampler *s, int vocab); /* -ENOMEM */
void dt_sampler_release(struct dt_sampler *s);

/*
 * The token after prompt and out; logits [vocab] are overwritten. Token number nout of the stream of random
 * numbers is used. Returns the id, or -EDOM when no logit is finite or one is NaN.
 */
int32_t dt_sample(struct dt_sampler *s, const struct dt_sampling *p, float *logits, const int32_t *prompt,
		  size_t nprompt, const int32_t *out, size_t nout);

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
