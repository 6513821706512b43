/* Shared by the tokenizer's files alone. */
#ifndef DT_DATA_TOK_PRIV_H
#define DT_DATA_TOK_PRIV_H

#define PCRE2_CODE_UNIT_WIDTH 8

#include "base/utf8.h"
#include "data/bpe.h"
#include "data/tokenizer.h"
#include "data/trie.h"

#include <jansson.h>
#include <pcre2.h>

#define DT_TOK_MAX_ID	   (1 << 22)
#define DT_TOK_MAX_FILE	   ((size_t)256 << 20) /* bytes of a tokenizer.json */
#define DT_TOK_MAX_STEPS   16
#define DT_TOK_END_OF_TEXT "<|endoftext|>"

/* Of an id. */
enum {
	DT_PIECE_SPECIAL = 1,
	DT_PIECE_ADDED = 2,
	DT_PIECE_DEFINED = 4,
};

struct dt_tok_piece {
	uint32_t at, n; /* in blob */
	uint32_t flags;
};

/* One step of the pre-tokenizer: cuts a text into pieces, each of which goes to the next step. */
struct dt_tok_step {
	bool prefix_space; /* put a space before a text that does not start with one */
	pcre2_code *re;	   /* NULL: no cut */
	int every;	   /* > 0: re matches runs; cut before each `every`-th character from their ends */
	bool drop_match, drop_gap;
	bool to_alphabet; /* no cut: later steps see each byte as its character in GPT-2's alphabet */
	char *pattern;	  /* as the file has it; NULL: no cut */
};

struct dt_added {
	char *text;
	size_t n;
	int32_t id;
	bool special, lstrip, rstrip;
};

struct dt_added_list { /* sorted by bytes */
	struct dt_added *v;
	size_t n;
	bool first[256]; /* some token starts with this byte */
	bool marked;	 /* blanks stand for U+2581, which is no white space */
};

enum dt_normal { DT_NORMAL_NONE, DT_NORMAL_NFC, DT_NORMAL_NFD, DT_NORMAL_NFKC, DT_NORMAL_NFKD };

/* SentencePiece's BPE: symbols are characters, those without a token are bytes; blanks are part of words. */
enum dt_sp_prefix {
	DT_SP_PREFIX_NONE,
	DT_SP_PREFIX_EACH,   /* a blank before every text between added tokens */
	DT_SP_PREFIX_UNLESS, /* unless there is one */
	DT_SP_PREFIX_FIRST,  /* likewise, and only at the very beginning */
};

struct dt_sp {
	bool on;
	enum dt_sp_prefix prefix;
	bool meta;  /* there is a Metaspace, which makes marks of blanks that are left */
	bool split; /* a word begins at every blank */
	bool apart; /* and else at one behind anything but a blank: no token spells both */
	bool marks; /* the normaliser makes marks of blanks: normalised added tokens meet them */
	bool strip; /* decoding takes the first blank away */
	bool bare;  /* it takes away all blanks of the first token */
	struct dt_bytemap chars;
	int32_t *char_id; /* of each in chars */
	size_t cap;
};

/*
 * WordPiece (Schuster and Nakajima 2012, as in BERT): a word is the longest token that it starts with, then
 * the longest tokens with the prefix, "##", until its end. A word that cannot be spelt so is one unknown
 * token.
 */
struct dt_wp {
	bool on;
	struct dt_trie trie; /* of the model's tokens */
	char *prefix;	     /* of a token that continues a word */
	uint32_t inside;     /* the prefix's node, DT_TRIE_NONE: no token has it */
	int32_t unk;
	int64_t max_chars; /* of a word; a longer one is unknown */
	/* BERT's normalizer. clean: controls are dropped, white space is a blank; chinese: each apart */
	bool clean, chinese, strip_accents, lower;
	char says[64]; /* the same in words */
	/* The decoder; joined: a token with decode_prefix has no blank before it */
	bool joined, cleanup;
	char *decode_prefix;
	struct dt_tok_piece *first; /* vocab of them: tokens as they begin a decoded text */
};

enum dt_ug_what {
	DT_UG_CHARSMAP,
	DT_UG_STRIP,  /* white space at the ends */
	DT_UG_BLANKS, /* runs of at least two blanks become `to` */
};

struct dt_ug_step {
	enum dt_ug_what what;
	bool left, right;
	char *to;
};

/*
 * Unigram (Kudo 2018, as in SentencePiece): a word is cut into the tokens whose scores, logarithms of
 * probabilities, have the largest sum. With sp, which has the prefix and marks blanks.
 */
struct dt_ug {
	bool on;
	bool bytes;	     /* what is unknown becomes bytes, where all of them are tokens */
	bool spaces;	     /* words are apart at white space, before the prefix */
	struct dt_trie trie; /* of all tokens, with blanks for marks */
	int32_t tokens;
	double *score;	  /* of each of the tokens */
	double unk_score; /* of a character without a token */
	int32_t unk;	  /* -1: there is none */
	struct dt_ug_step step[8];
	int steps;
	/*
	 * SentencePiece's map of characters: a double-array trie (Aoe 1989) whose leaves are offsets of
	 * zero-terminated texts in `texts`.
	 */
	uint32_t *units;
	size_t units_n;
	char *texts;
	size_t texts_n;
	char says[64]; /* the normalizer in words */
};

