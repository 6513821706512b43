/* Turns a folder of shards into a checkpoint: manifest, index, one rename, `latest`. */
#include "ckpt/internal.h"

#include "base/step_name.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct merge {
	const char *dir;
	json_t *files, *tensors;     /* as in the manifest */
	json_t *file_no, *tensor_no; /* name -> index */
};

static int file_index(struct merge *g, const char *name, json_int_t *ret, struct dt_err *err)
{
	const json_t *known = json_object_get(g->file_no, name);
	char path[CK_PATH];
	struct stat st;

	if (known) {
		*ret = json_integer_value(known);
		return 0;
	}
	ck_join(path, g->dir, name);
	if (stat(path, &st) < 0) {
		int rc = dt_err_sys(err, -errno, "cannot find the shard '%s'", path);

		dt_err_hint(err, "all ranks must write to one shared file system");
		return rc;
	}
	*ret = (json_int_t)json_array_size(g->files);
	json_array_append_new(g->files,
			      json_pack("{s:s, s:I}", "name", name, "bytes", (json_int_t)st.st_size));
	json_object_set_new(g->file_no, name, json_integer(*ret));
	return 0;
}

/* The tensor of a list's entry, created if new. -EINVAL if its type or shape differs. */
static int tensor_of(struct merge *g, const json_t *e, const char *name, json_t **ret, struct dt_err *err)
{
	const json_t *known = json_object_get(g->tensor_no, name);
	json_t *dtype = json_object_get(e, "dtype"), *shape = json_object_get(e, "global"), *t;

	if (known) {
		t = json_array_get(g->tensors, (size_t)json_integer_value(known));
		if (!json_equal(json_object_get(t, "dtype"), dtype) ||
		    !json_equal(json_object_get(t, "shape"), shape))
			return dt_err_set(err, -EINVAL, "two ranks disagree about the type or shape of '%s'",
					  name);
	} else {
		t = json_pack("{s:s, s:O, s:O, s:[]}", "name", name, "dtype", dtype, "shape", shape,
			      "pieces");
		if (!t)
			return dt_err_sys(err, -ENOMEM, "cannot commit '%s'", g->dir);
		json_object_set_new(g->tensor_no, name,
				    json_integer((json_int_t)json_array_size(g->tensors)));
		json_array_append_new(g->tensors, t);
	}
	*ret = t;
	return 0;
}

static int merge_entry(struct merge *g, const json_t *e, struct dt_err *err)
{
	static const char *const keys[] = {"offset", "shape", "at", "filter", "stored_bytes", "crc32"};
	const char *name = json_string_value(json_object_get(e, "name"));
	const char *file = json_string_value(json_object_get(e, "file"));
	json_t *t = NULL, *p;
	json_int_t no = 0;
	int rc;

	if (!name)
		return dt_err_set(err, -EINVAL, "a list of pieces holds one without a name");
	rc = tensor_of(g, e, name, &t, err);
	if (rc < 0 || !file)
		return rc;
	rc = file_index(g, file, &no, err);
	if (rc < 0)
		return rc;
	p = json_pack("{s:I}", "file", no);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (json_object_get(e, keys[i]))
			json_object_set(p, keys[i], json_object_get(e, keys[i]));
	return json_array_append_new(json_object_get(t, "pieces"), p) < 0
		       ? dt_err_sys(err, -ENOMEM, "cannot commit '%s'", g->dir)
		       : 0;
}

/* Sorts parameters first, then states; layers.2 before layers.10. Does not depend on the layout. */
static int by_natural_name(const void *a, const void *b)
{
	const char *x = json_string_value(json_object_get(*(json_t *const *)a, "name"));
	const char *y = json_string_value(json_object_get(*(json_t *const *)b, "name"));
	bool mx = !strncmp(x, "model/", 6), my = !strncmp(y, "model/", 6);

	return mx != my ? my - mx : strverscmp(x, y);
}

static json_t *sorted(const json_t *tensors)
{
	size_t n = json_array_size(tensors);
	json_t **v = malloc((n + 1) * sizeof(*v)), *ret = json_array();

	for (size_t i = 0; v && i < n; i++)
		v[i] = json_array_get(tensors, i);
	if (v)
		qsort(v, n, sizeof(json_t *), by_natural_name);
	for (size_t i = 0; v && i < n; i++)
		json_array_append(ret, v[i]);
	if (!v) {
		json_decref(ret);
		ret = NULL;
	}
	free(v);
	return ret;
}

