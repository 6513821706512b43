#include "model/gguf.h"

#include "kernels/quant_formats.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ALIGN (1 << 20)
#define MAX_NEST  4

struct reader {
	const unsigned char *p, *end;
	bool bad;
};

static const unsigned char *take(struct reader *r, uint64_t n)
{
	const unsigned char *p = r->p;

	if (r->bad || n > (uint64_t)(r->end - r->p)) {
		r->bad = true;
		return NULL;
	}
	r->p += n;
	return p;
}

static uint32_t take_u32(struct reader *r)
{
	const unsigned char *p = take(r, 4);
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, 4);
	return v;
}

static uint64_t take_u64(struct reader *r)
{
	const unsigned char *p = take(r, 8);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, 8);
	return v;
}

static void skip_array(struct reader *r, uint32_t type, uint64_t n, int depth)
{
	if (type >= DT_GGUF_TYPE_N || depth > MAX_NEST) {
		r->bad = true;
	} else if (type == DT_GGUF_STRING) {
		for (uint64_t i = 0; i < n && !r->bad; i++)
			take(r, take_u64(r));
	} else if (type == DT_GGUF_ARRAY) {
		for (uint64_t i = 0; i < n && !r->bad; i++) {
			uint32_t inner = take_u32(r);

			skip_array(r, inner, take_u64(r), depth + 1);
		}
	} else if (n > (uint64_t)(r->end - r->p) / (uint64_t)dt_gguf_type_bytes(type)) {
		r->bad = true;
	} else {
		take(r, n * (uint64_t)dt_gguf_type_bytes(type));
	}
}

static void take_kv(struct reader *r, struct dt_gguf_kv *kv)
{
	uint32_t type;

	kv->key_n = (size_t)take_u64(r);
	kv->key = (const char *)take(r, kv->key_n);
	type = take_u32(r);
	kv->array = type == DT_GGUF_ARRAY;
	kv->n = 1;
	if (kv->array) {
		type = take_u32(r);
		kv->n = take_u64(r);
	}
	kv->type = (enum dt_gguf_type)type;
	kv->data = r->p;
	skip_array(r, type, kv->n, 0);
}

static void take_tensor(struct reader *r, struct dt_gguf_tensor *t)
{
	uint64_t n = take_u64(r), dim[4] = {1, 1, 1, 1};
	const unsigned char *name = take(r, n);
	uint32_t ndim;

	if (r->bad || n == 0 || n >= sizeof(t->name) || memchr(name, 0, n)) {
		r->bad = true;
		return;
	}
	memcpy(t->name, name, n);
	ndim = take_u32(r);
	if (ndim < 1 || ndim > 4) {
		r->bad = true;
		return;
	}
	for (uint32_t d = 0; d < ndim; d++)
		dim[d] = take_u64(r);
	t->ndim = (int)ndim;
	for (uint32_t d = 0; d < ndim; d++)
		t->shape[d] = (int64_t)dim[ndim - 1 - d];
	t->type = take_u32(r);
	t->at = take_u64(r);
}

/* Checks a tensor's location: inside the file, aligned, with whole blocks in each row. */
static int place(const struct dt_gguf *g, struct dt_gguf_tensor *t, uint64_t align, struct dt_err *err)
{
	int64_t numel = 1;
	const struct dt_format_info *f;

	for (int d = 0; d < t->ndim; d++)
		if (t->shape[d] < 1 || __builtin_mul_overflow(numel, t->shape[d], &numel) ||
		    numel > (int64_t)1 << 48)
			return dt_err_set(err, -EBADMSG, "tensor '%s' has an impossible shape", t->name);
	t->format = dt_format_of_gguf(t->type);
	if (t->at % align || t->at > g->bytes || g->data_at + t->at > g->bytes)
		return dt_err_set(err, -EBADMSG,
				  "tensor '%s' begins past the end of the file, or not at a multiple of "
				  "the alignment: the file is cut off or damaged",
				  t->name);
	t->at += g->data_at;
	if (t->format < 0)
		return 0;
	f = dt_format_info((enum dt_format)t->format);
	if (t->shape[t->ndim - 1] % f->block)
		return dt_err_set(err, -EBADMSG, "tensor '%s' has rows of %lld, which %s cannot hold",
				  t->name, (long long)t->shape[t->ndim - 1], f->name);
	t->bytes = dt_format_bytes((enum dt_format)t->format, numel);
	if (t->bytes > g->bytes - t->at)
		return dt_err_set(err, -EBADMSG,
				  "tensor '%s' reaches past the end of the file, which is cut off or damaged",
				  t->name);
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct dt_gguf_tensor *x = *(const struct dt_gguf_tensor *const *)a,
				    *y = *(const struct dt_gguf_tensor *const *)b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct dt_gguf_tensor *const *)a)->name,
		      (*(const struct dt_gguf_tensor *const *)b)->name);
}

