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
	if (info.row && info.row != seq) {
		dt_err_set(err, -EINVAL, "the dataset was packed into samples of %lld tokens, not %lld",
			   (long long)info.row, (long long)seq);
		dt_err_hint(err, "--seq %lld", (long long)info.row);
		return -EINVAL;
	}
	*s = (struct dt_sampler){.data = d,
				 .seed = seed,
				 .seq = seq,
				 .shuffle = shuffle,
				 .samples = (info.tokens - 1) / seq,
				 .marked = info.marked};
	return 0;
}

int64_t dt_sample_at(uint64_t seed, bool shuffle, int64_t n, int64_t samples)
{
	struct dt_rng r;

	if (!shuffle)
		return n % samples;
	r = dt_rng_make(seed, DT_RNG_DATA, (uint32_t)(n / samples));
	return (int64_t)dt_rng_permute(&r, (uint64_t)(n % samples), (uint64_t)samples);
}

int64_t dt_sampler_at(const struct dt_sampler *s, int64_t n)
{
	return dt_sample_at(s->seed, s->shuffle, n, s->samples) * s->seq;
}

int dt_sampler_get(const struct dt_sampler *s, int64_t n, int32_t *ret, struct dt_err *err)
{
	if (n < 0)
		return dt_err_set(err, -EINVAL, "sample %lld does not exist", (long long)n);
	return dt_dataset_read(s->data, dt_sampler_at(s, n), s->seq + 1, ret, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
