/*
 * How much memory a server has for keys and values and for states, and how many blocks and sequences that
 * makes.
 */
#include "serve/api/served_engine.h"

#include "base/units.h"
#include "nn/device.h"
#include "plan/inferplan.h"

#include <errno.h>
#include <unistd.h>

/*
 * Default bytes of the KV cache: half of a GPU's free memory, shared by its ranks; or a quarter of the
 * machine's memory, which others use too.
 */
static uint64_t cache_share(struct dt_dev *dev, const struct dt_served_params *p)
{
	struct dt_world_info i = {.local_size = 1};
	size_t room, all;

	if (p->world)
		dt_world_info(p->world, &i);
	if (dt_dev_memory(dev, &room, &all) == 0)
		return room / 2 / (uint64_t)dt_nn_device_ranks(dev, p->device, i.local_size);
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 /
	       (uint64_t)i.local_size;
}

/*
 * How many sequences run together: as many as fit at full length, or more, as long as their states leave
 * half of the memory to blocks. state, longest: bytes of a sequence's states and of its blocks at full
 * length, which together fit.
 */
static int64_t sequences(uint64_t have, uint64_t state, uint64_t longest, int64_t wanted)
{
	const uint64_t for_states = longest < have / 2 ? have / 2 : have - longest;
	uint64_t n;

	if (!state)
		return wanted;
	n = have / (state + longest);
	if (n < for_states / state)
		n = for_states / state;
	return n < (uint64_t)wanted ? (int64_t)n : wanted;
}

int64_t served_cache_blocks(struct dt_served *s, const struct dt_served_params *p, int64_t len,
			    const struct dt_config *module, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(s->src);
	const int64_t block = dt_infer_block(c, p->block, len);
	const uint64_t bytes =
		dt_infer_cache(c, &s->cut.layout, s->cut.at, p->cache, 1, block) +
		(module ? dt_infer_cache(module, &s->cut.layout, s->cut.at, p->cache, 1, block) : 0);
	const uint64_t state = dt_infer_states(c, &s->cut.layout, s->cut.at, 1);
	const uint64_t one = (uint64_t)((len + block - 1) / block);
	const uint64_t have = p->cache_mem ? p->cache_mem : cache_share(s->dev, p);
	const uint64_t most = INT32_MAX / (uint64_t)block; /* positions in the cache are int32 */
	uint64_t n = 0, all;
	char text[2][32];

	if (one * bytes + state <= have) {
		s->seqs = sequences(have, state, one * bytes, p->seqs);
		all = one * (uint64_t)s->seqs;
		n = all;
		if (!bytes &&
		    state) /* admission keeps a spare block for each running sequence, which costs nothing */
			n = 2 * all;
		else if (bytes && n > (have - state * (uint64_t)s->seqs) / bytes)
			n = (have - state * (uint64_t)s->seqs) / bytes;
	}
	if (n > most)
		n = most;
	if (n >= one)
		return (int64_t)n;
	dt_err_set(err, -ENOSPC,
		   "a KV cache of %s is too small for one sequence of %lld tokens, which takes %s",
		   dt_format_size(have, text[0], sizeof(text[0])), (long long)len,
		   dt_format_size_up(one * bytes + state, text[1], sizeof(text[1])));
	dt_err_hint(err, "lower --max-model-len, or %s --kv-cache-mem", p->cache_mem ? "raise" : "give");
	return -ENOSPC;
}
/* SPDX-License-Identifier: Apache-2.0 */
