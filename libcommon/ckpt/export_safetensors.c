/* Writes a folder that Hugging Face's libraries read: config.json, weights, tokenizer. */
#include "ckpt/export_internal.h"

#include "base/tmpfile.h"
#include "model/family.h"
#include "model/safetensors.h"
#include "model/same.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL_NAME (DT_NAMES_MAX + 16)

static int write_text(const char *folder, const char *name, const char *text, size_t n, struct dt_err *err)
{
	char path[PATH_MAX];
	struct dt_tmpfile f;
	int rc;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	rc = dt_tmpfile_open(&f, path, err);
	if (rc < 0)
		return rc;
	fwrite(text, 1, n, f.f);
	return dt_tmpfile_commit(&f, err);
}

static int write_json(const char *folder, const char *name, const json_t *o, struct dt_err *err)
{
	char *text = json_dumps(o, JSON_INDENT(2));
	int rc = text ? write_text(folder, name, text, strlen(text), err)
		      : dt_err_sys(err, -ENOMEM, "cannot write '%s'", name);

	free(text);
	return rc;
}

/* The name in the file: with the family's prefix, except for the head. */
static void full_name(const struct exporter *e, const struct exp_tensor *t, char name[FULL_NAME])
{
	const struct dt_config *c = dt_source_config(e->s);
	const struct dt_family *f = dt_family_find(c->family);
	const bool head = !strcmp(t->name, "lm_head.weight"),
		   prefix = f->has_prefix ? f->has_prefix(c, t->name) : !head;

	snprintf(name, FULL_NAME, "%s%s", prefix ? f->prefix : "", head && f->head ? f->head : t->name);
}

/* Adds one tensor to the head: bytes [*at, *at + bytes). */
static void add_head(json_t *head, const char *name, const char *type, const int64_t *dims, int ndim,
		     uint64_t bytes, uint64_t *at)
{
	json_t *shape = json_array();

	for (int d = 0; d < ndim; d++)
		json_array_append_new(shape, json_integer(dims[d]));
	json_object_set_new(head, name,
			    json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets",
				      (json_int_t)*at, (json_int_t)(*at + bytes)));
	*at += bytes;
}

/* Adds tensor t to the head, or the tensors it is packed as. */
static void head_of(const struct exporter *e, const struct exp_tensor *t, json_t *head, uint64_t *at)
{
	int64_t dims[4];
	struct exp_part part[EXP_PARTS];
	char name[FULL_NAME], end[FULL_NAME];
	int ndim = exp_dims(e, t, dims);

	full_name(e, t, name);
	if (!t->packed)
		add_head(head, name, dt_safetensors_dtype((int)t->format), dims, ndim, t->bytes, at);
	for (int i = 0, n = t->packed ? exp_parts(e, t, part) : 0; i < n; i++) {
		exp_part_name(name, &part[i], end, sizeof(end));
		add_head(head, end, part[i].type, part[i].dim, part[i].ndim, part[i].bytes, at);
	}
}

/* Writes tensors [first, last) to one file. */
static int write_file(struct exporter *e, const char *path, int first, int last, struct dt_err *err)
{
	json_t *head = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
	struct dt_tmpfile f;
	uint64_t at = 0, n;
	size_t pad;
	char *text;
	int rc;

	for (int i = first; i < last; i++)
		head_of(e, &e->t[i], head, &at);
	text = json_dumps(head, JSON_COMPACT);
	json_decref(head);
	if (!text)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	e->file = path;
	rc = dt_tmpfile_open(&f, path, err);
	if (rc == 0) {
		pad = (8 - strlen(text) % 8) % 8; /* pads with blanks to align the data */
		n = strlen(text) + pad;
		fwrite(&n, 8, 1, f.f);
		fprintf(f.f, "%s%*s", text, (int)pad, "");
		for (int i = first; i < last && rc == 0; i++)
			rc = exp_write(e, &e->t[i], f.f, err);
		if (rc == 0)
			rc = dt_tmpfile_commit(&f, err);
		else
			dt_tmpfile_abort(&f);
	}
	free(text);
	return rc;
}