struct dt_tokenizer {
	bool byte; /* no words, no merges */
	struct dt_sp sp;
	struct dt_wp wp;
	struct dt_ug ug;
	char *text;
	size_t text_n;
	char hash[17];
	int32_t vocab, eot, bos, end, prefix;
	int seps; /* ends between two texts; 0: not said, 1 */
	char *blob;
	size_t blob_n, blob_cap;
	struct dt_tok_piece *piece; /* vocab of them */
	struct dt_bpe bpe;
	enum dt_normal normal;
	struct dt_tok_step step[DT_TOK_MAX_STEPS];
	int steps;
	struct dt_added_list raw, normalized; /* looked for before and after normalisation */
	int added, specials;
};

/* tokenizer.c: the bytes of id, whose flags are added to those it has. */
int dt_tok_set_piece(struct dt_tokenizer *t, int32_t id, const char *s, size_t n, uint32_t flags,
		     struct dt_err *err);
/* Appends to the blob, where pieces are; *ret_at: where. */
int dt_tok_store(struct dt_tokenizer *t, const char *s, size_t n, uint32_t *ret_at, struct dt_err *err);
/* tok_hash.c: sets t->hash, when all else is known. */
void dt_tok_set_hash(struct dt_tokenizer *t);
/* tok_json.c: fills a zeroed t (vocab, pieces, merges, steps, added tokens, bos, eot). */
int dt_tok_read_json(struct dt_tokenizer *t, const char *text, size_t n, struct dt_err *err);
/* Takes ownership of nothing; normalises the text of tokens that are looked for after normalisation. */
int dt_tok_add(struct dt_tokenizer *t, const struct dt_added *a, bool normalized, struct dt_err *err);
/*
 * The first added token in s at or after from, NULL: none. [*ret_at, *ret_end) is what it takes, with the
 * spaces that it strips. special: those that are special count too.
 */
const struct dt_added *dt_tok_next_added(const struct dt_added_list *l, bool special, const char *s, size_t n,
					 size_t from, size_t *ret_at, size_t *ret_end);

/* tok_regex.c: an Oniguruma pattern (Ruby syntax, what Hugging Face runs) as PCRE2. */
int dt_tok_compile(const char *pattern, bool literal, pcre2_code **ret, struct dt_err *err);
/* For matches in texts of at most n bytes: it limits the steps of a match. NULL: out of memory. */
pcre2_match_context *dt_tok_match_context(size_t n);
/* Next match at or after from: 1 and its bounds, 0 none, negative errno. */
int dt_tok_match(const pcre2_code *re, pcre2_match_data *md, pcre2_match_context *mc, const char *s, size_t n,
		 size_t from, size_t *ret_begin, size_t *ret_end, struct dt_err *err);

/*
 * tok_runs.c: k if the pattern matches, without taking anything, where a run of a class of characters has k,
 * 2 k, .. characters left; run: the pattern of a run. 0: it is another pattern.
 */
enum { DT_TOK_RUN_CLASS = 128 };
int dt_tok_runs(const char *pattern, char run[static DT_TOK_RUN_CLASS]);
/* The run that was found last in a text; zero-initialised. */
struct dt_tok_run {
	size_t at, end, left; /* bytes; characters from at to end */
};
/* Like dt_tok_match, with st->every; the match is empty. from: at most a character behind the last one. */
int dt_tok_match_runs(const struct dt_tok_step *st, pcre2_match_data *md, pcre2_match_context *mc,
		      const char *s, size_t n, size_t from, struct dt_tok_run *r, size_t *ret_at,
		      struct dt_err *err);

/*
 * tok_cut.c: the patterns of well-known tokenizers by enum dt_bpe_pattern, as tokenizer.json has them. In
 * each of them a word ends between a letter and a space that a letter follows, whatever stands before and
 * behind: dt_tokenizer_cut relies on that.
 */
extern const char *const dt_tok_pattern[];
/* Sets sp.apart, when the vocabulary is known. */
void dt_tok_find_apart(struct dt_tokenizer *t);

/* tok_sp.c. One entry of a vocabulary with byte_fallback. */
int dt_sp_add_token(struct dt_tokenizer *t, const char *key, int32_t id, struct dt_err *err);
/* Replaces SentencePiece's marks (U+2581) by blanks, in place; returns the new length. */
size_t dt_sp_unmark(char *s, size_t n);
/*
 * What an added token prints: the decoder sees marks and bytes in it too. Special ones keep their marks:
 * they are found by their text. malloc'd; -ENOMEM.
 */