/* Checks that tensors have different names and do not overlap. */
static int check_apart(const struct dt_gguf *g, struct dt_err *err)
{
	const struct dt_gguf_tensor **v = malloc(((size_t)g->ntensor + 1) * sizeof(*v));
	int rc = 0;

	if (!v)
		return dt_err_sys(err, -ENOMEM, "cannot read the list of tensors");
	for (int i = 0; i < g->ntensor; i++)
		v[i] = &g->tensor[i];
	qsort(v, (size_t)g->ntensor, sizeof(*v), by_place);
	for (int i = 1; i < g->ntensor && rc == 0; i++)
		if (v[i - 1]->at + v[i - 1]->bytes > v[i]->at)
			rc = dt_err_set(err, -EBADMSG, "tensors '%s' and '%s' overlap", v[i - 1]->name,
					v[i]->name);
	qsort(v, (size_t)g->ntensor, sizeof(*v), by_name);
	for (int i = 1; i < g->ntensor && rc == 0; i++)
		if (!strcmp(v[i - 1]->name, v[i]->name))
			rc = dt_err_set(err, -EBADMSG, "tensor '%s' occurs twice", v[i]->name);
	free(v);
	return rc;
}

static int parse_lists(struct dt_gguf *g, struct reader *r, uint64_t ntensor, uint64_t nkv,
		       struct dt_err *err)
{
	int64_t align = 32;
	int rc;

	/* the minimal size of a key and of a tensor entry bounds the allocation */
	if (r->bad || nkv > g->bytes / 13 || ntensor > g->bytes / 33)
		return dt_err_set(err, -EBADMSG,
				  "the file is shorter than its header says: it is cut off or damaged");
	g->kv = calloc((size_t)nkv + 1, sizeof(*g->kv));
	g->tensor = calloc((size_t)ntensor + 1, sizeof(*g->tensor));
	if (!g->kv || !g->tensor)
		return dt_err_sys(err, -ENOMEM, "cannot read its header");
	for (; g->nkv < (int)nkv && !r->bad; g->nkv++)
		take_kv(r, &g->kv[g->nkv]);
	if (r->bad)
		return dt_err_set(err, -EBADMSG, "key number %d is damaged or cut off", g->nkv);
	for (; g->ntensor < (int)ntensor && !r->bad; g->ntensor++)
		take_tensor(r, &g->tensor[g->ntensor]);
	if (r->bad)
		return dt_err_set(err, -EBADMSG, "tensor number %d is damaged or cut off", g->ntensor);
	rc = dt_gguf_int(g, "general.alignment", false, 1, MAX_ALIGN, &align, err);
	if (rc < 0)
		return rc;
	if (align & (align - 1))
		return dt_err_set(err, -EBADMSG, "its alignment is %lld", (long long)align);
	g->data_at = ((uint64_t)(r->p - g->file) + (uint64_t)align - 1) & ~((uint64_t)align - 1);
	for (int i = 0; i < g->ntensor; i++)
		if ((rc = place(g, &g->tensor[i], (uint64_t)align, err)) < 0)
			return rc;
	return check_apart(g, err);
}

int dt_gguf_parse(const void *file, size_t bytes, const char *name, struct dt_gguf *ret, struct dt_err *err)
{
	struct dt_gguf g = {.file = file, .bytes = bytes};
	struct reader r = {file, (const unsigned char *)file + bytes, false};
	const unsigned char *magic = take(&r, 4);
	uint32_t version = take_u32(&r);
	uint64_t ntensor = take_u64(&r), nkv = take_u64(&r);
	int rc;

	if (!magic || memcmp(magic, "GGUF", 4))
		return dt_err_set(err, -EBADMSG, "'%s' is not a GGUF file", name);
	if (version != 2 && version != 3)
		return dt_err_set(err, -ENOTSUP, "'%s': GGUF version %u is not supported; known: 2, 3", name,
				  version);
	rc = parse_lists(&g, &r, ntensor, nkv, err);
	if (rc < 0) {
		dt_gguf_release(&g);
		dt_err_prefix(err, "'%s'", name);
		return rc;
	}
	*ret = g;
	return 0;
}

