/* The memory shared by the actors and the learner. */
#include "rl/actors_priv.h"

#include "plan/draws.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

uint64_t actors_place(const struct actors_region *r, const struct dt_params *table, int which, int i)
{
	uint64_t at = r->weights[which];

	for (int k = 0; k < i; k++)
		at += ((uint64_t)dt_param_numel(&table->p[k]) * dt_dtype_size(r->o.compute) + 63) & ~63ull;
	return at;
}

static uint64_t whole_pages(uint64_t n)
{
	return (n + 4095) & ~4095ull;
}

int actors_share(const struct dt_params *table, const struct dt_answerer_opts *o, int *fd,
		 struct actors_region **ret, struct dt_err *err)
{
	struct actors_region r = {.o = *o, .rewarded = o->reward, .newest = -1, .step = {-1, -1}};
	uint64_t each;

	r.reward = whole_pages(sizeof(r));
	r.tokenizer = whole_pages(r.reward + (o->reward ? strlen(o->reward) : 0) + 1);
	r.weights[0] = whole_pages(r.tokenizer + o->tokenizer_n + 1);
	each = dt_draws_handed(table, o->compute);
	r.weights[1] = r.weights[0] + each;
	r.bytes = r.weights[1] + each;
	*fd = memfd_create("dt-actors", MFD_CLOEXEC);
	if (*fd < 0 || posix_fallocate(*fd, 0, (off_t)r.bytes) != 0)
		return dt_err_set(err, -ENOMEM, "cannot share %llu bytes with actors",
				  (unsigned long long)r.bytes);
	*ret = mmap(NULL, r.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd, 0);
	if (*ret == MAP_FAILED) {
		*ret = NULL;
		return dt_err_sys(err, -errno, "cannot share memory with actors");
	}
	**ret = r;
	strcpy((char *)*ret + r.reward, o->reward ? o->reward : "");
	memcpy((char *)*ret + r.tokenizer, o->tokenizer, o->tokenizer_n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
