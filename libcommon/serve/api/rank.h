/*
 * Ranks texts for a query (/v1/rerank, /v1/score): by a cross-encoder, an encoder with one class that reads
 * query and document together, the sigmoid of its logit; by other models the cosine of their embeddings.
 */
#ifndef DT_SERVE_RANK_H
#define DT_SERVE_RANK_H

#include "serve/api/openai.h"

struct dt_rank {
	bool score;			     /* the reply has the format of /v1/score */
	int top;			     /* max results, 0: all */
	bool documents;			     /* results include the documents' texts */
	json_t *texts;			     /* texts of the documents */
	const struct dt_engine_model *judge; /* the cross-encoder; NULL: embeddings are compared */
};

/*
 * Parses {"query", "documents", "top_n", "return_documents", "truncate_prompt_tokens"}; *c embeds the query,
 * then the documents; of a cross-encoder, each document behind the query. Texts may be lists of token ids.
 */
int dt_rerank_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		    struct dt_rank *ret, struct dt_api_error *e);
/* Parses {"text_1", "text_2", "truncate_prompt_tokens"}; text_2 may be a list. */
int dt_score_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		   struct dt_rank *ret, struct dt_api_error *e);
/* The reply to a finished call. NULL with e filled when it failed. */
json_t *dt_rank_json(const struct dt_rank *r, const struct dt_completion *c, size_t hidden,
		     struct dt_api_error *e);
void dt_rank_release(struct dt_rank *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
