/*
 * For the files of rounding.h: the products of the layer that is rounded, and sums of their inputs over the
 * text. Functions return a negative errno and fill w->err.
 */
#ifndef DT_EVAL_ROUNDING_SITES_H
#define DT_EVAL_ROUNDING_SITES_H

#include "eval/rounding.h"
#include "kernels/ops.h"
#include "nn/walk.h"

/* The inputs of one product, summed up over the text. */
struct dt_site {
	struct dt_node node;   /* params are local */
	int param[3];	       /* of the config's table; -1: absent */
	enum dt_format format; /* that its matrices are rounded to; a plain one: they are not */
	int64_t k, rows;
	float *h;	    /* [k, k] sum of x^T x; the other methods: [k] its diagonal */
	float *mean, *most; /* [k] sum of magnitudes, and the largest */
	float *scale;	    /* [k] what columns are multiplied with; NULL: nothing */
	int norm[2], up;    /* whose results are divided by scale: of the config's table, -1: not it */
	bool plus_one;	    /* of that norm */
};

#define DT_SITES_MOST 8 /* products of a layer */

struct dt_rounding_work {
	const struct dt_rounding *r;
	struct dt_source *s; /* replaced */
	int threads;
	struct dt_dev *dev;
	struct dt_infer *infer;
	struct dt_walk *walk;
	struct dt_tokenizer *tok;
	int32_t *ids; /* [nseq, len] */
	int64_t nseq, len;
	struct dt_site site[DT_SITES_MOST]; /* of the layer */
	int nsite, matrices;
	struct dt_err *err;
};

/* Whether h of each site is [k, k]: gptq and awq need products of two inputs, the others squares alone. */
bool dt_sites_products(const struct dt_rounding_work *w);
/* A dt_walk_fn; arg is the work. Adds the rows of a product's input to its site, which may be new. */
int dt_sites_sum_up(void *arg, const struct dt_walk_seen *seen, struct dt_err *err);
/* From sums to means, per row of the text. -EDOM: inputs are not finite. */
int dt_sites_finish(struct dt_rounding_work *w, int layer);
/*
 * Sets norm and up of s: the norm, or the rows of up, that makes the input of s for it alone. Steps [first,
 * end) of p are those of the layer.
 */
void dt_site_find_divided(const struct dt_rounding_work *w, struct dt_site *s, const struct dt_prog *p,
			  int first, int end);
void dt_sites_release(struct dt_rounding_work *w);

/*
 * scales.c: fills s->scale for matrices w [s->param], each rows of k. Does nothing where s has neither norm
 * nor up, or its format no blocks.
 */
int dt_site_scale(struct dt_site *s, const struct dt_rounding *r, struct dt_dev *dev, const float *const *w,
		  const int64_t *rows, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
