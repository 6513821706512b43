/*
 * Parses manifest.json. It is not trusted: lengths, products, offsets, names and overlaps are all checked
 * here, once, so that other files of the folder may trust a struct ck_manifest.
 */
#include "ckpt/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMEL_MAX ((int64_t)1 << 56)
#define TRAILER	  ",\n\"manifest_crc32\":\"%08x\"}\n"

json_t *ck_dims_json(int n, const int64_t *v)
{
	json_t *a = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(a, json_integer(v[i]));
	return a;
}

int ck_manifest_text(const json_t *root, char **ret, size_t *ret_n, struct dt_err *err)
{
	char *body = json_dumps(root, JSON_COMPACT), *text;
	size_t n;

	if (!body)
		return dt_err_sys(err, -ENOMEM, "cannot write the manifest");
	n = strlen(body) - 1; /* without the closing brace */
	text = malloc(n + 64);
	if (text) {
		memcpy(text, body, n);
		*ret_n = n + (size_t)snprintf(text + n, 64, TRAILER, (unsigned)dt_crc32(0, body, n));
		*ret = text;
	}
	free(body);
	return text ? 0 : dt_err_sys(err, -ENOMEM, "cannot write the manifest");
}

static int check_trailer(const char *text, size_t n, struct dt_err *err)
{
	char want[64];
	size_t k = (size_t)snprintf(want, sizeof(want), TRAILER, 0);

	if (n > k) {
		snprintf(want, sizeof(want), TRAILER, (unsigned)dt_crc32(0, text, n - k));
		if (!memcmp(text + n - k, want, k))
			return 0;
	}
	dt_err_set(err, -EBADMSG, "the manifest does not match its own checksum");
	dt_err_hint(err, "it was damaged or changed after it was written");
	return -EBADMSG;
}

/* A JSON array of 1 to DT_CKPT_MAX_DIM whole numbers in [min, 2^56]; returns how many. */
static int get_dims(const json_t *o, const char *key, int64_t min, int64_t *v, struct dt_err *err)
{
	const json_t *a = json_object_get(o, key), *x;
	size_t n = json_array_size(a);

	if (!json_is_array(a) || n < 1 || n > DT_CKPT_MAX_DIM)
		return dt_err_set(err, -EBADMSG, "'%s' is not a list of 1 to %d numbers", key,
				  DT_CKPT_MAX_DIM);
	for (size_t i = 0; i < n; i++) {
		x = json_array_get(a, i);
		if (!json_is_integer(x) || json_integer_value(x) < min || json_integer_value(x) > NUMEL_MAX)
			return dt_err_set(err, -EBADMSG, "'%s' has an element that is not a size", key);
		v[i] = json_integer_value(x);
	}
	return (int)n;
}

static int get_crc(const json_t *o, uint32_t *ret, struct dt_err *err)
{
	const char *s = json_string_value(json_object_get(o, "crc32"));
	char *end;

	if (!s || strlen(s) != 8 || strspn(s, "0123456789abcdef") != 8)
		return dt_err_set(err, -EBADMSG, "'crc32' is not eight hexadecimal digits");
	*ret = (uint32_t)strtoul(s, &end, 16);
	return 0;
}

/* A plain file name: cannot leave the folder, and has no control characters. */
static bool good_file_name(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n >= sizeof(((struct ck_file *)0)->name) || s[0] == '.')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._-", *s))
			return false;
	return true;
}

/* KIND/NAME; '@' is reserved for the names of pieces. */
static bool good_tensor_name(const char *s)
{
	const char *slash = strchr(s, '/');

	if (!slash || slash == s || !slash[1] || strchr(slash + 1, '/') ||
	    strlen(s) >= sizeof(((struct ck_tensor *)0)->name) || s[0] == '.' || slash[1] == '.')
		return false;
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 127 || strchr("@\"\\", *s))
			return false;
	return true;
}

static int parse_files(const json_t *a, struct ck_manifest *m, struct dt_err *err)
{
	size_t n = json_array_size(a);
	int64_t bytes;
	const char *name;
	int rc;

	if (!json_is_array(a) || n > 1 << 24)
		return dt_err_set(err, -EBADMSG, "'files' is not a list");
	m->file = calloc(n + 1, sizeof(*m->file));
	if (!m->file)
		return dt_err_sys(err, -ENOMEM, "cannot read the manifest");
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(a, i);

		name = NULL;
		bytes = 0;
		rc = dt_json_str(o, "name", true, &name, err);
		if (rc >= 0)
			rc = dt_json_int(o, "bytes", true, 0, INT64_MAX, &bytes, err);
		if (rc < 0)
			return -EBADMSG;
		if (!good_file_name(name))
			return dt_err_set(err, -EBADMSG, "'%.60s' is not the name of a shard", name);
		strcpy(m->file[i].name, name);
		m->file[i].bytes = (uint64_t)bytes;
		m->nfile++;
	}
	return 0;
}

