/*
 * Tells the class or the score of texts (/v1/classify), by an encoder with a head for them. The formats are
 * those of vLLM's /classify.
 */
#ifndef DT_SERVE_LABEL_H
#define DT_SERVE_LABEL_H

#include "serve/api/openai.h"

/*
 * Parses {"input", "truncate_prompt_tokens"}: a text, a list of token ids, or {"text", "text_pair"}, which
 * are read together; or a list of these. -EINVAL with e filled, also for a model without such a head.
 */
int dt_label_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		   struct dt_api_error *e);
/*
 * The reply to a finished call: for each text the most probable class ("label") and the values of all
 * ("probs"): the softmax of the logits, or of classes learned by binary cross-entropy their sigmoids. A
 * single label has a "score", several that are scores have "scores": logits, or their sigmoids likewise. NULL
 * with e filled when the call failed.
 */
json_t *dt_label_json(const struct dt_completion *c, const struct dt_api_model *m, struct dt_api_error *e);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
