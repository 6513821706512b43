/*
 * Texts ranked by how near they are to a query: the cosine of their embeddings (/v1/rerank, /v1/score). A
 * model that reads query and document together (a cross-encoder) ranks better; none is served here.
 */
#ifndef DT_SERVE_RANK_H
#define DT_SERVE_RANK_H

#include "serve/api/openai.h"

struct dt_rank {
	bool score;	/* answered as /v1/score does */
	int top;	/* results wanted, 0: all */
	bool documents; /* the results hold their texts */
	json_t *texts;	/* of the documents */
};

/* {"query", "documents", "top_n", "return_documents"}: *c embeds the query, then the documents. */
int dt_rerank_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		    struct dt_rank *ret, struct dt_api_error *e);
/* {"text_1", "text_2"}: the second may be a list. */
int dt_score_parse(const json_t *body, const struct dt_api_model *m, struct dt_completion *c,
		   struct dt_rank *ret, struct dt_api_error *e);
/* The reply to a call that is done. NULL with e filled. */
json_t *dt_rank_json(const struct dt_rank *r, const struct dt_completion *c, size_t hidden,
		     struct dt_api_error *e);
void dt_rank_release(struct dt_rank *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