static int parse_piece(const json_t *o, const struct ck_manifest *m, int ti, struct ck_piece *p,
		       struct dt_err *err)
{
	const struct ck_tensor *t = &m->tensor[ti];
	const json_t *filter = json_object_get(o, "filter");
	int64_t file = 0, at = 0, stored = 0;
	int rc;

	p->tensor = ti;
	if (dt_json_int(o, "file", true, 0, m->nfile - 1, &file, err) < 0 || get_crc(o, &p->crc, err) < 0)
		return -EBADMSG;
	p->file = (int)file;
	if (get_dims(o, "offset", 0, p->off, err) < 0 || (rc = get_dims(o, "shape", 1, p->shape, err)) < 0)
		return -EBADMSG;
	if (rc != t->ndim || (int)json_array_size(json_object_get(o, "offset")) != rc)
		return dt_err_set(err, -EBADMSG, "a piece has a wrong number of dimensions");
	for (int d = 0; d < t->ndim; d++)
		if (p->off[d] > t->shape[d] || p->shape[d] > t->shape[d] - p->off[d])
			return dt_err_set(err, -EBADMSG, "a piece extends beyond the tensor");
	p->bytes = (uint64_t)ck_numel(t->ndim, p->shape) * (uint64_t)dt_dtype_size(t->dtype);
	if (dt_json_int(o, "at", true, 0, INT64_MAX, &at, err) < 0)
		return -EBADMSG;
	p->at = (uint64_t)at;
	p->packed = filter;
	if (filter) {
		if (!json_is_string(filter) || strcmp(json_string_value(filter), "shuffle+deflate"))
			return dt_err_set(err, -EBADMSG,
					  "a piece uses a filter that this version does not support");
		if (dt_json_int(o, "stored_bytes", true, 1, INT64_MAX, &stored, err) < 0)
			return -EBADMSG;
		/* deflate shrinks at most 1032 times: a larger size is false and would waste memory */
		if (p->bytes / 1032 > (uint64_t)stored)
			return dt_err_set(err, -EBADMSG, "a piece is larger than its stored bytes can hold");
		p->stored = (uint64_t)stored;
	} else {
		p->stored = p->bytes;
	}
	if (p->at > m->file[file].bytes || p->stored > m->file[file].bytes - p->at)
		return dt_err_set(err, -EBADMSG, "a piece extends beyond the end of '%s'",
				  m->file[file].name);
	return 0;
}

static int parse_tensor(const json_t *o, struct ck_manifest *m, struct dt_err *err)
{
	struct ck_tensor *t = &m->tensor[m->ntensor];
	const char *name = NULL, *dtype = NULL;
	const json_t *pieces = json_object_get(o, "pieces");
	int64_t numel = 1;
	int n, rc;

	if (dt_json_str(o, "name", true, &name, err) < 0)
		return -EBADMSG;
	if (!good_tensor_name(name))
		return dt_err_set(err, -EBADMSG, "a tensor has an invalid name");
	strcpy(t->name, name);
	if (dt_json_str(o, "dtype", true, &dtype, err) < 0 ||
	    (n = get_dims(o, "shape", 0, t->shape, err)) < 0)
		goto bad;
	rc = dt_dtype_parse(dtype);
	if (rc < 0) {
		dt_err_set(err, -EBADMSG, "unknown dtype '%.20s'", dtype);
		goto bad;
	}
	t->dtype = (enum dt_dtype)rc;
	t->ndim = n;
	for (int d = 0; d < n; d++)
		if (__builtin_mul_overflow(numel, t->shape[d], &numel) || numel > NUMEL_MAX) {
			dt_err_set(err, -EBADMSG, "its size is invalid");
			goto bad;
		}
	t->bytes = (uint64_t)numel * (uint64_t)dt_dtype_size(t->dtype);
	t->first = m->npiece;
	t->npieces = (int)json_array_size(pieces);
	if (!json_is_array(pieces)) {
		dt_err_set(err, -EBADMSG, "'pieces' is not a list");
		goto bad;
	}
	for (int i = 0; i < t->npieces; i++)
		if (parse_piece(json_array_get(pieces, (size_t)i), m, m->ntensor, &m->piece[t->first + i],
				err) < 0)
			goto bad;
	m->npiece += t->npieces;
	m->ntensor++;
	return ck_check_cover(t, m->piece + t->first, err);
bad:
	dt_err_prefix(err, "tensor '%s'", t->name);
	return -EBADMSG;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct ck_tensor *const *)a)->name,
		      (*(const struct ck_tensor *const *)b)->name);
}

