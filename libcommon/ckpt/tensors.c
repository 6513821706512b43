#include "ckpt/tensors.h"

#include "ckpt/internal.h"

#include <errno.h>
#include <stdlib.h>

#define BAND_BYTES ((int64_t)16 << 20)

struct dt_tensors {
	struct dt_source *src; /* NULL: a checkpoint */
	struct dt_ckpt *ck;
	struct dt_config config;
	struct dt_params params;
	bool known; /* config and params are filled */
	struct dt_tensor_desc *v;
	char (*names)[80]; /* of a source's tensors */
	int n;
};

/* How many different offsets each dimension has; true when the pieces are that grid and nothing else. */
static bool grid_of(const struct dt_ckpt *c, int i, int64_t grid[DT_CKPT_MAX_DIM])
{
	const struct ck_tensor *t = &c->m.tensor[i];
	int64_t product = 1;

	for (int d = 0; d < t->ndim; d++) {
		int64_t seen[1024];
		int n = 0;

		for (int k = 0; k < t->npieces; k++) {
			int64_t at = c->m.piece[t->first + k].off[d];
			int j = 0;

			while (j < n && seen[j] != at)
				j++;
			if (j == n && n == 1024)
				return false;
			if (j == n)
				seen[n++] = at;
		}
		grid[d] = n;
		product *= n;
	}
	return product == t->npieces;
}

void ck_describe(const struct dt_ckpt *c, int i, struct dt_tensor_desc *ret)
{
	struct dt_ckpt_tensor q;

	dt_ckpt_tensor(c, i, &q);
	*ret = (struct dt_tensor_desc){.name = q.name,
				       .type = dt_dtype_name(q.dtype),
				       .dtype = q.dtype,
				       .ndim = q.ndim,
				       .npieces = q.npieces,
				       .bytes = q.bytes};
	memcpy(ret->shape, q.shape, sizeof(ret->shape));
	ret->regular = grid_of(c, i, ret->grid);
}

static int list_ckpt(struct dt_tensors *t, struct dt_err *err)
{
	const json_t *model = json_object_get(dt_ckpt_meta(t->ck), "model");

	t->n = dt_ckpt_ntensors(t->ck);
	t->v = calloc((size_t)t->n + 1, sizeof(*t->v));
	if (!t->v)
		return dt_err_sys(err, -ENOMEM, "cannot list '%s'", dt_ckpt_path(t->ck));
	for (int i = 0; i < t->n; i++)
		ck_describe(t->ck, i, &t->v[i]);
	/* tensors are listed even without the model */
	t->known = json_is_object(model) && dt_config_from_json(model, &t->config, NULL) == 0 &&
		   dt_model_params(&t->config, &t->params, NULL) == 0;
	return 0;
}

static int list_source(struct dt_tensors *t, struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(t->src);

	t->n = params->n;
	t->config = *dt_source_config(t->src);
	t->v = calloc((size_t)t->n + 1, sizeof(*t->v));
	t->names = calloc((size_t)t->n + 1, sizeof(*t->names));
	if (!t->v || !t->names)
		return dt_err_sys(err, -ENOMEM, "cannot list '%s'", dt_source_path(t->src));
	for (int i = 0; i < t->n; i++) {
		const struct dt_param *p = &params->p[i];
		enum dt_format f = dt_source_format(t->src, i);
		int dtype = dt_format_info(f)->dtype;
		struct dt_tensor_desc *d = &t->v[i];

		snprintf(t->names[i], sizeof(t->names[i]), "model/%s", p->name);
		*d = (struct dt_tensor_desc){.name = t->names[i],
					     .type = dt_format_info(f)->name,
					     .dtype = dtype < 0 ? DT_F32 : (enum dt_dtype)dtype,
					     .ndim = p->ndim,
					     .npieces = 1,
					     .regular = true};
		memcpy(d->shape, p->shape, (size_t)p->ndim * sizeof(*p->shape));
		for (int k = 0; k < p->ndim; k++)
			d->grid[k] = 1;
		d->bytes = dt_format_bytes(f, ck_numel(p->ndim, p->shape));
	}
	t->known = true;
	return 0;
}

