/* The name and layout of a parameter in other formats. */
#ifndef DT_MODEL_NAMES_H
#define DT_MODEL_NAMES_H

#include "model/params.h"

#define DT_NAMES_MAX 128

enum dt_names {
	DT_NAMES_HF,   /* Hugging Face, without the leading "model." or "transformer." */
	DT_NAMES_GGUF, /* also what ckpt/source_bin.c gives its tensors */
};

struct dt_place_in_file {
	char name[DT_NAMES_MAX];
	bool transposed; /* [in, out]: GPT-2's Conv1D */
	/*
	 * Of a tensor of several parameters: how many rows it has, and the first of ours (dt_place_row). They
	 * lie in runs, `every` rows apart.
	 */
	int64_t first, rows, run, every;
	int64_t split; /* tensors that the parameter is in, one below the other: experts apart, else 1 */
	int64_t stack; /* > 0: experts are one more dimension, the outermost, over the same rows */
};

/* The row of the tensor that is our row r. */
static inline int64_t dt_place_row(const struct dt_place_in_file *at, int64_t r)
{
	return at->first + r / at->run * at->every + r % at->run;
}
/* Of a split parameter, the tensor of one expert. false: the scheme has no such parameter. */
bool dt_names_place(enum dt_names scheme, const struct dt_config *c, const struct dt_param *p, int64_t expert,
		    struct dt_place_in_file *ret);
/* enum dt_rope_pairing of heads that are rotated whole (dt_param_is_rotary), in files of c's family. */
int dt_names_pairing(enum dt_names scheme, const struct dt_config *c);
/* Tensors of files that are not parameters: buffers, tables that follow from the configuration. */
bool dt_names_is_buffer(enum dt_names scheme, const struct dt_config *c, const char *name);

/*
 * A tensor of a classifier of images by torchvision's name, in buf where that is another: DataParallel's
 * "module." goes, kuangliu's "shortcut" is "downsample", and "linear" is "fc".
 */
const char *dt_names_of_images(const char *name, char buf[DT_NAMES_MAX]);

/*
 * The row of a tensor in rotary order `from` that is row r in order `to` (enum dt_rope_pairing); dim: of a
 * head.
 */
int64_t dt_rope_row(int64_t r, int64_t dim, int from, int to);
/* Whether rotary order concerns the parameter. */
bool dt_param_is_rotary(const struct dt_config *c, const struct dt_param *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