static int by_place(const void *a, const void *b)
{
	const struct ck_piece *x = *(const struct ck_piece *const *)a,
			      *y = *(const struct ck_piece *const *)b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* Two pieces must not share bytes of a file. */
static int check_places(const struct ck_manifest *m, struct dt_err *err)
{
	const struct ck_piece **v = malloc(((size_t)m->npiece + 1) * sizeof(*v));
	int n = 0, rc = 0;

	if (!v)
		return dt_err_sys(err, -ENOMEM, "cannot read the manifest");
	for (int i = 0; i < m->npiece; i++)
		v[n++] = &m->piece[i];
	qsort(v, (size_t)n, sizeof(*v), by_place);
	for (int i = 0; i + 1 < n && rc == 0; i++)
		if (v[i]->file == v[i + 1]->file && v[i]->at + v[i]->stored > v[i + 1]->at)
			rc = dt_err_set(err, -EBADMSG, "tensors '%s' and '%s' share bytes of '%s'",
					m->tensor[v[i]->tensor].name, m->tensor[v[i + 1]->tensor].name,
					m->file[v[i]->file].name);
	free(v);
	return rc;
}

static int parse_tensors(const json_t *a, struct ck_manifest *m, struct dt_err *err)
{
	size_t n = json_array_size(a), np = 0, i;
	const json_t *o;
	int rc;

	if (!json_is_array(a))
		return dt_err_set(err, -EBADMSG, "'tensors' is not a list");
	json_array_foreach((json_t *)a, i, o) np += json_array_size(json_object_get(o, "pieces"));
	if (n > 1 << 28 || np > 1 << 28)
		return dt_err_set(err, -EBADMSG, "it lists too many pieces");
	m->tensor = calloc(n + 1, sizeof(*m->tensor));
	m->by_name = calloc(n + 1, sizeof(*m->by_name));
	m->piece = calloc(np + 1, sizeof(*m->piece));
	if (!m->tensor || !m->piece || !m->by_name)
		return dt_err_sys(err, -ENOMEM, "cannot read the manifest");
	json_array_foreach((json_t *)a, i, o)
	{
		rc = parse_tensor(o, m, err);
		if (rc < 0)
			return rc;
		m->by_name[i] = &m->tensor[i];
	}
	qsort(m->by_name, n, sizeof(*m->by_name), by_name);
	for (i = 1; i < n; i++)
		if (!strcmp(m->by_name[i - 1]->name, m->by_name[i]->name))
			return dt_err_set(err, -EBADMSG, "tensor '%s' is listed twice", m->by_name[i]->name);
	return check_places(m, err);
}

static int parse_root(json_t *root, const char *text, size_t n, struct ck_manifest *m, struct dt_err *err)
{
	const char *format = json_string_value(json_object_get(root, "format"));
	int64_t version = 0;
	int rc;

	if (!format || strcmp(format, "dt-checkpoint"))
		return dt_err_set(err, -EBADMSG, "this is not the manifest of a dt-checkpoint");
	if (dt_json_int(root, "version", true, 1, INT64_MAX, &version, err) < 0)
		return -EBADMSG;
	if (version > CK_VERSION) {
		dt_err_set(err, -ENOTSUP,
			   "format version %lld is newer than %d, the newest this program knows",
			   (long long)version, CK_VERSION);
		dt_err_hint(err, "use a newer dt");
		return -ENOTSUP;
	}
	rc = check_trailer(text, n, err);
	if (rc < 0)
		return rc;
	if (dt_json_int(root, "step", true, 0, INT64_MAX, &m->step, err) < 0)
		return -EBADMSG;
	rc = parse_files(json_object_get(root, "files"), m, err);
	if (rc == 0)
		rc = parse_tensors(json_object_get(root, "tensors"), m, err);
	return rc;
}

int ck_manifest_parse(const char *text, size_t n, const char *name, struct ck_manifest *ret,
		      struct dt_err *err)
{
	struct ck_manifest m = {0};
	json_t *root;
	int rc;

	if (dt_json_parse(text, n, name, &root, err) < 0) {
		if (err)
			err->code = -EBADMSG;
		return -EBADMSG;
	}
	rc = parse_root(root, text, n, &m, err);
	if (rc < 0) {
		dt_err_prefix(err, "'%s'", name);
		if (err)
			err->code = rc;
		json_decref(root);
		ck_manifest_release(&m);
		return rc;
	}
	json_object_del(root, "files");
	json_object_del(root, "tensors");
	json_object_del(root, "manifest_crc32");
	m.meta = root;
	*ret = m;
	return 0;
}

void ck_manifest_release(struct ck_manifest *m)
{
	json_decref(m->meta);
	free(m->file);
	free(m->tensor);
	free(m->piece);
	free(m->by_name);
	memset(m, 0, sizeof(*m));
}
/* SPDX-License-Identifier: Apache-2.0 */
