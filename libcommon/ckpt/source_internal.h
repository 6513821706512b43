/* Shared by importers and exporters; private to ckpt/. */
#ifndef DT_CKPT_SOURCE_INTERNAL_H
#define DT_CKPT_SOURCE_INTERNAL_H

#include "ckpt/ckpt.h"
#include "ckpt/source.h"
#include "model/gguf.h"
#include "model/names.h"
#include "model/safetensors.h"

#define SRC_TEXT_MAX ((size_t)64 << 20) /* tokenizer.json, chat template */

/* ---- source.c ---- */

struct src_stored {			   /* a tensor of a file */
	char name[DT_NAMES_MAX], type[12]; /* of safetensors: "I32" */
	enum dt_format format;
	int format_known; /* 0: data is not to be read */
	int ndim;
	int64_t shape[DT_SAFETENSORS_DIMS];
	const uint8_t *data;
	bool used;
};

/*
 * Element (r, c) is number first + R stride + c, or first + c stride + r when transposed. R is r, or for
 * rows in runs (run > 0) r / run every + r % run.
 * each > 0: transposed in blocks of so many of our rows: block r / each begins at (r / each) cols stride, and
 * r becomes (r % each) step.
 */
struct src_view {
	const uint8_t *data;
	enum dt_format format;
	int64_t first, stride;
	int64_t run, every;
	bool transposed;
	int64_t each, step, cols;
	const uint8_t **part; /* part_rows rows in each; NULL: all in data */
	int64_t part_rows;
};

/* How many of the rows [row, row + n) lie one behind the other from row on, and the number R of that row. */
static inline int64_t src_run(const struct src_view *v, int64_t row, int64_t n, int64_t *ret_at)
{
	const int64_t left = v->run ? v->run - row % v->run : n;

	*ret_at = v->run ? row / v->run * v->every + row % v->run : row;
	return left < n ? left : n;
}

struct dt_source {
	enum dt_source_kind kind;
	char *path;
	struct dt_config config;
	bool tower;   /* the model's tower of vision is the model */
	bool modules; /* those for further tokens belong to the model, where the source has them */
	struct dt_params params;
	struct src_view *view; /* a parameter; NULL: dt */
	struct src_stored *stored;
	int nstored, cap;
	struct dt_ckpt *ck;
	int *ck_tensor;
	struct dt_source **mean; /* of these; NULL: not an average */
	int nmean;
	/*
	 * Derived from mean[0] by `box`: the parameter there that each comes from, -1: random. NULL: not
	 * derived
	 */
	int *from;
	uint64_t seed;
	float *mean_row; /* of a vocabulary that grew (source_vocab.c): [2, hidden]; else NULL */
	int (*box)(struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x,
		   struct dt_err *err); /* of parameter i */
	struct src_view *over; /* a parameter; data NULL: that of mean[0], the base. NULL: none is replaced */
	int over_fd;
	uint64_t over_bytes;
	struct dt_adapter *adapter; /* added to the mean (of one); NULL: none */
	struct {
		void *p;
		size_t n;
		_Atomic int64_t read; /* of the first: bytes read from all since src_reads gave pages back */
	} * map;
	int nmap;
	struct src_coded **coded; /* quantised matrices, by address; NULL: none */
	int ncoded;
	json_t *images; /* dt_source_images */
	struct dt_vision vision;
	char *tokenizer, *chat;
	char *named[2]; /* dt_source_named */
	size_t tokenizer_n;
	char note[512];
};

/* Adds the adapter's update to a box of parameter i. */
void src_add_update(const struct dt_source *s, int i, const int64_t *off, const int64_t *shape, float *x);

/* s->images from a manifest, or from timm's config.json in o. */
int src_images(struct dt_source *s, const json_t *o, struct dt_err *err);
/* The same from transformers' config.json and the preprocessor_config.json in its folder, if there is one. */
/* The names of an encoder's classes in config.json. */
int src_labels_hf(struct dt_source *s, const json_t *config, struct dt_err *err);
int src_images_hf(struct dt_source *s, const json_t *config, const char *folder, struct dt_err *err);