/* Adds the names of tensor t to the index. */
static void map_tensor(const struct exporter *e, const struct exp_tensor *t, json_t *map, const char *file)
{
	char full[FULL_NAME], end[FULL_NAME];
	struct exp_part part[EXP_PARTS];

	full_name(e, t, full);
	if (!t->packed)
		json_object_set_new(map, full, json_string(file));
	for (int i = 0, n = t->packed ? exp_parts(e, t, part) : 0; i < n; i++) {
		exp_part_name(full, &part[i], end, sizeof(end));
		json_object_set_new(map, end, json_string(file));
	}
}

/* Writes one file, or several with an index. */
static int write_weights(struct exporter *e, const char *folder, struct dt_err *err)
{
	int end[4096], files = 0, rc = 0;
	uint64_t in_file = 0;
	char path[PATH_MAX], name[64];
	json_t *index, *map = json_object();

	for (int i = 0; i < e->n; i++) {
		if (e->x->max_file_bytes && in_file && in_file + e->t[i].bytes > e->x->max_file_bytes) {
			if (files == 4095) {
				json_decref(map);
				return dt_err_set(err, -EINVAL,
						  "--max-file-size would result in more than 4095 files");
			}
			end[files++] = i;
			in_file = 0;
		}
		in_file += e->t[i].bytes;
	}
	end[files++] = e->n;
	for (int k = 0; k < files && rc == 0; k++) {
		int first = k ? end[k - 1] : 0;

		if (files > 1)
			snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", k + 1, files);
		else
			snprintf(name, sizeof(name), "model.safetensors");
		for (int i = first; i < end[k]; i++)
			map_tensor(e, &e->t[i], map, name);
		snprintf(path, sizeof(path), "%s/%s", folder, name);
		rc = write_file(e, path, first, end[k], err);
	}
	index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)e->total, "weight_map",
			  map);
	if (rc == 0 && files > 1)
		rc = write_json(folder, "model.safetensors.index.json", index, err);
	json_decref(index);
	json_decref(map);
	return rc;
}

/* Sets a special token: the tokenizer's name or, if it names none, that of the configuration's id. */
static void set_token(const struct dt_source *s, json_t *conf, int which, const json_t *tok, int64_t id)
{
	const bool names = dt_source_named(s, DT_NAMED_BOS) || dt_source_named(s, DT_NAMED_EOS);
	const char *text = names ? dt_source_named(s, which) : exp_token(tok, id);

	if (text)
		json_object_set_new(conf, dt_source_named_keys[which], json_string(text));
}

static int write_tokenizer(struct exporter *e, const char *folder, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const char *chat = dt_source_chat_template(e->s), *text;
	json_t *conf, *tok = NULL;
	size_t n;
	int rc = 0;

	text = dt_source_tokenizer(e->s, &n);
	if (text && *text == '{') {
		rc = write_text(folder, "tokenizer.json", text, n, err);
		if (rc == 0)
			rc = dt_json_parse(text, n, "tokenizer", &tok, err);
	}
	if (rc < 0 || (!chat && !tok))
		return rc;
	conf = json_pack("{s:s, s:b, s:I}", "tokenizer_class", "PreTrainedTokenizerFast",
			 "clean_up_tokenization_spaces", 0, "model_max_length", (json_int_t)c->max_seq);
	set_token(e->s, conf, DT_NAMED_BOS, tok, c->bos);
	set_token(e->s, conf, DT_NAMED_EOS, tok, c->eos);
	if (chat)
		json_object_set_new(conf, "chat_template", json_string(chat));
	rc = write_json(folder, "tokenizer_config.json", conf, err);
	json_decref(conf);
	json_decref(tok);
	return rc;
}

/* Class names as transformers has them. */
static void put_classes(const json_t *classes, json_t *config)
{
	json_t *ids = json_object(), *labels = json_object(), *name;
	char key[24];
	size_t i;

	json_array_foreach(classes, i, name)
	{
		snprintf(key, sizeof(key), "%zu", i);
		json_object_set(labels, key, name);
		json_object_set_new(ids, json_string_value(name), json_integer((json_int_t)i));
	}
	if (classes && json_object_size(ids) == json_array_size(classes)) {
		json_object_set(config, "id2label", labels);
		json_object_set(config, "label2id", ids);
	}
	json_decref(labels);
	json_decref(ids);
}

