#include "ckpt/tokenizer_file.h"
#include "base/mapped.h"

#include "ckpt/source_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LLMC_TOKENIZER "\xc8\xd7\x34\x01" /* 20240328 */

int src_ckpt_tokenizer(struct dt_source *s, const struct dt_ckpt *c, struct dt_err *err)
{
	const json_t *tok = json_object_get(dt_ckpt_meta(c), "tokenizer");
	const json_t *text = json_object_get(tok, "text"), *chat = json_object_get(tok, "chat_template");

	if (json_is_string(text)) {
		s->tokenizer_n = json_string_length(text);
		s->tokenizer = malloc(s->tokenizer_n + 1);
		if (!s->tokenizer)
			return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
		memcpy(s->tokenizer, json_string_value(text), s->tokenizer_n + 1);
	}
	if (json_is_string(chat))
		s->chat = strdup(json_string_value(chat));
	return src_name_all(s, tok, err);
}

static int of_folder(struct dt_source *s, const char *path, struct dt_err *err)
{
	struct dt_err why = {0};
	struct dt_ckpt *c;
	int rc = src_hf_tokenizer(s, path, err);

	if (rc < 0 || s->tokenizer || s->note[0])
		return rc;
	rc = dt_ckpt_open(path, &c, &why);
	if (rc == 0) {
		rc = src_ckpt_tokenizer(s, c, err);
		dt_ckpt_close(c);
	} else if (rc != -ENOENT) {
		if (err)
			*err = why;
		return rc;
	} else {
		rc = 0;
	}
	return rc < 0 || s->tokenizer ? rc
				      : dt_err_set(err, -ENOENT,
						   "folder '%s' contains no tokenizer: no tokenizer.json, no "
						   "tokenizer.model, no vocab.txt and no checkpoint with one",
						   path);
}

/* other: a source used only to map the file. */
static int of_file(struct dt_source *s, struct dt_source *other, struct dt_err *err)
{
	const uint8_t *p;
	size_t n;
	int rc = src_map(other, s->path, &p, &n, err);

	if (rc < 0)
		return rc;
	if (n >= 4 && !memcmp(p, "GGUF", 4))
		return src_open_gguf(s, false, err);
	if (p[0] == '{' || (n == 4 && !memcmp(p, "byte", 4)))
		return dt_read_file(s->path, SRC_TEXT_MAX, &s->tokenizer, &s->tokenizer_n, err);
	if (n >= 1024 && !memcmp(p, LLMC_TOKENIZER, 4))
		return src_vocab_note(s, "a tokenizer of llm.c can only decode: it has no merges", NULL, 0);
	if (src_is_sentencepiece(p, n))
		return src_sentencepiece(s, p, n, err);
	return src_llama2c_tokenizer(s, s->path, err);
}

int src_tokenizer_from(struct dt_source *s, const char *path, struct dt_err *err)
{
	struct dt_source in = {.path = (char *)path}, map = {.path = (char *)path};
	struct stat st;
	bool there = stat(path, &st) == 0;
	int rc;

	if (!there && !strcmp(path, "byte")) {
		in.tokenizer = strdup("byte");
		in.tokenizer_n = 4;
		rc = in.tokenizer ? 0 : dt_err_sys(err, -ENOMEM, "cannot make a tokenizer");
	} else if (there && S_ISDIR(st.st_mode)) {
		rc = of_folder(&in, path, err);
	} else {
		rc = of_file(&in, &map, err);
		if (rc < 0 && !there)
			dt_err_hint(err, "a tokenizer is tokenizer.json, a folder or file that holds one, "
					 "or 'byte'");
	}
	if (rc == 0 && !in.tokenizer)
		rc = dt_err_set(err, -ENOTSUP, "%s",
				in.note[0] ? in.note : "the file contains no tokenizer vocabulary");
	if (rc == 0) {
		free(s->tokenizer);
		s->tokenizer = in.tokenizer;
		s->tokenizer_n = in.tokenizer_n;
		s->note[0] = '\0';
		in.tokenizer = NULL;
		for (int i = 0; i < 2; i++) {
			free(s->named[i]);
			s->named[i] = in.named[i];
			in.named[i] = NULL;
		}
		if (in.chat) {
			free(s->chat);
			s->chat = in.chat;
			in.chat = NULL;
		}
	}
	for (int i = 0; i < in.nmap; i++)
		dt_mapped_drop(in.map[i].p, in.map[i].n);
	for (int i = 0; i < map.nmap; i++)
		dt_mapped_drop(map.map[i].p, map.map[i].n);
	free(in.map);
	free(map.map);
	free(in.tokenizer);
	free(in.chat);
	free(in.named[0]);
	free(in.named[1]);
	return rc;
}

int dt_tokenizer_file_read(const char *spec, char **ret, size_t *ret_n, char **ret_chat, struct dt_err *err)
{
	struct dt_source s = {.path = (char *)spec};
	int rc = src_tokenizer_from(&s, spec, err);

	free(s.named[0]);
	free(s.named[1]);
	if (rc < 0 || !ret_chat)
		free(s.chat);
	else
		*ret_chat = s.chat;
	if (rc < 0)
		return rc;
	*ret = s.tokenizer;
	*ret_n = s.tokenizer_n;
	return 0;
}

int dt_tokenizer_file_text(const char *spec, char **ret, size_t *ret_n, struct dt_err *err)
{
	return dt_tokenizer_file_read(spec, ret, ret_n, NULL, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
