/*
 * A source of sampled answers: a checkpoint in this process, or a server with OpenAI's API that returns token
 * ids.
 */
#ifndef DT_RL_DRAWER_H
#define DT_RL_DRAWER_H

#include "rl/sampler.h"

struct dt_drawer {
	/* Answers of n groups whose prompt (or prompt_ids) and index are set. */
	int (*draw)(struct dt_drawer *d, struct dt_group *g, int64_t n, struct dt_err *err);
	void (*close)(struct dt_drawer *d);
};

struct dt_drawer_opts {
	struct dt_sampler_opts sample;
	const char *lora;	  /* an adapter that is added to the weights; NULL: none */
	bool any_base;		  /* it may have been trained on others */
	const char *tokenizer;	  /* in place of the model's own; NULL: that */
	bool fp32;		  /* activations, cache and weights; else bf16 */
	int64_t threads, seq;	  /* 0: all processors; the model's positions */
	const char *device;	  /* nn/device.h; NULL: the processor */
	const char *weights_disk; /* as disk_dir and disk_memory in nn/infer.h; NULL: all are in memory */
	uint64_t weights_memory;
	const char *served, *key; /* of a server: the model's name, NULL: its first; the key, NULL: none */
	int parallel;		  /* requests with a server at a time */
};

int dt_drawer_local(const char *model, const struct dt_drawer_opts *o, struct dt_drawer **ret,
		    struct dt_err *err);
int dt_drawer_remote(const char *url, const struct dt_drawer_opts *o, struct dt_drawer **ret,
		     struct dt_err *err);
void dt_drawer_close(struct dt_drawer *d); /* NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
