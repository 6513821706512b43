/* Opens a checkpoint; access to its metadata. */
#include "ckpt/internal.h"

#include "base/step_name.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct dt_ckpt *ckpt_new(const char *dir, struct ck_manifest *m)
{
	struct dt_ckpt *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->path = strdup(dir);
	c->fd = malloc(2 * ((size_t)m->nfile + 1) * sizeof(*c->fd));
	if (!c->path || !c->fd) {
		free(c->path);
		free(c->fd);
		free(c);
		return NULL;
	}
	for (int i = 0; i < 2 * m->nfile; i++)
		c->fd[i] = -1;
	c->m = *m;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

int ck_open_dir(const char *dir, struct dt_ckpt **ret, struct dt_err *err)
{
	struct ck_manifest m;
	int rc = ck_load(dir, &m, err);

	if (rc < 0)
		return rc;
	*ret = ckpt_new(dir, &m);
	if (!*ret) {
		ck_manifest_release(&m);
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", dir);
	}
	return 0;
}

/* Opens ROOT/NAME if all its files are there. */
static int open_complete(const char *root, const char *name, struct dt_ckpt **ret, struct dt_err *err)
{
	char dir[CK_PATH];
	struct dt_ckpt *c;
	int rc;

	if ((size_t)snprintf(dir, sizeof(dir), "%s/%s", root, name) >= sizeof(dir))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", root);
	rc = ck_open_dir(dir, &c, err);
	if (rc < 0)
		return rc;
	rc = ck_check_files(dir, &c->m, err);
	if (rc < 0)
		dt_ckpt_close(c);
	else
		*ret = c;
	return rc;
}

/* `latest` may only name a folder beside it. */
static int read_latest(const char *root, char *name, size_t n, struct dt_err *err)
{
	char path[CK_PATH];
	ssize_t k;

	ck_join(path, root, "latest");
	k = readlink(path, name, n - 1);
	if (k < 0)
		return dt_err_sys(err, -errno, "cannot follow '%s'", path);
	name[k] = '\0';
	if (dt_step_of(name) < 0)
		return dt_err_set(err, -EBADMSG, "'%s' does not name a step folder", path);
	return 0;
}

int64_t ck_latest(const char *root)
{
	char name[64];

	return read_latest(root, name, sizeof(name), NULL) < 0 ? -1 : dt_step_of(name);
}

static int open_newest(const char *root, const struct dt_err *why, struct dt_ckpt **ret, struct dt_err *err)
{
	int64_t *step = NULL;
	int n = ck_list_steps(root, &step, err), rc = n < 0 ? n : -ENOENT;
	char name[DT_STEP_NAME];

	for (int i = 0; i < n && rc < 0; i++) {
		dt_step_name(name, step[i]);
		rc = open_complete(root, name, ret, NULL);
	}
	free(step);
	if (rc == 0) {
		if (asprintf(&(*ret)->note, "using %s: %s", name, why->msg) < 0)
			(*ret)->note = NULL;
		return 0;
	}
	if (n == 0)
		return dt_err_set(err, -ENOENT,
				  "'%s' is not a checkpoint: no manifest.json and no step folder", root);
	if (n > 0) {
		if (err)
			*err = *why;
		dt_err_hint(err, "none of the %d step folders in '%s' is complete", n, root);
		return why->code;
	}
	return rc;
}

int dt_ckpt_open(const char *path, struct dt_ckpt **ret, struct dt_err *err)
{
	char probe[CK_PATH], name[64];
	struct dt_err why = {0};
	struct stat st;
	int rc;

	if ((size_t)snprintf(probe, sizeof(probe), "%s/manifest.json", path) >= sizeof(probe))
		return dt_err_sys(err, -ENAMETOOLONG, "cannot open '%s'", path);
	if (stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (!S_ISDIR(st.st_mode))
		return dt_err_set(err, -ENOTDIR, "'%s' is not a folder", path);
	if (access(probe, F_OK) == 0)
		return ck_open_dir(path, ret, err);
	rc = read_latest(path, name, sizeof(name), &why);
	if (rc == 0)
		rc = open_complete(path, name, ret, &why);
	return rc == 0 ? 0 : open_newest(path, &why, ret, err);
}

void dt_ckpt_close(struct dt_ckpt *c)
{
	if (!c)
		return;
	for (int i = 0; i < 2 * c->m.nfile; i++)
		if (c->fd[i] >= 0)
			close(c->fd[i]);
	while (c->nbounce)
		free(c->bounce[--c->nbounce]);
	ck_manifest_release(&c->m);
	pthread_mutex_destroy(&c->lock);
	free(c->fd);
	free(c->path);
	free(c->note);
	free(c);
}

const char *dt_ckpt_path(const struct dt_ckpt *c)
{
	return c->path;
}

const char *dt_ckpt_note(const struct dt_ckpt *c)
{
	return c->note;
}

int64_t dt_ckpt_step(const struct dt_ckpt *c)
{
	return c->m.step;
}

const json_t *dt_ckpt_meta(const struct dt_ckpt *c)
{
	return c->m.meta;
}

int dt_ckpt_ntensors(const struct dt_ckpt *c)
{
	return c->m.ntensor;
}

void dt_ckpt_tensor(const struct dt_ckpt *c, int i, struct dt_ckpt_tensor *ret)
{
	const struct ck_tensor *t = &c->m.tensor[i];

	*ret = (struct dt_ckpt_tensor){.name = t->name,
				       .dtype = t->dtype,
				       .ndim = t->ndim,
				       .npieces = t->npieces,
				       .bytes = t->bytes};
	memcpy(ret->shape, t->shape, sizeof(ret->shape));
}

int dt_ckpt_find(const struct dt_ckpt *c, const char *name)
{
	int lo = 0, hi = c->m.ntensor;

	while (lo < hi) {
		int mid = lo + (hi - lo) / 2, cmp = strcmp(name, c->m.by_name[mid]->name);

		if (cmp == 0)
			return (int)(c->m.by_name[mid] - c->m.tensor);
		if (cmp < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return -1;
}

void dt_ckpt_piece(const struct dt_ckpt *c, int i, int k, struct dt_ckpt_piece *ret)
{
	const struct ck_piece *p = &c->m.piece[c->m.tensor[i].first + k];

	*ret = (struct dt_ckpt_piece){.file = c->m.file[p->file].name, .crc32 = p->crc, .packed = p->packed};
	memcpy(ret->off, p->off, sizeof(ret->off));
	memcpy(ret->shape, p->shape, sizeof(ret->shape));
}
/* SPDX-License-Identifier: Apache-2.0 */