/* Maps a regular file until close. */
int src_map(struct dt_source *s, const char *path, const uint8_t **ret, size_t *ret_n, struct dt_err *err);
/*
 * Before `bytes` of mapped files are read: from time to time unmaps the pages of what was read before. They
 * stay in the page cache, but no longer count as memory of this process. Several threads may call.
 */
void src_reads(const struct dt_source *s, int64_t bytes);
int src_add(struct dt_source *s, const struct src_stored *t);
/* After all tensors are added: sorts them for src_find, which returns NULL if there is none of that name. */
void src_sort(struct dt_source *s);
struct src_stored *src_find(const struct dt_source *s, const char *name);
/* The configuration is known and all tensors are added: finds every parameter among them. */
int src_resolve(struct dt_source *s, enum dt_names scheme, struct dt_err *err);

/* ---- source_coded.c: what Hugging Face folders hold quantised ---- */

/* Makes one stored tensor of each quantised matrix, if config.json says that there are any. */
int src_coded_find(struct dt_source *s, const json_t *config, struct dt_err *err);
/* Before data is read: fills it if it is that of a quantised matrix. Several threads may call. */
void src_coded_need(const struct dt_source *s, const void *data);
void src_coded_release(struct dt_source *s);

/* ---- source_safetensors.c, source_gguf.c, source_bin.c: fill a source whose path is set ---- */

int src_open_safetensors(struct dt_source *s, struct dt_err *err);
int src_open_gguf(struct dt_source *s, bool weights, struct dt_err *err);
int src_open_llmc(struct dt_source *s, struct dt_err *err);
int src_open_llama2c(struct dt_source *s, struct dt_err *err);
/* The head of llama2.c's file (vocab < 0: the head is not tied), and the model that a reader takes it for. */
struct src_llama2c {
	int32_t dim, ffn, layers, heads, kv_heads, vocab, seq;
};
struct dt_config src_llama2c_config(const struct src_llama2c *h);
/* Whether a file begins as llm.c's, or holds just what llama2.c's head says. */
bool src_is_llmc(const uint8_t *p, size_t n);
bool src_is_llama2c(const uint8_t *p, size_t n);
/*
 * Refuses what torch.save writes, a zip archive or the older format: -ENOTSUP, otherwise 0. A pickle is a
 * program that its reader runs.
 */
int src_refuse_pickle(const uint8_t *p, size_t n, const char *path, struct dt_err *err);
/* Tokenizer, chat template and names of tokens of a Hugging Face folder. */
int src_hf_tokenizer(struct dt_source *s, const char *folder, struct dt_err *err);
/* s->named[which], unless it is known already. */
int src_name(struct dt_source *s, int which, const char *text, size_t n, struct dt_err *err);
/* Both, from {"bos_token": text or {"content": text}, "eos_token": ...}. */
int src_name_all(struct dt_source *s, const json_t *o, struct dt_err *err);

/* ---- vocab.c: vocabularies of other formats as tokenizer.json ---- */

enum {
	SRC_TOKEN_NORMAL = 1,
	SRC_TOKEN_UNKNOWN,
	SRC_TOKEN_CONTROL,
	SRC_TOKEN_USER,
	SRC_TOKEN_UNUSED,
	SRC_TOKEN_BYTE
};

struct src_token {
	const char *s;
	size_t n;
	double score;
	int type;
};

struct src_vocab {
	struct src_token *t;
	int n;
	int64_t bos, eos; /* ids, -1: none */
	bool add_bos, add_space;
	bool add_eos, add_sep; /* RoBERTa's: eos behind a text, and once more in front of a second one */
};

/* ---- vocab_json.c ---- */

