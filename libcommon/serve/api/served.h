/* A checkpoint made ready to be served: tokenizer, chat template, the model on its device, the engine. */
#ifndef DT_SERVE_SERVED_H
#define DT_SERVE_SERVED_H

#include "base/opt.h"
#include "ckpt/source.h"
#include "comm/comm.h"
#include "data/chat.h"
#include "serve/engine/engine.h"
#include "serve/engine/ranks.h"

struct dt_served_params {
	const char *ckpt;
	const char *tokenizer;	  /* "byte" or a file, in place of the model's own; NULL: that */
	const char *draft_model;  /* NULL: none */
	const char *trace;	  /* the scheduler's decisions go there; NULL: nowhere */
	const char *device;	  /* nn/device.h */
	bool invariant;		  /* on a card too, answers do not depend on what else is served */
	int64_t threads;	  /* of the model; 0: all processors */
	bool fp32;		  /* activations and unquantised weights are fp32, else bf16 */
	int weights;		  /* enum dt_format, -1: as they are stored */
	enum dt_dtype cache;	  /* of the KV cache */
	int chat;		  /* enum dt_chat_kind, -1: as the model says */
	int64_t seqs;		  /* that run together */
	int64_t tokens;		  /* of one step */
	int64_t len;		  /* tokens of a sequence; 0: the model's */
	int64_t block;		  /* tokens of a cache block */
	int64_t queue;		  /* requests that may wait */
	int64_t draft;		  /* tokens guessed a step */
	uint64_t cache_mem;	  /* bytes of the KV cache; 0: dt_served_open decides */
	const char *weights_disk; /* a folder for weights that weights_memory does not hold; NULL: none */
	uint64_t weights_memory;  /* bytes of a rank; as disk_memory in nn/infer.h */
	bool share;		  /* prefixes */
	uint64_t kv_host;	  /* bytes of host memory for blocks that the cache has no place for */
	const char *kv_dir;	  /* a folder for them, NULL: none */
	uint64_t kv_dir_size;
	bool kv_always; /* they are read also where it would be faster to compute them */
	bool named;	/* blocks go to other servers or come from them */
	const struct dt_kvpeers_params *peers; /* these, without what is of the cache; NULL: none */
	const struct dt_log *log;	       /* of that folder, of loading and ending; NULL: silent */
	bool as_trained;		       /* nn/infer.h */
	const char *merged; /* an adapter added to the weights, any_base as below; NULL: none */
	/* Adapters: NAME=PATH each; what clients may load lies under lora_dir, NULL: they may not. */
	const struct dt_strs *lora;
	const char *lora_dir, *name;	/* name: the base's, in the API */
	int64_t lora_rank;		/* the largest; 0: no adapters */
	int64_t lora_resident;		/* in memory at a time */
	double lora_quota;		/* tokens a minute of each, 0: no limit */
	bool any_base;			/* they may have been made for other weights */
	double stuck_after;		/* seconds of one step after which the engine counts as stuck */
	const struct dt_tenant *tenant; /* [ntenants], outlive it; none: one without limits */
	int ntenants;
	struct dt_world *world;	 /* of several ranks, which all call; NULL: one process */
	struct dt_layout layout; /* of them; dp 0: tp over all */
	double beat_s;		 /* seconds without a step after which rank 0 tells the others of itself */
};

struct dt_served {
	struct dt_dev *dev;
	struct dt_source *src; /* closed when loaded */
	struct dt_tokenizer *tok;
	struct dt_infer *model, *drafter;
	struct dt_adapters *adapters; /* NULL: none */
	struct dt_engine *engine;
	struct dt_schedtrace trace;
	struct dt_kvdisk *disk;
	struct dt_kvpeers_params peers; /* the engine's */
	struct dt_chat chat;
	bool has_chat;
	/* of several ranks: this one's groups, and how it receives steps */
	struct dt_mesh mesh;
	struct dt_infer_ranks cut;
	struct dt_serve_ranks *ranks;
	/* cost of loading */
	struct dt_infer_memory memory;
	uint64_t logits_bytes;
	int64_t cache_tokens;
	double seconds;
};

/*
 * The tokenizer that came along with a source, or spec "byte", which needs no file. -ENOENT: there is none.
 * *ret may be set after a failure too, and is the caller's.
 */
int dt_served_tokenizer(const struct dt_source *src, const char *spec, struct dt_tokenizer **ret,
			struct dt_err *err);

/*
 * *s is zeroed. Call dt_served_close after a failure too. Of several ranks all fail alike, those without a
 * message of their own with an empty one; rank 0 has the engine, the others call dt_served_follow then.
 */
int dt_served_open(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err);

/* What an engine calls of a model that this process has open, and the tokens that end a text. */
struct dt_engine_model dt_served_model(struct dt_infer *m, const struct dt_tokenizer *tok,
				       const struct dt_config *c);

/* A model on the processor for answers that this process asks for itself: nobody waits, nothing is stuck. */
static inline struct dt_served_params dt_served_in_process(const char *ckpt, const char *tokenizer,
							   int64_t threads, int64_t len, bool fp32)
{
	return (struct dt_served_params){.ckpt = ckpt,
					 .tokenizer = tokenizer,
					 .device = "cpu",
					 .threads = threads,
					 .fp32 = fp32,
					 .weights = -1,
					 .cache = fp32 ? DT_F32 : DT_BF16,
					 .chat = -1,
					 .tokens = 512,
					 .len = len,
					 .block = 16,
					 .share = true,
					 .stuck_after = 1e9};
}
/* Until rank 0 closes. */
int dt_served_follow(struct dt_served *s, struct dt_err *err);
/* -EIO: the trace could not be written in full. */
int dt_served_close(struct dt_served *s);

/* ---- served_print.c ---- */

/* What dt_served_open has loaded, a line on p->log. */
void dt_served_log(const struct dt_served *s, const struct dt_served_params *p);
/* dt_served_close; its failure is logged to p->log. */
int dt_served_end(struct dt_served *s, const struct dt_served_params *p);
/* What a step computes and costs, as a table; of the checkpoint it needs the configuration alone. */
int dt_served_print_program(const struct dt_served_params *p, FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
