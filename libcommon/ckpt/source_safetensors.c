/* Hugging Face's format: a folder of config.json, one or several safetensors files, and a tokenizer. */
#include "ckpt/source_internal.h"

#include "model/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int join(char *buf, const char *folder, const char *name, struct dt_err *err)
{
	if (snprintf(buf, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
		return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", folder);
	return 0;
}

static const char *bare_name(const char *name)
{
	/* The longest first: the text part of a multimodal model has two prefixes. */
	static const char *const prefixes[] = {"language_model.model.",
					       "model.language_model.",
					       "model.text_model.",
					       "model.",
					       "transformer.",
					       "gpt_neox.",
					       "backbone.",
					       "bert.",
					       "roberta."};

	if (!strcmp(name, "embed_out.weight")) /* GPT-NeoX's */
		return "lm_head.weight";
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return name + strlen(prefixes[i]);
	return name;
}

/* Weights and biases of old files' LayerNorms have the names of TensorFlow's. */
static void rename_norm(char *name)
{
	static const char *const words[2][2] = {{".LayerNorm.gamma", "weight"}, {".LayerNorm.beta", "bias"}};

	for (int i = 0; i < 2; i++) {
		const size_t n = strlen(name), k = strlen(words[i][0]);

		if (n >= k && !strcmp(name + n - k, words[i][0]))
			strcpy(strrchr(name, '.') + 1, words[i][1]);
	}
}

/* Adds the tensors of one file. map: the index, whose tensors for this file must all be there; or NULL. */
static int add_file(struct dt_source *s, const char *path, const char *file, const json_t *map,
		    struct dt_err *err)
{
	struct dt_safetensors st;
	const uint8_t *p;
	size_t n, found = 0, want = 0;
	const char *key;
	json_t *v;
	int rc = src_map(s, path, &p, &n, err);

	if (rc < 0)
		return rc;
	rc = src_refuse_pickle(p, n, path, err);
	if (rc == 0)
		rc = dt_safetensors_parse(p, n, path, &st, err);
	if (rc < 0)
		return rc;
	for (int i = 0; i < st.n && rc == 0; i++) {
		const struct dt_safetensor *t = &st.t[i];
		const char *in = json_string_value(json_object_get(map, t->name));
		struct src_stored d = {.format_known = t->format >= 0 && t->ndim <= 4,
				       .format = (enum dt_format)(t->format < 0 ? 0 : t->format),
				       .ndim = t->ndim,
				       .data = p + t->at};

		if (map && (!in || strcmp(in, file)))
			rc = dt_err_set(err, -EBADMSG,
					"'%s' has tensor '%.100s', which the index does not list", path,
					t->name);
		found++;
		for (int k = 0; k < t->ndim; k++)
			d.shape[k] = t->shape[k];
		if ((size_t)snprintf(d.name, sizeof(d.name), "%s", bare_name(t->name)) >= sizeof(d.name) - 1)
			rc = dt_err_set(err, -EBADMSG, "'%s': a tensor's name is too long", path);
		rename_norm(d.name);
		snprintf(d.type, sizeof(d.type), "%s", t->dtype);
		if (rc == 0 && src_add(s, &d) < 0)
			rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	}
	json_object_foreach((json_t *)map, key, v) want += !strcmp(json_string_value(v), file);
	if (rc == 0 && map && found != want)
		rc = dt_err_set(err, -EBADMSG, "'%s' has %zu tensors, but the index lists %zu", path, found,
				want);
	dt_safetensors_release(&st);
	return rc;
}

/* Adds the files of an index, each once. */
static int add_index(struct dt_source *s, const char *folder, const char *path, struct dt_err *err)
{
	json_t *root = NULL, *seen = json_object(), *v;
	const json_t *map;
	char file[PATH_MAX];
	const char *key;
	int rc = dt_json_load(path, SRC_TEXT_MAX, &root, err);

	map = json_object_get(root, "weight_map");
	if (rc == 0 && !json_is_object(map))
		rc = dt_err_set(err, -EBADMSG, "'%s' has no 'weight_map'", path);
	json_object_foreach((json_t *)map, key, v)
	{
		const char *name = json_string_value(v);

		if (rc == 0 && (!name || !*name || name[0] == '.' || strchr(name, '/')))
			rc = dt_err_set(err, -EBADMSG, "'%s': tensor '%.100s' is in no file of the folder",
					path, key);
	}
	json_object_foreach((json_t *)map, key, v)
	{
		const char *name = json_string_value(v);

		if (rc < 0 || json_object_get(seen, name))
			continue;
		json_object_set_new(seen, name, json_true());
		rc = join(file, folder, name, err);
		if (rc == 0)
			rc = add_file(s, file, name, map, err);
	}
	json_decref(seen);
	json_decref(root);
	return rc;
}

static bool ends_in(const char *name, const char *end)
{
	const size_t n = strlen(name), k = strlen(end);

	return n > k && !strcmp(name + n - k, end);
}

/* A folder without safetensors: says if the file named `bin` is a pickle. */
static int no_file(struct dt_source *s, const char *folder, const char *bin, struct dt_err *err)
{
	char path[PATH_MAX];
	const uint8_t *p;
	size_t n;

	if (*bin && join(path, folder, bin, NULL) == 0 && src_map(s, path, &p, &n, NULL) == 0 &&
	    src_refuse_pickle(p, n, path, err) < 0)
		return -ENOTSUP;
	return dt_err_set(err, -ENOENT, "folder '%s' holds no .safetensors file", folder);
}

/* Finds the only *.safetensors of a folder without model.safetensors. */
static int only_file(struct dt_source *s, const char *folder, char *path, struct dt_err *err)
{
	DIR *d = opendir(folder);
	char found[256] = "", bin[256] = "";
	int n = 0;

	if (!d)
		return dt_err_sys(err, -errno, "cannot open '%s'", folder);
	for (struct dirent *e; (e = readdir(d));) {
		if (ends_in(e->d_name, ".safetensors")) {
			n++;
			snprintf(found, sizeof(found), "%s", e->d_name);
		} else if (ends_in(e->d_name, ".bin") || ends_in(e->d_name, ".pt") ||
			   ends_in(e->d_name, ".pth")) {
			snprintf(bin, sizeof(bin), "%s", e->d_name);
		}
	}
	closedir(d);
	if (n == 0)
		return no_file(s, folder, bin, err);
	if (n > 1)
		return dt_err_set(err, -ENOENT, "folder '%s' holds several .safetensors files and no index",
				  folder);
	return join(path, folder, found, err);
}

static int read_text(const char *folder, const char *name, char **ret, size_t *ret_n, struct dt_err *err)
{
	char path[PATH_MAX];
	int rc = join(path, folder, name, err);

	if (rc < 0 || access(path, F_OK) < 0)
		return rc;
	rc = dt_read_file(path, SRC_TEXT_MAX, ret, ret_n, err);
	return rc < 0 ? rc : 1;
}

/* *ret NULL: there is no such file. */
static int read_json(const char *folder, const char *name, json_t **ret, struct dt_err *err)
{
	char *text = NULL, path[PATH_MAX];
	size_t n;
	int rc = read_text(folder, name, &text, &n, err);

	*ret = NULL;
	if (rc <= 0)
		return rc;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	rc = dt_json_parse(text, n, path, ret, err);
	free(text);
	return rc;
}

/*
 * tokenizer_config.json: one chat template, or several by name, of which "default" is used; and token names,
 * which older folders have in special_tokens_map.json.
 */
static int tokenizer_config(struct dt_source *s, const char *folder, struct dt_err *err)
{
	json_t *root, *map = NULL, *t, *v;
	size_t i;
	int rc = read_json(folder, "tokenizer_config.json", &root, err);

	if (rc == 0)
		rc = src_name_all(s, root, err);
	if (rc == 0 && !s->named[DT_NAMED_BOS] && !s->named[DT_NAMED_EOS])
		rc = read_json(folder, "special_tokens_map.json", &map, err);
	if (rc == 0)
		rc = src_name_all(s, map, err);
	t = json_object_get(root, "chat_template");
	json_array_foreach(t, i, v)
	{
		const char *name = json_string_value(json_object_get(v, "name"));

		if (name && !strcmp(name, "default")) {
			t = json_object_get(v, "template");
			break;
		}
	}
	if (json_is_string(t))
		s->chat = strdup(json_string_value(t));
	json_decref(root);
	json_decref(map);
	return rc;
}

/* chat_template.json, where older folders of models that read images have the template. */
static int chat_json(struct dt_source *s, const char *folder, struct dt_err *err)
{
	json_t *root;
	int rc = read_json(folder, "chat_template.json", &root, err);
	const char *text = json_string_value(json_object_get(root, "chat_template"));

	if (rc == 0 && text) {
		free(s->chat);
		s->chat = strdup(text);
		rc = s->chat ? 0 : dt_err_sys(err, -ENOMEM, "cannot read '%s'", folder);
	}
	json_decref(root);
	return rc;
}

/* How the tower takes images. */
static int read_vision(struct dt_source *s, const char *folder, struct dt_err *err)
{
	json_t *images = NULL, *processor = NULL;
	int rc = read_json(folder, "preprocessor_config.json", &images, err);

	if (rc == 0)
		rc = read_json(folder, "processor_config.json", &processor, err);
	if (rc == 0)
		rc = dt_vision_from_hf(images, processor, &s->config, &s->vision, err);
	json_decref(images);
	json_decref(processor);
	return rc;
}

/* BERT's vocab.txt, for which tokenizer_config.json says how texts are normalised. */
static int vocab_txt(struct dt_source *s, const char *folder, struct dt_err *err)
{
	json_t *config = NULL;
	char *text = NULL;
	size_t n;
	int rc = read_text(folder, "vocab.txt", &text, &n, err);

	if (rc == 1)
		rc = read_json(folder, "tokenizer_config.json", &config, err);
	if (rc >= 0 && text)
		rc = src_vocab_txt(s, text, n, config, err);
	json_decref(config);
	free(text);
	return rc;
}

int src_hf_tokenizer(struct dt_source *s, const char *folder, struct dt_err *err)
{
	char *chat = NULL, *model, path[PATH_MAX];
	size_t n;
	int rc = read_text(folder, "tokenizer.json", &s->tokenizer, &s->tokenizer_n, err);

	if (rc == 0 && join(path, folder, "tokenizer.model", NULL) == 0 && access(path, F_OK) == 0 &&
	    (rc = dt_read_file(path, SRC_TEXT_MAX, &model, &n, err)) == 0) {
		rc = src_is_sentencepiece((const uint8_t *)model, n)
			     ? src_sentencepiece(s, (const uint8_t *)model, n, err)
			     : src_vocab_note(s, "its tokenizer.model is not a SentencePiece model", NULL, 0);
		free(model);
	}
	if (rc == 0 && !s->tokenizer && !s->note[0])
		rc = vocab_txt(s, folder, err);
	if (rc >= 0)
		rc = tokenizer_config(s, folder, err);
	if (rc >= 0)
		rc = chat_json(s, folder, err);
	if (rc >= 0)
		rc = read_text(folder, "chat_template.jinja", &chat, &n, err);
	if (rc == 1) {
		free(s->chat);
		s->chat = chat;
	}
	return rc < 0 ? rc : 0;
}

/* Which states an embedding is of, as sentence-transformers' folders say. */
static int read_pooling(struct dt_source *s, const char *folder, struct dt_err *err)
{
	static const char prefix[] = "pooling_mode_";
	const char *mode;
	json_t *o, *v;
	const char *key;
	int rc = read_json(folder, "1_Pooling/config.json", &o, err);

	if (rc < 0 || !o)
		return rc;
	mode = json_string_value(json_object_get(o, "pooling_mode"));
	json_object_foreach(o, key, v)
	{
		if (!mode && json_is_true(v) && !strncmp(key, prefix, sizeof(prefix) - 1))
			mode = key + sizeof(prefix) - 1;
	}
	s->config.pooling = !mode			? DT_POOLING_OPEN
			    : !strncmp(mode, "mean", 4) ? DT_POOLING_MEAN
			    : !strncmp(mode, "cls", 3)	? DT_POOLING_CLS
							: DT_POOLING_OPEN;
	if (mode && s->config.pooling == DT_POOLING_OPEN)
		rc = dt_err_set(err, -ENOTSUP, "'%s/1_Pooling/config.json': pooling '%.40s' is not supported",
				folder, mode);
	json_decref(o);
	return rc;
}

int src_open_safetensors(struct dt_source *s, struct dt_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX], config[PATH_MAX];
	json_t *o = NULL;
	struct stat st;
	char *slash;
	bool index;
	size_t n;
	int rc;

	if (stat(s->path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", s->path);
	if (snprintf(folder, sizeof(folder), "%s", s->path) >= PATH_MAX)
		return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", s->path);
	strcpy(path, folder);
	if (!S_ISDIR(st.st_mode)) {
		slash = strrchr(folder, '/');
		if (slash)
			*slash = '\0';
		else
			strcpy(folder, ".");
		if (!*folder)
			strcpy(folder, "/");
	} else if ((rc = join(path, folder, "model.safetensors.index.json", err)) < 0) {
		return rc;
	} else if (access(path, F_OK) < 0) {
		join(path, folder, "model.safetensors", NULL);
		if (access(path, F_OK) < 0 && (rc = only_file(s, folder, path, err)) < 0)
			return rc;
	}
	n = strlen(path);
	index = n > 11 && !strcmp(path + n - 11, ".index.json");
	rc = index ? add_index(s, folder, path, err) : add_file(s, path, path, NULL, err);
	if (rc == 0)
		rc = join(config, folder, "config.json", err);
	if (rc == 0)
		rc = index || access(config, F_OK) == 0 ? dt_config_load(config, &s->config, err)
							: dt_config_from_weights(path, &s->config, err);
	if (rc == 0 && s->tower)
		rc = dt_config_tower(&s->config, &s->config, err);
	if (rc == 0 && access(config, F_OK) == 0)
		rc = dt_json_load(config, SRC_TEXT_MAX, &o, err);
	if (rc == 0)
		rc = src_coded_find(s, o, err);
	if (rc == 0)
		rc = src_resolve(s, DT_NAMES_HF, err);
	if (rc == 0 && !s->tower)
		rc = !dt_config_is_image(&s->config)	? src_hf_tokenizer(s, folder, err)
		     : json_object_get(o, "model_type") ? src_images_hf(s, o, folder, err)
							: src_images(s, o, err);
	if (rc == 0 && s->config.tower.hidden)
		rc = read_vision(s, folder, err);
	if (rc == 0 && s->config.encoder && !s->tower)
		rc = read_pooling(s, folder, err);
	if (rc == 0 && dt_config_has_labels(&s->config))
		rc = src_labels_hf(s, o, err);
	json_decref(o);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