/* Leaves the note that the tokenizer cannot be used: what, and a name in quotes when not NULL. Returns 0. */
int src_vocab_note(struct dt_source *s, const char *what, const char *name, size_t n);
/* {"token": id}, or NULL: a token is not UTF-8, or occurs twice. */
json_t *src_vocab_json(const struct src_vocab *v);
/* "added_tokens": those that are not of a model's vocabulary proper, by their types. */
json_t *src_added_json(const struct src_vocab *v);
/* post_processor: the tokens that v adds around a text; null: none. */
json_t *src_around_json(const struct src_vocab *v);
/* Makes root the tokenizer of s, and drops it; NULL is -ENOMEM. */
int src_vocab_finish(struct dt_source *s, json_t *root, struct dt_err *err);

/* ---- vocab.c and others ---- */

/* vocab_bert.c: WordPiece, from a GGUF's keys, or from vocab.txt and tokenizer_config.json (NULL: none). */
int src_vocab_bert(struct dt_source *s, const struct dt_gguf *g, struct src_vocab *v, struct dt_err *err);
int src_vocab_txt(struct dt_source *s, char *text, size_t n, const json_t *config, struct dt_err *err);
/* vocab_ug.c: Unigram (model "t5"), from a GGUF's keys. */
int src_vocab_unigram(struct dt_source *s, const struct dt_gguf *g, const struct src_vocab *v,
		      struct dt_err *err);
/* SentencePiece's BPE of pieces with scores. */
int src_vocab_sentencepiece(struct dt_source *s, const struct src_vocab *v, struct dt_err *err);

/* From a GGUF's keys. A vocabulary that cannot be turned into one is a note, not an error. */
int src_gguf_tokenizer(struct dt_source *s, const struct dt_gguf *g, struct dt_err *err);
/* llama2.c's tokenizer .bin. */
int src_llama2c_tokenizer(struct dt_source *s, const char *path, struct dt_err *err);
/* vocab_sp.c: SentencePiece's tokenizer.model. Whether a file can be one. */
bool src_is_sentencepiece(const uint8_t *p, size_t n);
int src_sentencepiece(struct dt_source *s, const uint8_t *p, size_t n, struct dt_err *err);

/* ---- tokenizer_file.c ---- */

/* Replaces the tokenizer of s, and the chat template where there is another, by what path holds. */
int src_tokenizer_from(struct dt_source *s, const char *path, struct dt_err *err);
/* What a checkpoint carries, which may be nothing. */
int src_ckpt_tokenizer(struct dt_source *s, const struct dt_ckpt *c, struct dt_err *err);

/* ---- pre.c: the splitters that GGUF calls by name ---- */

enum src_pre_what {
	SRC_PRE_END,
	SRC_PRE_SPLIT,	     /* every match of regex is a piece, and what is between */
	SRC_PRE_DIGITS,	     /* every digit apart */
	SRC_PRE_NUMBERS,     /* runs of digits apart */
	SRC_PRE_PUNCTUATION, /* runs of punctuation apart */
	SRC_PRE_WORDS,	     /* GPT-2's pattern; what follows sees GPT-2's alphabet of bytes */
	SRC_PRE_BYTES,	     /* that alphabet without the pattern */
};

#define SRC_PRE_STEPS 8

struct src_pre_step {
	enum src_pre_what what;
	const char *regex; /* as tokenizer.json has it: Oniguruma's */
};

struct src_pre {
	const char *name; /* "qwen2" */
	struct src_pre_step step[SRC_PRE_STEPS];
	bool nfc, ignore_merges, add_bos;
};
const struct src_pre *src_pre_find(const char *name, size_t n);
/* The one that a tokenizer.json's normalizer and pre_tokenizer are; NULL: none of them. */
const struct src_pre *src_pre_of(const json_t *tokenizer);
/* Sets normalizer and pre_tokenizer. */
void src_pre_put(const struct src_pre *p, json_t *tokenizer);

/*
 * source.c: fills in s, which has its configuration, as a source made of old alone, whose parameters have the
 * same names and other sizes. -ENOMEM: without a message.
 */
int src_same_names(struct dt_source *s, const struct dt_source *old, struct dt_err *err);
/*
 * source.c: s is made of these sources, which it closes, with the tokenizer and the template of the first.
 * s->mean has room for them.
 */
void src_made_of(struct dt_source *s, struct dt_source *const *of, int n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
