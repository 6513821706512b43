/* Finds a model's configuration. */
#include "base/step_name.h"
#include "base/suggest.h"
#include "model/config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_CONFIG_BYTES   (1u << 20)
#define MAX_MANIFEST_BYTES (1u << 30)

/* Derives a name for messages: the folder of a config.json, or the file's name without extension. */
static void name_after(const char *path, struct dt_config *c)
{
	char copy[PATH_MAX], *base;
	size_t n;

	snprintf(copy, sizeof(copy), "%s", path);
	n = strlen(copy);
	if (n > 12 && !strcmp(copy + n - 12, "/config.json"))
		copy[n -= 12] = '\0';
	while (n > 1 && copy[n - 1] == '/')
		copy[--n] = '\0';
	base = strrchr(copy, '/');
	base = base && base[1] ? base + 1 : copy;
	n = strlen(base);
	if (n > 5 && !strcmp(base + n - 5, ".json"))
		base[n - 5] = '\0';
	snprintf(c->name, sizeof(c->name), "%.63s", strcmp(base, "-") ? base : "standard input");
}

int dt_config_from_any(const json_t *o, const char *path, struct dt_config *ret, struct dt_err *err)
{
	const json_t *model = json_object_get(o, "model");
	struct dt_config c;
	int rc;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "not a JSON object");
	if (json_is_object(model)) {
		rc = dt_config_from_json(model, &c, err);
	} else if (json_object_get(o, "family")) {
		rc = dt_config_from_json(o, &c, err);
	} else {
		rc = dt_config_from_hf(o, &c, err);
		if (rc == 0)
			name_after(path, &c);
	}
	if (rc == 0)
		*ret = c;
	return rc;
}

static int load_file(const char *path, size_t max, struct dt_config *ret, struct dt_err *err)
{
	json_t *o;
	int rc = dt_json_load(path, max, &o, err);

	if (rc < 0)
		return rc;
	rc = dt_config_from_any(o, path, ret, err);
	json_decref(o);
	return rc < 0 ? (dt_err_prefix(err, "'%s'", path), rc) : 0;
}

/* Writes the name of the newest step-N folder with a manifest in a checkpoint root; false: there is none. */
static bool newest_step(const char *root, char *ret, size_t n)
{
	DIR *d = opendir(root);
	struct dirent *e;
	int64_t best = -1, step;
	char path[PATH_MAX];
	struct stat st;

	while (d && (e = readdir(d))) {
		step = dt_step_of(e->d_name);
		if (step <= best)
			continue;
		if (snprintf(path, sizeof(path), "%s/%s/manifest.json", root, e->d_name) >=
			    (int)sizeof(path) ||
		    stat(path, &st) < 0)
			continue;
		best = step;
		snprintf(ret, n, "%s", path);
	}
	if (d)
		closedir(d);
	return best >= 0;
}

/* Loads from a safetensors file: from the config.json beside it, else from its tensors. */
static int load_tensors(const char *path, struct dt_config *ret, struct dt_err *err)
{
	const char *slash = strrchr(path, '/');
	char beside[PATH_MAX];
	struct stat st;

	if (snprintf(beside, sizeof(beside), "%.*sconfig.json", slash ? (int)(slash - path + 1) : 0, path) <
		    (int)sizeof(beside) &&
	    stat(beside, &st) == 0)
		return load_file(beside, MAX_CONFIG_BYTES, ret, err);
	return dt_config_from_weights(path, ret, err);
}

static int load_folder(const char *name, struct dt_config *ret, struct dt_err *err)
{
	static const char *const files[] = {"config.json", "manifest.json", "latest/manifest.json"};
	char path[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", name, files[i]) >= (int)sizeof(path))
			return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", name);
		if (stat(path, &st) == 0)
			return load_file(path, i == 0 ? MAX_CONFIG_BYTES : MAX_MANIFEST_BYTES, ret, err);
	}
	if (newest_step(name, path, sizeof(path)))
		return load_file(path, MAX_MANIFEST_BYTES, ret, err);
	if (snprintf(path, sizeof(path), "%s/model.safetensors", name) < (int)sizeof(path) &&
	    stat(path, &st) == 0)
		return load_tensors(path, ret, err);
	return dt_err_set(err, -ENOENT, "folder '%s' holds neither a config.json nor a checkpoint", name);
}

static int load(const char *name, struct dt_config *ret, struct dt_err *err)
{
	struct dt_suggest near = dt_suggest(name);
	char magic[5] = "", text[128];
	struct stat st;
	FILE *f;
	int rc;

	if (dt_config_find_preset(name, ret) == 0)
		return 0;
	rc = dt_config_perceptron(name, ret, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	if (!strcmp(name, "-"))
		return load_file(name, MAX_MANIFEST_BYTES, ret, err);
	if (stat(name, &st) < 0) {
		if (errno != ENOENT || strchr(name, '/'))
			return dt_err_sys(err, -errno, "cannot open model '%s'", name);
		for (int i = 0; dt_config_preset(i); i++)
			dt_suggest_offer(&near, dt_config_preset(i)->name);
		rc = dt_err_set(err, -ENOENT, "no preset, file or folder is called '%s'%s", name,
				dt_suggest_text(&near, "", text, sizeof(text)));
		dt_err_hint(err, "presets are gpt2-124m, llama-2-7b, llama-3-8b and others; dt-memest --list "
				 "lists them");
		return rc;
	}
	if (S_ISDIR(st.st_mode))
		return load_folder(name, ret, err);
	f = S_ISREG(st.st_mode) ? fopen(name, "re") : NULL; /* what a pipe holds can be read once only */
	if (f) {
		if (fread(magic, 1, 4, f) == 4 && !strcmp(magic, "GGUF")) {
			fclose(f);
			rc = dt_err_set(err, -EINVAL, "'%s' is a GGUF file, not a model description", name);
			dt_err_hint(err, "import it first with dt-shard-ckpt, then name the checkpoint");
			return rc;
		}
		fclose(f);
	}
	if (strlen(name) > 12 && !strcmp(name + strlen(name) - 12, ".safetensors"))
		return load_tensors(name, ret, err);
	return load_file(name, MAX_MANIFEST_BYTES, ret, err);
}

int dt_config_load(const char *name, struct dt_config *ret, struct dt_err *err)
{
	struct dt_config c;
	int rc = load(name, &c, err);

	if (rc < 0)
		return rc;
	c.mtp_layers = 0;
	*ret = c;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
