/*
 * Evaluates an image classifier on a data set, over ranks: each has the model, and all get the result, which
 * does not depend on their number. Every image counts once.
 */
#ifndef DT_EVAL_IMAGES_H
#define DT_EVAL_IMAGES_H

#include "base/json.h"
#include "comm/comm.h"
#include "eval/model.h"
#include "nn/classify.h"

#include <stdio.h>

/*
 * Test-time augmentation: the logits of an image are a weighted mean over views of it. MIRROR: it and its
 * mirror image. SHIFT: half of that, and half of the same of the image moved by a pixel up and left and down
 * and right, its border mirrored (Jordan 2024, arXiv:2404.00498, section 3.5).
 */
enum dt_tta { DT_TTA_NONE, DT_TTA_MIRROR, DT_TTA_SHIFT };
#define DT_TTA_CHOICES "none|mirror|mirror-shift"

struct dt_images_query {
	const char *data;
	const char *normalize; /* "model", "data" or the name of a published one */
	int64_t image_size;    /* side; 0: the model's */
	int64_t batch, limit;  /* images of a batch; images at most, 0: all */
	int64_t workers;       /* threads of a rank that decode ahead */
	enum dt_image_split split;
	enum dt_tta tta;
	bool unfolded;	   /* batch norms are computed, not folded into convolutions */
	FILE *predictions; /* of the first rank, a JSON line an image; NULL: none */
	struct dt_comm *ranks;
	int rank, size;
	void (*progress)(void *arg, int64_t done, int64_t of);
	void *arg;
};

struct dt_images_result {
	int64_t n;
	int classes;
	char **name;		      /* [classes] */
	double top1, top1_error;      /* shares; the standard error of the first */
	double top5, loss;	      /* mean cross-entropy, nats */
	int64_t *confusion;	      /* [classes, classes] rows are what is right, columns what was given */
	double seconds;		      /* from the first batch to the last */
	double batch_p50, batch_p99;  /* seconds from a batch's pixels to its answer */
	double recall_of_worst_class; /* of those that have images */
};

/* -EINVAL where classes, channels or sizes of model and data differ. */
int dt_images_run(const char *model, const struct dt_eval_opts *o, const struct dt_images_query *q,
		  struct dt_images_result *ret, struct dt_err *err);
void dt_images_result_release(struct dt_images_result *r);
json_t *dt_images_result_json(const char *model, const struct dt_images_query *q,
			      const struct dt_images_result *r);
int dt_images_result_print(const struct dt_images_query *q, const struct dt_images_result *r, FILE *f,
			   struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
