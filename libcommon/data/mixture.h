/*
 * A weighted mixture of token data sets. The set of global sample n depends on the weights alone, and among
 * the first n samples, for any n, the number from each set is off its share by less than one. Each set has
 * its own epochs and order; its cursor follows from n.
 *
 * Source of the order: Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980).
 */
#ifndef DT_DATA_MIXTURE_H
#define DT_DATA_MIXTURE_H

#include "data/dataset.h"

#define DT_MIXTURE_PARTS 64

/*
 * An order of sets with whole weights: period is their sum over its greatest common divisor. Place r of a
 * period is sample before[r] + (periods behind) * weight of set part[r].
 */
struct dt_mixture_order {
	int parts;
	int64_t weight[DT_MIXTURE_PARTS], period;
	uint8_t *part;
	int32_t *before;
};
/* Weights above 0; they are kept to a part in a million of their sum. */
int dt_mixture_order_init(struct dt_mixture_order *o, int parts, const double *weight, struct dt_err *err);
void dt_mixture_order_release(struct dt_mixture_order *o);
/* The set of sample n, and its number among the samples of that set. */
void dt_mixture_order_at(const struct dt_mixture_order *o, int64_t n, int *ret_part, int64_t *ret_n);

struct dt_mixture;

/*
 * spec: a data set, or "A.h5:0.7,B.h5:0.3" with weights in any unit (1 where there is none); a file whose
 * name has such letters is taken as it is when it exists. All of one tokenizer. One set alone is in the
 * order of dt_sampler_get (data/dataset.h).
 */
int dt_mixture_open(const char *spec, int64_t seq, uint64_t seed, bool shuffle, struct dt_mixture **ret,
		    struct dt_err *err);
void dt_mixture_close(struct dt_mixture *m);
/* Whether spec can be one, before anything is opened: -EINVAL of weights and names that cannot be. */
int dt_mixture_check(const char *spec, struct dt_err *err);

/* Of all sets together: tokens and documents are sums, the tokenizer that of the first. */
void dt_mixture_info(const struct dt_mixture *m, struct dt_dataset_info *ret);

struct dt_mixture_part {
	const char *path;
	double share;	 /* of all samples */
	int64_t samples; /* an epoch of it */
};
/* How many of the first n samples are of set i: its cursor. */
int64_t dt_mixture_cursor(const struct dt_mixture *m, int64_t n, int i);
/* The number of sets; 0 for NULL. */
int dt_mixture_parts(const struct dt_mixture *m);
void dt_mixture_part(const struct dt_mixture *m, int i, struct dt_mixture_part *ret);
/*
 * The sets' weights and tokens as text, equal if and only if the order is. Empty for one set, and for NULL.
 */
const char *dt_mixture_text(const struct dt_mixture *m);
/* Whether out would replace a file of a set. */
bool dt_mixture_has(const char *spec, const char *out);

/* The set that global sample n is of, and its number there. */
const struct dt_sampler *dt_mixture_at(const struct dt_mixture *m, int64_t n, int64_t *ret_own);
/* Global sample n: seq + 1 tokens. By several threads at once where dt_mixture_threads says so. */
int dt_mixture_get(const struct dt_mixture *m, int64_t n, int32_t *ret, struct dt_err *err);
bool dt_mixture_threads(const struct dt_mixture *m);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