int dt_tensors_open(const char *path, struct dt_tensors **ret, struct dt_err *err)
{
	struct dt_tensors *t = calloc(1, sizeof(*t));
	enum dt_source_kind kind;
	int rc = t ? dt_source_guess(path, &kind, err) : dt_err_sys(err, -ENOMEM, "cannot open '%s'", path);

	if (rc == 0 && kind == DT_SOURCE_DT) {
		rc = dt_ckpt_open(path, &t->ck, err);
		if (rc == 0)
			rc = list_ckpt(t, err);
	} else if (rc == 0) {
		rc = dt_source_open_all(path, kind, "none", &t->src, err);
		if (rc == 0)
			rc = list_source(t, err);
	}
	if (rc < 0) {
		dt_tensors_close(t);
		return rc;
	}
	*ret = t;
	return 0;
}

void dt_tensors_close(struct dt_tensors *t)
{
	if (!t)
		return;
	if (t->ck)
		dt_params_release(&t->params);
	dt_ckpt_close(t->ck);
	dt_source_close(t->src);
	free(t->v);
	free(t->names);
	free(t);
}

const char *dt_tensors_path(const struct dt_tensors *t)
{
	return t->ck ? dt_ckpt_path(t->ck) : dt_source_path(t->src);
}

const char *dt_tensors_kind(const struct dt_tensors *t)
{
	static const char *const words[] = {"auto", "safetensors", "gguf", "llmc", "llama2c", "dt"};

	return words[t->ck ? DT_SOURCE_DT : dt_source_kind(t->src)];
}

const char *dt_tensors_note(const struct dt_tensors *t)
{
	return t->ck ? dt_ckpt_note(t->ck) : NULL;
}

struct dt_ckpt *dt_tensors_ckpt(const struct dt_tensors *t)
{
	return t->ck;
}

const struct dt_config *dt_tensors_config(const struct dt_tensors *t)
{
	return t->known ? &t->config : NULL;
}

const struct dt_param *dt_tensors_param(const struct dt_tensors *t, int i)
{
	const struct dt_params *params = t->src ? dt_source_params(t->src) : &t->params;
	const char *name = strchr(t->v[i].name, '/');
	int k = t->known && name ? dt_params_find(params, name + 1) : -1;

	return k < 0 ? NULL : &params->p[k];
}

int dt_tensors_n(const struct dt_tensors *t)
{
	return t->n;
}

const struct dt_tensor_desc *dt_tensors_desc(const struct dt_tensors *t, int i)
{
	return &t->v[i];
}

int dt_tensors_find(const struct dt_tensors *t, const char *name)
{
	if (t->ck)
		return dt_ckpt_find(t->ck, name);
	return strncmp(name, "model/", 6) ? -1 : dt_params_find(dt_source_params(t->src), name + 6);
}

/* Rows of the first dimension in one band of a source's tensor. */
static int64_t band_rows(const struct dt_tensor_desc *d)
{
	int64_t row = ck_numel(d->ndim - 1, d->shape + 1) * dt_dtype_size(d->dtype);
	int64_t rows = row ? BAND_BYTES / row : d->shape[0];

	return rows < 1 ? 1 : rows;
}

int dt_tensors_nboxes(const struct dt_tensors *t, int i)
{
	const struct dt_tensor_desc *d = &t->v[i];

	return t->ck ? d->npieces : (int)((d->shape[0] + band_rows(d) - 1) / band_rows(d));
}

void dt_tensors_box(const struct dt_tensors *t, int i, int k, int64_t *off, int64_t *shape)
{
	const struct dt_tensor_desc *d = &t->v[i];
	size_t n = (size_t)d->ndim * sizeof(*off);
	struct dt_ckpt_piece p;
	int64_t rows;

	if (t->ck) {
		dt_ckpt_piece(t->ck, i, k, &p);
		memcpy(off, p.off, n);
		memcpy(shape, p.shape, n);
		return;
	}
	rows = band_rows(d);
	memset(off, 0, n);
	memcpy(shape, d->shape, n);
	off[0] = k * rows;
	if (shape[0] - off[0] < rows)
		rows = shape[0] - off[0];
	shape[0] = rows;
}

int dt_tensors_read(struct dt_tensors *t, int i, const int64_t *off, const int64_t *shape, void *dst,
		    struct dt_err *err)
{
	return t->ck ? dt_ckpt_read(t->ck, i, off, shape, t->v[i].dtype, dst, err)
		     : dt_source_read(t->src, i, off, shape, t->v[i].dtype, dst, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