void dt_gguf_release(struct dt_gguf *g)
{
	free(g->kv);
	free(g->tensor);
	memset(g, 0, sizeof(*g));
}

const struct dt_gguf_tensor *dt_gguf_find_tensor(const struct dt_gguf *g, const char *name)
{
	for (int i = 0; i < g->ntensor; i++)
		if (!strcmp(g->tensor[i].name, name))
			return &g->tensor[i];
	return NULL;
}

/* ---- several files ---- */

/* Appends the tensors of a part to those of the first, so that `all` describes the whole model. */
static int join(struct dt_gguf *all, const struct dt_gguf *part, const char *path, struct dt_err *err)
{
	struct dt_gguf_tensor *v =
		realloc(all->tensor, (size_t)(all->ntensor + part->ntensor + 1) * sizeof(*v));

	if (!v)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);
	all->tensor = v;
	for (int i = 0; i < part->ntensor; i++) {
		if (dt_gguf_find_tensor(all, part->tensor[i].name))
			return dt_err_set(err, -EBADMSG, "'%s': tensor '%s' is in another part already", path,
					  part->tensor[i].name);
		v[all->ntensor++] = part->tensor[i];
	}
	return 0;
}

static int check_part(const struct dt_gguf *g, const char *path, int64_t no, int64_t parts,
		      struct dt_err *err)
{
	int64_t is = 0, of = 0;
	int rc = dt_gguf_int(g, "split.no", true, 0, 99999, &is, err);

	if (rc >= 0)
		rc = dt_gguf_int(g, "split.count", true, 0, 99999, &of, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", path);
	return is == no && of == parts
		       ? 0
		       : dt_err_set(err, -EBADMSG, "'%s' is part %lld of %lld, not %lld of %lld", path,
				    (long long)is + 1, (long long)of, (long long)no + 1, (long long)parts);
}

int dt_gguf_add_parts(struct dt_gguf *g, const char *first, dt_gguf_map_fn *map, dt_gguf_part_fn *add,
		      void *to, struct dt_err *err)
{
	int64_t parts = 1, total = -1;
	char tail[32], path[PATH_MAX];
	size_t n = strlen(first), k;
	int rc = dt_gguf_int(g, "split.count", false, 0, 99999, &parts, err);

	if (rc < 0 || parts <= 1)
		return rc < 0 ? rc : 0;
	rc = dt_gguf_int(g, "split.tensors.count", false, 0, INT32_MAX, &total, err);
	if (rc >= 0)
		rc = check_part(g, first, 0, parts, err);
	if (rc < 0) {
		dt_err_hint(err, "give the first part");
		return rc;
	}
	k = (size_t)snprintf(tail, sizeof(tail), "-%05d-of-%05lld.gguf", 1, (long long)parts);
	if (n <= k || n >= sizeof(path) || strcmp(first + n - k, tail))
		return dt_err_set(err, -EINVAL,
				  "'%s' is the first of %lld parts, but its name does not end in '%s'", first,
				  (long long)parts, tail);
	for (int64_t i = 1; i < parts && rc >= 0; i++) {
		struct dt_gguf part;
		const uint8_t *p;
		size_t bytes;

		snprintf(path, sizeof(path), "%.*s-%05lld-of-%05lld.gguf", (int)(n - k), first,
			 (long long)i + 1, (long long)parts);
		rc = map(to, path, &p, &bytes, err);
		if (rc < 0 || (rc = dt_gguf_parse(p, bytes, path, &part, err)) < 0)
			return rc;
		rc = check_part(&part, path, i, parts, err);
		if (rc == 0)
			rc = join(g, &part, path, err);
		if (rc == 0)
			rc = add(to, &part, err);
		dt_gguf_release(&part);
	}
	if (rc >= 0 && total >= 0 && total != g->ntensor)
		rc = dt_err_set(err, -EBADMSG, "'%s': the parts hold %d tensors, the first says %lld", first,
				g->ntensor, (long long)total);
	return rc < 0 ? rc : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
