/*
 * How a text is cut into the sequences that a model reads, and which tokens each of them scores. The choice
 * moves a perplexity by several percent, so the ways of the programs that people compare with are here:
 *
 *   rolling       every token but the first is scored once, with at least seq - stride tokens before it once
 *                 that many are there. stride = seq: with at least one, as lm-evaluation-harness counts
 *   transformers  windows begin every stride tokens and score what the one before did not; the first token
 *                 of a window is never scored (Hugging Face, "Perplexity of fixed-length models")
 *   llama.cpp     whole windows of seq tokens, each scored from its middle on; a model that has a token for
 *                 the beginning of a text sees it in place of each window's first (llama-perplexity)
 */
#ifndef DT_EVAL_WINDOWS_H
#define DT_EVAL_WINDOWS_H

#include "base/err.h"

#include <stdint.h>

enum dt_windows { DT_WINDOWS_ROLLING, DT_WINDOWS_TRANSFORMERS, DT_WINDOWS_LLAMA };
#define DT_WINDOWS_CHOICES "rolling|transformers|llama.cpp"

/* Tokens [begin, end) are read; of those in [first, last) each is scored given those before it. */
struct dt_window {
	int64_t begin, end, first, last;
};

/*
 * Cuts n tokens. stride in [1, seq]. Sets *ret (malloc'd) and returns how many there are; -EINVAL where the
 * text is too short to score a token.
 */
int64_t dt_windows_cut(enum dt_windows how, int64_t n, int64_t seq, int64_t stride, struct dt_window **ret,
		       struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
