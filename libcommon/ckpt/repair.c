/*
 * Repairs a checkpoint from a replica: another copy of the same elements, in any layout. A shard's bytes
 * depend only on its pieces and their order, so rewriting it puts every piece where the manifest says. That
 * is checked, and the manifest stays as it is.
 */
#include "ckpt/internal.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct repair {
	struct dt_ckpt *c, *replica;
	int *mine; /* pieces of the file, in file order */
	void *buf;
	size_t buf_bytes;
	int from_replica;
};

static const struct ck_piece *piece_of(const struct repair *r, const struct dt_piece *p)
{
	int i = dt_ckpt_find(r->c, p->name);
	const struct ck_tensor *t = &r->c->m.tensor[i];

	for (int k = 0; k < t->npieces; k++)
		if (!memcmp(r->c->m.piece[t->first + k].off, p->off, sizeof(p->off)))
			return &r->c->m.piece[t->first + k];
	return NULL;
}

/* The elements of a piece: its own if intact, else the replica's if the checksum agrees. */
static int fill(void *arg, const struct dt_piece *p, const void **ret, struct dt_err *err)
{
	struct repair *r = arg;
	const struct ck_piece *want = piece_of(r, p);
	size_t bytes = (size_t)ck_numel(p->ndim, p->shape) * (size_t)dt_dtype_size(p->dtype);
	int i, rc;

	if (!want || want->bytes != bytes)
		return dt_err_set(err, -ENOTSUP, "'%s' is cut in a way this version does not write", p->name);
	if (bytes > r->buf_bytes) {
		free(r->buf);
		r->buf = malloc(bytes);
		r->buf_bytes = r->buf ? bytes : 0;
		if (!r->buf)
			return dt_err_sys(err, -ENOMEM, "cannot read '%s'", p->name);
	}
	*ret = r->buf;
	if (dt_ckpt_read(r->c, dt_ckpt_find(r->c, p->name), p->off, p->shape, p->dtype, r->buf, NULL) == 0)
		return 0;
	i = dt_ckpt_find(r->replica, p->name);
	if (i < 0 || r->replica->m.tensor[i].dtype != p->dtype || r->replica->m.tensor[i].ndim != p->ndim ||
	    memcmp(r->replica->m.tensor[i].shape, p->global, (size_t)p->ndim * sizeof(*p->global)))
		return dt_err_set(err, -EBADMSG, "'%s' has no tensor '%s' of the same type and shape",
				  r->replica->path, p->name);
	rc = dt_ckpt_read(r->replica, i, p->off, p->shape, p->dtype, r->buf, err);
	if (rc == 0 && dt_crc32(0, r->buf, bytes) != want->crc)
		rc = dt_err_set(err, -EBADMSG, "'%s' has other elements of '%s' than this checkpoint",
				r->replica->path, p->name);
	r->from_replica++;
	return rc;
}

static int by_place(const void *a, const void *b, void *arg)
{
	const struct ck_piece *piece = arg, *x = &piece[*(const int *)a], *y = &piece[*(const int *)b];

	return x->at < y->at ? -1 : x->at > y->at;
}

/* Every piece must have been written as the manifest says. */
static int check_list(const struct repair *r, int file, const json_t *list, struct dt_err *err)
{
	const json_t *e;
	size_t i;

	json_array_foreach(list, i, e)
	{
		const struct ck_piece *want = &r->c->m.piece[r->mine[i]];
		char crc[16];

		snprintf(crc, sizeof(crc), "%08x", want->crc);
		if (json_integer_value(json_object_get(e, "at")) != (json_int_t)want->at ||
		    (want->packed &&
		     json_integer_value(json_object_get(e, "stored_bytes")) != (json_int_t)want->stored) ||
		    !json_object_get(e, "filter") != !want->packed ||
		    strcmp(json_string_value(json_object_get(e, "crc32")), crc))
			return dt_err_set(err, -ENOTSUP,
					  "'%s' cannot be rewritten identically: another version of dt or "
					  "zlib wrote it",
					  r->c->m.file[file].name);
	}
	return 0;
}

