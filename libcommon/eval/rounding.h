/*
 * Quantisation of weights to blocks with calibration data. A text is run through the model layer by layer
 * (nn/walk.h): statistics of the inputs of each product of a layer are accumulated, its matrices are rounded,
 * and the statistics are freed. Memory: the model, one layer's statistics, and the text's residual stream.
 * Embedding, head, experts and matrices whose rows are no multiple of a block are not changed.
 *
 *   rtn     scales by least squares, each weight's error counting by the mean square of its input
 *   gptq    eval/gptq.h; each layer sees what those before it make of the text once they are rounded
 *   awq     inputs are divided, and columns multiplied, by a power of the input's mean magnitude: that of 20
 *           between 0 and 1 after which rounding changes the products least (Lin et al. 2024); then as rtn
 *   smooth  the same by sqrt(largest input / largest weight) of a column (SmoothQuant, Xiao et al. 2023)
 *
 * Two methods take weights away instead (eval/prune.h), and leave the type of what they keep; blocks become
 * f32:
 *
 *   magnitude  the smallest of a matrix, without a text; experts too
 *   wanda      those of each row that count least by the mean squares of their inputs; each layer sees what
 *              those before it make of the text once they are pruned
 *
 * The division is done by what makes the inputs: the scales of the norm in front, the rows of up in front of
 * down. Where it cannot be, at the end of attention or where others read the norm too, there is none.
 */
#ifndef DT_EVAL_ROUNDING_H
#define DT_EVAL_ROUNDING_H

#include "ckpt/export.h"
#include "model/graph.h"

enum dt_rounding_method {
	DT_ROUND_RTN,
	DT_ROUND_GPTQ,
	DT_ROUND_AWQ,
	DT_ROUND_SMOOTH,
	DT_ROUND_MAGNITUDE,
	DT_ROUND_WANDA
};
#define DT_ROUNDING_METHODS "rtn|gptq|awq|smooth|magnitude|wanda"
static inline bool dt_rounding_prunes(enum dt_rounding_method m)
{
	return m == DT_ROUND_MAGNITUDE || m == DT_ROUND_WANDA;
}

struct dt_rounding {
	enum dt_rounding_method method;
	enum dt_format format;	 /* that is rounded to */
	enum dt_packing packing; /* of what is written: matrices that it leaves alone are not rounded */
	double sparsity;	 /* the share that is pruned, 0 to 1; where of is 0 */
	int keep, of;		 /* or: what stays of every `of` neighbours in a row */
	const char *text;	 /* a file */
	const char *tokenizer;	 /* in place of the model's own; NULL: that */
	int64_t threads;	 /* 0: as dt_eval_threads (eval/model.h) says */
	int64_t seq, tokens;	 /* of a window, of the text at most; 0: as below */
	double damping;		 /* of gptq, over the mean of the diagonal */
	bool act_order;		 /* gptq begins with the columns whose inputs are largest */
	const char *near;	 /* a path in the folder where a file without a name may lie */
	bool (*progress)(void *arg, uint64_t done, uint64_t total); /* false: stop; may be NULL */
	void *arg;
	/* written by what rounds: tokens read, matrices rounded or pruned */
	int64_t read;
	int matrices;
};
#define DT_ROUNDING_SEQ	   512
#define DT_ROUNDING_TOKENS 32768

/*
 * s with its matrices rounded or pruned, as a source of its own; takes s over, also when it fails. -EINVAL:
 * the text is too short for one window, the format has no blocks, or rows are no multiple of `of`. -ENOTSUP:
 * a model that is not served.
 */
int dt_source_rounded(struct dt_source *s, struct dt_rounding *r, struct dt_source **ret, struct dt_err *err);

/* The same as a change of dt_convert's; the argument is a struct dt_rounding. */
int dt_round_source(void *rounding, struct dt_source **s, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
