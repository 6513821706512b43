/* Loads a checkpoint for serving: tokenizer, chat template, the model on its device, the engine. */
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
	const char *tokenizer;	 /* "byte" or a file that replaces the model's tokenizer; NULL: the
				   * model's */
	const char *draft_model; /* NULL: none */
	bool mtp;		 /* the model's module for a further token drafts */
	const char *trace;	 /* file for the scheduler's decisions; NULL: none */
	const char *device;	 /* nn/device.h */
	int local_rank;	 /* of a process on its machine that has the model alone: which GPU; without world */
	bool invariant;	 /* batch-invariant also on a GPU: answers do not depend on other requests */
	int64_t threads; /* threads of the model; 0: all processors */
	bool fp32;	 /* activations and unquantised weights are fp32, else bf16 */
	int weights;	 /* enum dt_format, -1: as stored */
	enum dt_dtype cache;	  /* of KV-cache elements */
	int chat;		  /* enum dt_chat_kind, -1: the model's */
	int64_t seqs;		  /* max running sequences */
	int64_t tokens;		  /* max tokens of one step */
	int64_t len;		  /* max tokens of a sequence; 0: the model's limit */
	int64_t block;		  /* tokens of a cache block */
	int64_t queue;		  /* max requests that may wait */
	int64_t draft;		  /* max draft tokens a step */
	uint64_t cache_mem;	  /* bytes of the KV cache; 0: chosen by dt_served_open */
	const char *weights_disk; /* folder for weights that exceed weights_memory; NULL: none */
	uint64_t weights_memory;  /* bytes a rank; see disk_memory in nn/infer.h */
	bool share;		  /* share prefixes (prefix caching) */
	uint64_t kv_host;	  /* bytes of host memory for evicted cache blocks */
	const char *kv_dir;	  /* folder for cache blocks, NULL: none */
	uint64_t kv_dir_size;
	bool kv_always;			       /* load blocks even where computing them would be faster */
	bool named;			       /* cache blocks are exchanged with other servers */
	const struct dt_kvpeers_params *peers; /* prefill servers, without the cache's members; NULL: none */
	const struct dt_log *log;	       /* for messages on kv_dir, loading and shutdown; NULL: none */
	bool as_trained;		       /* nn/infer.h */
	int64_t images;			       /* most of a request; 0: texts alone, no tower is loaded */
	bool embeds;			       /* encoders can be opened (dt_infer_params.embeds) */
	int pooling; /* enum dt_embed_pooling of an encoder's embeddings; 0: the model's, or the mean */
	const char *merged; /* adapter to merge into the weights; any_base applies; NULL: none */
	/* Adapters, each NAME=PATH. Clients may load adapters from lora_dir, NULL: they may not. */
	const struct dt_strs *lora;
	const char *lora_dir, *name;	/* name: of the base model in the API */
	int64_t lora_rank;		/* largest rank of an adapter; 0: no adapters */
	int64_t lora_resident;		/* max adapters in memory */
	double lora_quota;		/* tokens a minute for each adapter, 0: no limit */
	bool any_base;			/* accept adapters made for other base weights */
	double stuck_after;		/* seconds of one step after which the engine counts as stuck */
	const struct dt_tenant *tenant; /* [ntenants], outlives it; ntenants 0: one tenant without limits */
	int ntenants;
	struct dt_world *world;	 /* several ranks, all of which call dt_served_open; NULL: one process */
	struct dt_layout layout; /* of the ranks; dp 0: tp over all ranks */
	double beat_s;		 /* seconds without a step before rank 0 sends a heartbeat */
};

struct dt_see;

struct dt_served {
	struct dt_dev *dev;
	struct dt_source *src; /* closed after loading */
	struct dt_tokenizer *tok;
	struct dt_infer *model, *drafter;
	struct dt_see *tower; /* of a model that reads images; NULL: another model */
	struct dt_vision vision;
	struct dt_labels *labels;     /* of an encoder with classes; NULL: another model */
	struct dt_adapters *adapters; /* NULL: none */
	struct dt_engine *engine;
	struct dt_schedtrace trace;
	struct dt_kvdisk *disk;
	struct dt_kvpeers_params peers; /* used by the engine */
	struct dt_chat chat;
	bool has_chat;
	/* with several ranks: this rank's communicators, its cut of the model, and its step messages */
	struct dt_mesh mesh;
	struct dt_infer_ranks cut;
	struct dt_serve_ranks *ranks;
	/* cost of loading and totals */
	struct dt_infer_memory memory;
	uint64_t logits_bytes;
	int64_t seqs; /* that run together: those asked for, or as many as have room for their states */
	int64_t cache_tokens;
	double seconds;
};

/*
 * Opens the tokenizer of a source; spec "byte" needs no file. -ENOENT: there is none. *ret may be set on
 * failure too; the caller frees it.
 */
int dt_served_tokenizer(const struct dt_source *src, const char *spec, struct dt_tokenizer **ret,
			struct dt_err *err);

/* Bytes of an adapter's name, the NUL included. */
#define DT_LORA_NAME 256

/* Splits an adapter given as NAME=PATH. *ret_path points into text. -EINVAL: it has not this form. */
int dt_served_lora(const char *text, char ret_name[DT_LORA_NAME], const char **ret_path, struct dt_err *err);

/*
 * *s must be zeroed. Call dt_served_close on failure too. With several ranks all fail together; ranks without
 * an error of their own have an empty message. On success rank 0 has the engine, and the others call
 * dt_served_follow.
 */
int dt_served_open(struct dt_served *s, const struct dt_served_params *p, struct dt_err *err);

/* Engine callbacks for a model open in this process, with the tokenizer's end-of-text ids. */
struct dt_engine_model dt_served_model(struct dt_infer *m, const struct dt_tokenizer *tok,
				       const struct dt_config *c);

/* Parameters of a model on the CPU for requests of this process itself, without limits of waiting or time. */
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
/* For ranks other than 0: follows rank 0 until it closes. */
int dt_served_follow(struct dt_served *s, struct dt_err *err);
/* -EIO: the trace is incomplete. */
int dt_served_close(struct dt_served *s);

/* ---- served_print.c ---- */

/* Logs what dt_served_open has loaded, one line on p->log. */
void dt_served_log(const struct dt_served *s, const struct dt_served_params *p);
/* dt_served_close, with failures logged to p->log. */
int dt_served_end(struct dt_served *s, const struct dt_served_params *p);
/* Prints what a step computes and costs as a table; reads only the configuration of the checkpoint. */
int dt_served_print_program(const struct dt_served_params *p, FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
