/* The options of dt-eval. */
#ifndef DT_TOOLS_EVAL_OPTIONS_H
#define DT_TOOLS_EVAL_OPTIONS_H

#include "base/opt.h"
#include "eval/images.h"
#include "eval/score.h"
#include "eval/teacher.h"
#include "kernels/quant_formats.h"

#define EVAL_WEIGHTS "auto|f32|bf16" DT_PANEL_CHOICES

struct eval_args {
	struct dt_eval_opts model;
	const char *text, *task, *predictions, *served, *key;
	int64_t stride, limit, parallel;
	int windows, precision, weights;
	bool bos, json, fold, precision_given, weights_given, device_given, parallel_given;
	struct dt_images_query images;
	struct dt_teacher_query teacher;
	int split, tta;
};

extern struct eval_args eval_args;
extern const struct dt_opt eval_opts[];

/*
 * An option that none of n models reads, because all are servers, or because none is (servers: how many are).
 * seq: models read --seq, servers do not. NULL: all are read.
 */
const char *eval_unread(int n, int servers, bool seq);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