int dt_sp_spell(const char *text, size_t n, bool special, char **ret, size_t *ret_n);
int dt_sp_read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
int dt_sp_read_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
int dt_sp_read_decoder(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
/* Whether a normalizer changes the text, so that normalised added tokens are looked for in dt_sp_form. */
bool dt_sp_normalizes(const struct dt_tokenizer *t);
/* The text as its tokens spell it: blanks for SentencePiece's marks, with the prefix. malloc'd; -ENOMEM. */
int dt_sp_form(const struct dt_tokenizer *t, const char *s, size_t n, bool first, char **ret, size_t *ret_n);
/* A word's symbols, at most one a byte; their number, or -EINVAL. */
int64_t dt_sp_symbols(const struct dt_tokenizer *t, const char *s, size_t n, int32_t *sym,
		      struct dt_err *err);

/*
 * tok_wp.c. The normalizer, pre_tokenizer and decoder that BERT's tokenizers have; others are refused. What
 * dt_wp_read_model reads is kept from model.vocab, which is in t.
 */
int dt_wp_read_model(struct dt_tokenizer *t, const json_t *model, struct dt_err *err);
int dt_wp_read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
int dt_wp_read_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
int dt_wp_read_decoder(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
/* Spells the pieces as they are decoded, after all tokens were read. */
int dt_wp_spell(struct dt_tokenizer *t, struct dt_err *err);
void dt_wp_release(struct dt_wp *w);
/* The ids of a word, at most n; their number. */
int64_t dt_wp_ids(const struct dt_wp *w, const char *s, size_t n, int32_t *ids);

/*
 * tok_ug.c. What Unigram has around SentencePiece's Metaspace. names: {"token": id}, which the caller drops.
 */
int dt_ug_read_model(struct dt_tokenizer *t, const json_t *model, json_t **ret_names, struct dt_err *err);
int dt_ug_read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
int dt_ug_read_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err);
void dt_ug_release(struct dt_ug *u);
/* The ids of a word, at most n; their number, or -EINVAL or -ENOMEM. */
int64_t dt_ug_ids(const struct dt_tokenizer *t, const char *s, size_t n, int32_t *ids, struct dt_err *err);

/* tok_charsmap.c. Reads a map from base64. */
int dt_ug_read_charsmap(struct dt_ug *u, const char *base64, struct dt_err *err);
/* s must be valid. *ret is malloc'd, or NULL when the text is in that form already. */
int dt_ug_normalize(const struct dt_ug *u, const char *s, size_t n, char **ret, size_t *ret_n,
		    struct dt_err *err);

/* tok_bert.c. s must be valid. *ret is malloc'd, or NULL when the text is in that form already. */
int dt_bert_normalize(const struct dt_wp *w, const char *s, size_t n, char **ret, size_t *ret_n,
		      struct dt_err *err);
/* The end of the word at or after *at, which becomes its start; punctuation is a word. 0: there is none. */
size_t dt_bert_word(const char *s, size_t n, size_t *at);

/* tok_normal.c. Length of the longest valid UTF-8 prefix. */
size_t dt_utf8_valid(const char *s, size_t n);
/* Bytes of the character at s (valid UTF-8, n > 0) and its code point. */
size_t dt_utf8_next(const char *s, size_t n, uint32_t *ret_cp);
/* s must be valid. *ret is malloc'd, or NULL when s is in that form already. */
int dt_tok_normalize(enum dt_normal form, const char *s, size_t n, char **ret, size_t *ret_n,
		     struct dt_err *err);

/* tokenizer.c. In t's form before the pre-tokenizer, but for SentencePiece's; *ret as above. */
int dt_tok_form(const struct dt_tokenizer *t, const char *s, size_t n, char **ret, size_t *ret_n,
		struct dt_err *err);

/* The byte-level alphabet of GPT-2: byte <-> printable character. */
uint32_t dt_byte_char(uint8_t byte);
/* Bytes of a string in the alphabet into out (at most n); -1 when a character is not in it. */
int64_t dt_byte_decode(const char *s, size_t n, char *out);

/*
 * tok_encode.c: the words that the pre-tokenizer finds, in place of their ids. Text of special tokens is
 * left out.
 */
typedef int (*dt_word_fn)(void *ctx, const char *s, size_t n, struct dt_err *err);
int dt_tok_words(const struct dt_tokenizer *t, const char *text, size_t n, dt_word_fn fn, void *ctx,
		 struct dt_err *err);

/* bpe_write.c: the text of a tokenizer.json. token[i] is the bytes of id i; merges are pairs of ids. */
struct dt_tok_write {
	const struct dt_bytemap *tokens;
	const int32_t (*merge)[2];
	size_t merges;
	const char *const *special; /* NULL-terminated; take the ids behind the tokens */
	const char *pattern;	    /* of a Split before ByteLevel; NULL: ByteLevel's own (GPT-2) */
};
int dt_tok_write_json(const struct dt_tok_write *w, char **ret, size_t *ret_n, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
