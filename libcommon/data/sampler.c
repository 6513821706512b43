#include "base/rng.h"
#include "data/dataset.h"

#include <errno.h>

int dt_sampler_init(struct dt_sampler *s, struct dt_dataset *d, int64_t seq, uint64_t seed, bool shuffle,
		    struct dt_err *err)
{
	struct dt_dataset_info info;

	if (seq < 1)
		return dt_err_set(err, -EINVAL, "a sample of %lld tokens is too short", (long long)seq);
	dt_dataset_info(d, &info);
	if (info.tokens <= seq)
		return dt_err_set(err, -EINVAL, "the dataset has %lld tokens, one sample needs %lld",
				  (long long)info.tokens, (long long)seq + 1);
	*s = (struct dt_sampler){
		.data = d, .seed = seed, .seq = seq, .shuffle = shuffle, .samples = (info.tokens - 1) / seq};
	return 0;
}

int64_t dt_sampler_at(const struct dt_sampler *s, int64_t n)
{
	uint64_t i = (uint64_t)(n % s->samples), epoch = (uint64_t)(n / s->samples);

	if (s->shuffle) {
		struct dt_rng r = dt_rng_make(s->seed, DT_RNG_DATA, (uint32_t)epoch);

		i = dt_rng_permute(&r, i, (uint64_t)s->samples);
	}
	return (int64_t)i * s->seq;
}

int dt_sampler_get(struct dt_sampler *s, int64_t n, int32_t *ret, struct dt_err *err)
{
	if (n < 0)
		return dt_err_set(err, -EINVAL, "sample %lld does not exist", (long long)n);
	return dt_dataset_read(s->data, dt_sampler_at(s, n), s->seq + 1, ret, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
