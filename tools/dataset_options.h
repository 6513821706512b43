/* The options of dt-dataset. */
#ifndef DT_TOOLS_DATASET_OPTIONS_H
#define DT_TOOLS_DATASET_OPTIONS_H

#include "base/opt.h"
#include "data/look.h"
#include "data/text_import.h"

struct dataset_args {
	struct dt_data_look look;
	struct dt_text_import text;
	struct dt_strs exclude;
	const char *tokenizer, *out_path, *eval_path, *crop, *match, *class_names;
	int format, pack, dedup, from, store, template, overlong, crop_to[2];
	int64_t shards, quality, resize, channels;
	double split;
	bool split_given, field_given, quality_given, skip_bad, ignore_exif, preferences, scores;
};

extern struct dataset_args dataset_args;
extern const struct dt_opt dataset_opts[];

/* Find options that inputs do not read because of their format. Return 0, or -EINVAL with a message. */
int dataset_check_build(int n, char **paths, struct dt_err *err);
int dataset_check_images(char **paths, struct dt_err *err);
int dataset_check_look(const char *path, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