static int rewrite_shard(struct repair *r, int file, struct dt_err *err)
{
	const struct ck_manifest *m = &r->c->m;
	struct dt_piece *p = calloc((size_t)m->npiece + 1, sizeof(*p));
	char tmp[CK_PATH], made[CK_PATH], path[CK_PATH];
	json_t *list = NULL;
	bool packed = false;
	int n = 0, rank = 0, rc = 0;

	r->mine = malloc(((size_t)m->npiece + 1) * sizeof(*r->mine));
	if (!p || !r->mine || sscanf(m->file[file].name, "shard-%d.h5", &rank) != 1)
		rc = dt_err_set(err, -ENOTSUP, "'%s' does not have the name of a shard written by dt",
				m->file[file].name);
	for (int k = 0; k < m->npiece && rc == 0; k++)
		if (m->piece[k].file == file) {
			packed |= m->piece[k].packed;
			r->mine[n++] = k;
		}
	if (rc == 0)
		qsort_r(r->mine, (size_t)n, sizeof(*r->mine), by_place, m->piece);
	for (int i = 0; i < n && rc == 0; i++) {
		const struct ck_piece *k = &m->piece[r->mine[i]];
		const struct ck_tensor *t = &m->tensor[k->tensor];

		p[i] = (struct dt_piece){.dtype = t->dtype, .ndim = t->ndim};
		strcpy(p[i].name, t->name);
		memcpy(p[i].global, t->shape, sizeof(t->shape));
		memcpy(p[i].off, k->off, sizeof(k->off));
		memcpy(p[i].shape, k->shape, sizeof(k->shape));
	}
	snprintf(tmp, sizeof(tmp), "%s/repair.tmp", r->c->path);
	if (rc == 0)
		rc = dt_remove_tree(tmp, err);
	if (rc == 0)
		rc = dt_mkdir_p(tmp, err);
	if (rc == 0)
		rc = dt_ckpt_write_shard_from(tmp, rank, p, n, packed, fill, r, &list, err);
	if (rc == 0)
		rc = check_list(r, file, list, err);
	snprintf(path, sizeof(path), "%s/%s", r->c->path, m->file[file].name);
	snprintf(made, sizeof(made), "%s/repair.tmp/%s", r->c->path, m->file[file].name);
	if (rc == 0 && rename(made, path) < 0)
		rc = dt_err_sys(err, -errno, "cannot replace '%s'", path);
	dt_remove_tree(tmp, NULL);
	if (rc == 0)
		rc = dt_fsync_dir(r->c->path, err);
	json_decref(list);
	free(r->mine);
	free(p);
	return rc;
}

struct said {
	struct repair *r;
	bool *broken; /* by file */
	bool index;
};

/* A finding of verify starts with the name of its file. */
static void on_finding(void *arg, const char *text)
{
	struct said *s = arg;

	s->index |= strstr(text, "index.h5") != NULL;
	for (int i = 0; i < s->r->c->m.nfile; i++)
		if (strstr(text, s->r->c->m.file[i].name))
			s->broken[i] = true;
}

int dt_ckpt_repair(const char *path, const char *replica, void (*report)(void *arg, const char *text),
		   void *arg, struct dt_err *err)
{
	struct repair r = {0};
	struct said said = {.r = &r};
	char text[CK_PATH];
	int fixed = 0, n, rc = ck_open_dir(path, &r.c, err);

	if (rc == 0)
		rc = dt_ckpt_open(replica, &r.replica, err);
	if (rc == 0) {
		said.broken = calloc((size_t)r.c->m.nfile + 1, sizeof(*said.broken));
		n = said.broken ? dt_ckpt_verify(path, 2, on_finding, &said, NULL, err)
				: dt_err_sys(err, -ENOMEM, "cannot repair '%s'", path);
		rc = n < 0 ? n : 0;
	}
	dt_h5_quiet();
	for (int i = 0; rc == 0 && i < r.c->m.nfile; i++) {
		if (!said.broken[i])
			continue;
		r.from_replica = 0;
		rc = rewrite_shard(&r, i, err);
		if (rc < 0)
			break;
		fixed++;
		snprintf(text, sizeof(text), "%s/%s: rewritten, %d pieces from %s", path, r.c->m.file[i].name,
			 r.from_replica, r.replica->path);
		if (report)
			report(arg, text);
	}
	if (rc == 0 && said.index) {
		snprintf(text, sizeof(text), "%s/index.h5", path);
		unlink(text);
		rc = ck_index_write(path, &r.c->m, err);
		if (rc == 0)
			rc = dt_fsync_dir(path, err);
		if (rc == 0) {
			fixed++;
			snprintf(text, sizeof(text), "%s/index.h5: rewritten", path);
			if (report)
				report(arg, text);
		}
	}
	dt_ckpt_close(r.c);
	dt_ckpt_close(r.replica);
	free(said.broken);
	free(r.buf);
	return rc < 0 ? rc : fixed;
}
/* SPDX-License-Identifier: Apache-2.0 */