static int build_root(const char *dir, int64_t step, const json_t *meta, json_t *const *lists, int nlists,
		      json_t **ret, struct dt_err *err)
{
	static const char *const ours[] = {"format", "version", "files", "tensors", "manifest_crc32"};
	struct merge g = {dir, json_array(), json_array(), json_object(), json_object()};
	json_t *root = json_pack("{s:s, s:i}", "format", "dt-checkpoint", "version", CK_VERSION), *e;
	const json_t *said = json_object_get(meta, "step");
	int rc = 0;

	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours) && rc == 0; i++)
		if (json_object_get(meta, ours[i]))
			rc = dt_err_set(err, -EINVAL, "the key '%s' belongs to the manifest itself", ours[i]);
	if (rc == 0 && said && json_integer_value(said) != step)
		rc = dt_err_set(err, -EINVAL, "the metadata is of another step than %lld", (long long)step);
	for (int i = 0; i < nlists && rc == 0; i++) {
		size_t k;

		json_array_foreach(lists[i], k, e) if (rc == 0) rc = merge_entry(&g, e, err);
	}
	if (rc == 0 && (json_object_update(root, (json_t *)meta) < 0 ||
			json_object_set_new(root, "step", json_integer(step)) < 0 ||
			json_object_set(root, "files", g.files) < 0 ||
			json_object_set_new(root, "tensors", sorted(g.tensors)) < 0))
		rc = dt_err_sys(err, -ENOMEM, "cannot commit '%s'", dir);
	json_decref(g.files);
	json_decref(g.tensors);
	json_decref(g.file_no);
	json_decref(g.tensor_no);
	if (rc < 0)
		json_decref(root);
	else
		*ret = root;
	return rc;
}

static int write_manifest(const char *dir, const char *text, size_t n, struct dt_err *err)
{
	struct dt_tmpfile f;
	char path[CK_PATH];
	int rc;

	ck_join(path, dir, "manifest.json");
	rc = dt_tmpfile_open(&f, path, err);
	if (rc < 0)
		return rc;
	if (fwrite(text, 1, n, f.f) != n) {
		rc = dt_err_sys(err, -errno, "cannot write '%s'", path);
		dt_tmpfile_abort(&f);
		return rc;
	}
	return dt_tmpfile_commit(&f, err);
}

/*
 * Renames tmp to dir, in root. An existing checkpoint of the same step is exchanged atomically if the file
 * system can; otherwise it is moved aside first, and a crash in between leaves the next newest checkpoint. It
 * is removed once the new names are on disk.
 */
static int move_into_place(const char *root, const char *tmp, const char *dir, struct dt_err *err)
{
	char aside[CK_PATH + 16];
	const char *old = NULL;
	int rc;

	if (rename(tmp, dir) < 0) {
		if (errno != ENOTEMPTY && errno != EEXIST)
			return dt_err_sys(err, -errno, "cannot rename '%s' to '%s'", tmp, dir);
		if (renameat2(AT_FDCWD, tmp, AT_FDCWD, dir, RENAME_EXCHANGE) == 0) {
			old = tmp;
		} else {
			snprintf(aside, sizeof(aside), "%s.old.tmp", dir);
			if (rename(dir, aside) < 0 || rename(tmp, dir) < 0)
				return dt_err_sys(err, -errno, "cannot replace '%s'", dir);
			old = aside;
		}
	}
	rc = dt_fsync_dir(root, err);
	return rc == 0 && old ? dt_remove_tree(old, err) : rc;
}

static int fill_folder(const char *tmp, int64_t step, const json_t *meta, json_t *const *lists, int nlists,
		       struct dt_err *err)
{
	struct ck_manifest m = {0};
	json_t *root = NULL;
	char *text = NULL, name[CK_PATH];
	size_t n = 0;
	int rc = build_root(tmp, step, meta, lists, nlists, &root, err);

	if (rc == 0)
		rc = ck_manifest_text(root, &text, &n, err);
	/* The new manifest passes the same checks as one that is read. */
	ck_join(name, tmp, "manifest.json");
	if (rc == 0)
		rc = ck_manifest_parse(text, n, name, &m, err);
	if (rc == 0)
		rc = ck_index_write(tmp, &m, err);
	if (rc == 0)
		rc = write_manifest(tmp, text, n, err);
	if (rc == 0)
		rc = dt_fsync_dir(tmp, err);
	ck_manifest_release(&m);
	json_decref(root);
	free(text);
	return rc;
}

int dt_ckpt_commit(const char *root, int64_t step, const json_t *meta, json_t *const *lists, int nlists,
		   int keep, struct dt_err *err)
{
	char name[DT_STEP_NAME], dir[CK_PATH], tmp[CK_PATH + 8], latest[CK_PATH];
	int rc;

	dt_h5_quiet();
	if (err)
		err->code = 0;
	dt_step_name(name, step);
	if ((size_t)snprintf(dir, sizeof(dir), "%s/%s", root, name) >= sizeof(dir))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot commit to '%s'", root);
	snprintf(tmp, sizeof(tmp), "%s.tmp", dir);
	ck_join(latest, root, "latest");
	rc = fill_folder(tmp, step, meta, lists, nlists, err);
	if (rc == 0)
		rc = move_into_place(root, tmp, dir, err);
	if (rc == 0)
		rc = dt_symlink_replace(name, latest, err);
	if (rc == 0 && ck_prune(root, step, keep, err) < 0)
		dt_err_prefix(err, "'%s' is saved, but an older checkpoint could not be deleted", dir);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
