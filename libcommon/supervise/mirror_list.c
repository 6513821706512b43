/* The list of a mirror's checkpoints, and which of them may be removed. */
#include "supervise/mirror.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define LIST_FILE "mirrored.json"

int sup_mirror_list_set(struct sup_mirror_list *l, int64_t step, bool whole)
{
	struct sup_copy *grown;

	for (int i = 0; i < l->n; i++)
		if (l->v[i].step == step) {
			l->v[i].whole = whole;
			return 0;
		}
	grown = realloc(l->v, ((size_t)l->n + 1) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	l->v = grown;
	l->v[l->n++] = (struct sup_copy){step, whole};
	return 0;
}

void sup_mirror_list_drop(struct sup_mirror_list *l, int64_t step)
{
	for (int i = 0; i < l->n; i++)
		if (l->v[i].step == step)
			l->v[i--] = l->v[--l->n];
}

static bool stays(const struct sup_mirror_list *l, const struct sup_copy *c, int64_t newest, int64_t keep,
		  int64_t every)
{
	int64_t newer = 0;

	if (c->step >= newest)
		return true;
	for (int i = 0; i < l->n; i++)
		newer += l->v[i].whole && l->v[i].step > c->step && l->v[i].step <= newest;
	return c->whole && (newer < keep || (every > 0 && c->step % every == 0));
}

int64_t sup_mirror_list_old(const struct sup_mirror_list *l, int64_t newest, int64_t keep, int64_t every,
			    int64_t after)
{
	int64_t found = -1;

	for (int i = 0; i < l->n; i++)
		if (l->v[i].step > after && (found < 0 || l->v[i].step < found) &&
		    !stays(l, &l->v[i], newest, keep, every))
			found = l->v[i].step;
	return found;
}

int sup_mirror_list_write(const struct sup_mirror_list *l, const char *folder)
{
	char path[PATH_MAX];
	json_t *whole = json_array(), *torn = json_array(), *o;
	struct dt_tmpfile f;
	int rc;

	for (int i = 0; i < l->n; i++)
		json_array_append_new(l->v[i].whole ? whole : torn, json_integer(l->v[i].step));
	o = json_pack("{s:o, s:o}", "whole", whole, "torn", torn);
	rc = !o										  ? -ENOMEM
	     : snprintf(path, sizeof(path), "%s/" LIST_FILE, folder) >= (int)sizeof(path) ? -ENAMETOOLONG
											  : 0;
	if (rc == 0)
		rc = dt_tmpfile_open(&f, path, NULL);
	if (rc == 0 && (rc = dt_json_write_line(f.f, o, NULL)) < 0)
		dt_tmpfile_abort(&f);
	else if (rc == 0)
		rc = dt_tmpfile_commit(&f, NULL);
	json_decref(o);
	return rc;
}

static int read_steps(struct sup_mirror_list *l, const json_t *o, const char *key, bool whole,
		      struct dt_err *err)
{
	const json_t *list = json_object_get(o, key), *e;
	size_t i;

	if (!json_is_array(list))
		return dt_err_set(err, -EINVAL, "'%s' is not a list", key);
	json_array_foreach(list, i, e)
	{
		if (!json_is_integer(e) || json_integer_value(e) < 0)
			return dt_err_set(err, -EINVAL, "'%s' has an entry that is not a step number", key);
		if (sup_mirror_list_set(l, json_integer_value(e), whole) < 0)
			return dt_err_sys(err, -ENOMEM, "list of checkpoints in the mirror");
	}
	return 0;
}

int sup_mirror_list_read(struct sup_mirror_list *l, const char *folder, struct dt_err *err)
{
	char path[PATH_MAX];
	json_t *o = NULL;
	int rc;

	l->n = 0;
	if (snprintf(path, sizeof(path), "%s/" LIST_FILE, folder) >= (int)sizeof(path))
		return dt_err_sys(err, -ENAMETOOLONG, "'%s'", folder);
	rc = dt_json_load(path, 16 << 20, &o, err);
	if (rc == -ENOENT)
		return 0;
	if (rc == 0 && (rc = read_steps(l, o, "torn", false, err)) == 0)
		rc = read_steps(l, o, "whole", true, err);
	json_decref(o);
	if (rc < 0)
		l->n = 0;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