/* Writes class names as transformers has them, and preprocessor_config.json if pixels have a known mean. */
static int write_preprocessor(struct exporter *e, const char *folder, json_t *config, struct dt_err *err)
{
	const json_t *images = dt_source_images(e->s), *classes = json_object_get(images, "classes");
	json_t *mean = json_object_get(images, "mean"), *o;
	const json_int_t side = (json_int_t)dt_source_config(e->s)->image_size;
	int rc;

	put_classes(classes, config);
	if (!mean)
		return 0;
	o = json_pack("{s:s, s:b, s:{s:I, s:I}, s:b, s:f, s:b, s:O, s:O}", "image_processor_type",
		      "ViTImageProcessor", "do_resize", 1, "size", "height", side, "width", side,
		      "do_rescale", 1, "rescale_factor", 1.0 / 255, "do_normalize", 1, "image_mean", mean,
		      "image_std", json_object_get(images, "deviation"));
	rc = write_json(folder, "preprocessor_config.json", o, err);
	json_decref(o);
	return rc;
}

/* Writes the image fields where timm looks for them, or as a manifest has them. */
static void put_images(const json_t *images, json_t *config)
{
	json_t *mean = json_object_get(images, "mean"), *deviation = json_object_get(images, "deviation"),
	       *classes = json_object_get(images, "classes"),
	       *timm = json_object_get(config, "pretrained_cfg");

	if (classes)
		json_object_set(config, timm ? "label_names" : "classes", classes);
	if (mean && timm) {
		json_object_set(timm, "mean", mean);
		json_object_set(timm, "std", deviation);
	} else if (mean) {
		json_object_set_new(config, "pixels",
				    json_pack("{s:O, s:O}", "mean", mean, "deviation", deviation));
	}
}

/* The configuration, checked: a reader must get the same model from it. */
static int make_config(struct exporter *e, json_t **ret, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const char *dtype = e->t[0].format == DT_FMT_F32   ? "float32"
			    : e->t[0].format == DT_FMT_F16 ? "float16"
							   : "bfloat16",
		   *what = "";
	struct dt_config back, without = *c;
	json_t *o = NULL;
	int rc = dt_config_to_hf(c, dtype, &o, err);

	if (rc < 0)
		return rc;
	rc = dt_config_from_any(o, e->s->path, &back, err);
	without.mtp_layers = 0; /* readers see modules by their tensors */
	if (rc < 0 || !dt_config_same(&without, &back, &what)) {
		json_decref(o);
		return dt_err_set(err, -ENOTSUP,
				  "a config.json of family '%s' cannot represent this model%s%s", c->family,
				  *what ? ": " : "", what);
	}
	if (!json_object_get(o, "model_type"))
		put_images(dt_source_images(e->s), o);
	if (e->x->packing)
		json_object_set_new(o, "quantization_config", exp_packed_config(e));
	*ret = o;
	return 0;
}

static int fill(void *arg, const char *folder, struct dt_err *err)
{
	struct exporter *e = arg;
	json_t *config;
	int rc = make_config(e, &config, err);

	if (rc < 0)
		return rc;
	if (dt_config_is_image(dt_source_config(e->s)) && json_object_get(config, "model_type"))
		rc = write_preprocessor(e, folder, config, err);
	if (dt_config_has_labels(dt_source_config(e->s)))
		put_classes(json_object_get(dt_source_images(e->s), "classes"), config);
	if (rc == 0)
		rc = write_json(folder, "config.json", config, err);
	if (rc == 0)
		rc = write_tokenizer(e, folder, err);
	if (rc == 0)
		rc = write_weights(e, folder, err);
	json_decref(config);
	return rc;
}

int exp_safetensors(struct exporter *e, const char *dst, struct dt_err *err)
{
	int rc = exp_list(e, false, err), packed = 0;

	for (int i = 0; i < e->n; i++)
		packed += e->t[i].packed;
	if (rc == 0 && e->x->packing && !packed)
		return dt_err_set(err, -ENOTSUP,
				  "no matrix of '%s' can be packed: blocks of %s do not fit its rows, or it "
				  "stores matrices transposed",
				  e->s->path, dt_format_info((enum dt_format)e->x->format)->name);
	return rc == 0 ? dt_tmpfolder_write(dst, fill, e, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
