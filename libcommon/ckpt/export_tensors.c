/* For all targets: the list of tensors, and their elements in bands of rows. */
#include "ckpt/export_internal.h"

#include "kernels/rope.h"
#include "model/graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BAND	 ((int64_t)4 << 20) /* bytes processed at a time */
#define PARALLEL (16 << 10)	    /* numbers from which threads pay */

static int64_t cols_of(const struct exp_tensor *t)
{
	return t->ndim == 2 ? t->shape[1] : 1;
}

enum dt_format dt_export_format(const struct dt_config *c, const struct dt_param *p, enum dt_format want,
				enum dt_packing packing)
{
	if (packing)
		return exp_is_linear(c, p) && p->shape[1] % dt_format_info(want)->block == 0 &&
				       p->shape[0] / (p->experts ? p->experts : 1) % 8 == 0
			       ? want
			       : DT_FMT_F16;
	return dt_param_format(c, p, want);
}

/* The type of a tensor in a folder with packed matrices. */
static enum dt_format choose_packed(struct exporter *e, struct exp_tensor *t, const struct dt_param *p)
{
	t->packed = exp_packed_takes(e, t, p);
	if (exp_is_linear(dt_source_config(e->s), p) && !t->packed)
		e->unpacked++;
	return t->packed ? (enum dt_format)e->x->format : DT_FMT_F16;
}

/* The type that a tensor is written in. */
static enum dt_format choose(struct exporter *e, struct exp_tensor *t, const struct dt_param *p, bool blocks)
{
	int want = e->x->format, have = (int)dt_source_format(e->s, t->part[0]);
	bool gguf = e->x->to == DT_SOURCE_GGUF;
	enum dt_format f, head;

	if (e->x->packing)
		return choose_packed(e, t, p);
	if (want < 0) {
		bool fits = dt_format_info((enum dt_format)have)->dtype >= 0 ||
			    (blocks && !t->transposed && dt_source_raw(e->s, t->part[0], 0, 1));

		want = fits ? have : DT_FMT_F32;
	}
	if (!gguf)
		return (enum dt_format)want;
	if (e->x->mix)
		want = (int)dt_format_mix_of(e->x->mix, dt_source_config(e->s), p,
					     t->shape[t->transposed] > p->shape[0]);
	f = dt_export_format(dt_source_config(e->s), p, (enum dt_format)want, DT_PACK_NONE);
	head = dt_format_info((enum dt_format)want)->head;
	if (e->x->format < 0 && head && f == head)
		return (enum dt_format)want; /* as stored */
	if ((int)f == want || f == DT_FMT_F32 || f == head)
		return f;
	if (f == DT_FMT_F16)
		e->unpacked++;
	else
		e->smaller++;
	return f;
}

const struct exp_tensor *exp_find(const struct exporter *e, const char *name)
{
	for (int i = 0; i < e->n; i++)
		if (!strcmp(e->t[i].name, name))
			return &e->t[i];
	return NULL;
}

/* Lists the k-th tensor that parameter i is written as. */
static void list_one(struct exporter *e, int i, int64_t k, const struct dt_place_in_file *at, bool blocks)
{
	const struct dt_param *p = &dt_source_params(e->s)->p[i];
	struct exp_tensor *t = &e->t[e->n++];

	*t = (struct exp_tensor){.ndim = p->ndim,
				 .transposed = at->transposed,
				 .part = {i},
				 .nparts = 1,
				 .row0 = k * at->rows,
				 .run = at->run < at->every ? at->run : 0,
				 .stack = at->stack};
	snprintf(t->name, sizeof(t->name), "%s", at->name);
	t->shape[0] = at->transposed ? p->shape[1] : at->rows;
	t->shape[1] = at->transposed ? at->rows : p->ndim == 2 ? p->shape[1] : 1;
	if (at->stack && (at->transposed || at->run == 1)) {
		t->ndim = 2;
		t->transposed = true;
		t->shape[0] = at->stack * (p->ndim == 2 ? p->shape[1] : 1);
		t->shape[1] = at->rows / at->stack;
	}
	t->format = choose(e, t, p, blocks);
	t->bytes = t->packed ? exp_parts_bytes(e, t) : dt_format_bytes(t->format, t->shape[0] * t->shape[1]);
	e->total += t->bytes;
}

int exp_buffers(struct exporter *e, struct dt_err *err)
{
	struct dt_graph g;
	int rc;

	if (!dt_config_is_image(dt_source_config(e->s)))
		return 0;
	rc = dt_graph_build(dt_source_config(e->s), &g, err);
	if (rc < 0)
		return rc;
	e->buffers = g.buffers;
	g.buffers = (struct dt_params){0};
	dt_graph_release(&g);
	return 0;
}

/* Lists the buffers, which are f32 whatever the weights' type. */
static void list_buffers(struct exporter *e)
{
	for (int i = 0; i < e->buffers.n; i++) {
		const struct dt_param *p = &e->buffers.p[i];
		struct exp_tensor *t = &e->t[e->n++];

		*t = (struct exp_tensor){.ndim = 1,
					 .shape = {p->shape[0], 1},
					 .format = DT_FMT_F32,
					 .buffer = i + 1,
					 .bytes = dt_format_bytes(DT_FMT_F32, p->shape[0])};
		snprintf(t->name, sizeof(t->name), "%s", p->name);
		e->total += t->bytes;
	}
}

/* Hugging Face folders have the embedding and the head once more in a module for a further token. */
static void list_copies(struct exporter *e, bool blocks)
{
	const struct dt_config *c = dt_source_config(e->s);
	const struct dt_params *params = dt_source_params(e->s);
	const char *const name[] = {"embed_tokens", "shared_head.head"};

	for (int k = 0; k < 2 && c->mtp_layers && e->scheme == DT_NAMES_HF; k++) {
		const int i = dt_params_find(params, k && !c->tied ? "head.weight" : "embed.weight");
		const int64_t rows = params->p[i].shape[0];
		struct dt_place_in_file at = {.split = 1, .run = rows, .every = rows, .rows = rows};

		snprintf(at.name, sizeof(at.name), "layers.%lld.%s.weight", (long long)c->layers, name[k]);
		list_one(e, i, 0, &at, blocks);
	}
}

int exp_list(struct exporter *e, bool blocks, struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(e->s);
	int rc = exp_buffers(e, err);
	size_t most = (size_t)e->buffers.n + 2; /* list_copies */

	if (rc < 0)
		return rc;
	for (int i = 0; i < params->n; i++)
		most += params->p[i].experts ? (size_t)params->p[i].experts : 1;
	e->t = calloc(most, sizeof(*e->t));
	if (!e->t)
		return dt_err_sys(err, -ENOMEM, "cannot list the tensors");
	for (int i = 0; i < params->n; i++) {
		const struct dt_param *p = &params->p[i];
		struct dt_place_in_file at = {.split = 1};

		if (p->role == DT_W_VALUE) /* used in training only */
			continue;
		for (int64_t k = 0; k < at.split; k++) {
			if (!dt_names_place(e->scheme, dt_source_config(e->s), p, k, &at))
				return dt_err_set(err, -ENOTSUP, "the format cannot hold '%s'", p->name);
			if (at.first) { /* k and v are in q's tensor */
				struct exp_tensor *t = (struct exp_tensor *)exp_find(e, at.name);

				t->part[t->nparts++] = i;
			} else {
				list_one(e, i, k, &at, blocks);
			}
		}
	}
	list_copies(e, blocks);
	list_buffers(e);
	return 0;
}

void exp_release(struct exporter *e)
{
	dt_params_release(&e->buffers);
	free(e->t);
	free(e->buf);
	free(e->tmp);
}

int exp_cancelled(struct exporter *e, uint64_t more, struct dt_err *err)
{
	e->done += more;
	if (e->x->progress && !e->x->progress(e->x->arg, e->done, e->total))
		return dt_err_sys(err, -ECANCELED, "stopped");
	return 0;
}

/* Reads elements of a norm that the target stores as weight + 1, or weight - 1. */
static int read_shifted(struct exporter *e, int param, int64_t at, int64_t n, float shift, enum dt_format f,
			char *dst, struct dt_err *err)
{
	float *x;
	int rc;

	if (exp_grow(&e->tmp, &e->tmp_bytes, (size_t)n * sizeof(*x)) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot convert");
	x = (float *)e->tmp;
	rc = dt_source_read(e->s, param, &at, &n, DT_F32, x, err);
	for (int64_t i = 0; i < n && rc == 0; i++)
		x[i] += shift;
	if (rc == 0)
		dt_quantize(f, x, n, dst);
	return rc;
}

/* Encodes rows of x on all threads. */
static void encode_rows(enum dt_format f, const float *x, int64_t rows, int64_t cols, char *dst)
{
	const size_t row_bytes = dt_format_bytes(f, cols);

#pragma omp parallel for if (rows * cols > PARALLEL)
	for (int64_t r = 0; r < rows; r++)
		dt_quantize(f, x + r * cols, cols, dst + (size_t)r * row_bytes);
}

/* Reads rows [row, row + n) of a parameter in the target's rotary order and in format f. */
static int read_rows(struct exporter *e, int param, int64_t row, int64_t n, enum dt_format f, char *dst,
		     struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const struct dt_param *p = &dt_source_params(e->s)->p[param];
	const enum dt_dtype plain =
		(enum dt_dtype)dt_format_info(f)->dtype; /* < 0: blocks, encoded from f32 */
	const bool turn = dt_param_is_rotary(c, p) && c->rope_pairing != e->pairing;
	const float shift = dt_param_is_scale(p) ? (float)c->norm_plus_one - (float)e->plus_one : 0;
	/* blocks that are copied as they are, but whose rows are not one behind the other */
	const bool apart = (int)plain < 0 && f == dt_source_format(e->s, param) &&
			   !dt_source_raw(e->s, param, row, n) && dt_source_raw(e->s, param, row, 1);
	int64_t cols = p->ndim == 2 ? p->shape[1] : 1, off[2] = {row, 0},
		shape[2] = {turn || apart ? 1 : n, cols};
	size_t bytes = (int)plain < 0 ? dt_format_bytes(f, cols) : (size_t)cols * dt_dtype_size(plain);
	bool raw = f == dt_source_format(e->s, param) && dt_source_raw(e->s, param, row, shape[0]), encode;
	char *at = dst;
	int rc = 0;

	if (shift != 0)
		return read_shifted(e, param, row, n, shift, f, dst, err);
	encode = !raw && (int)plain < 0;
	if (encode && exp_grow(&e->tmp, &e->tmp_bytes, (size_t)(n * cols) * sizeof(float)) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot convert '%s'", p->name);
	if (encode) {
		at = e->tmp;
		bytes = (size_t)cols * sizeof(float);
	}
	for (int64_t done = 0; done < n && rc == 0; done += shape[0], at += (size_t)shape[0] * bytes) {
		off[0] = row + done;
		if (turn)
			off[0] = dt_rope_row(row + done, c->head_dim, c->rope_pairing, e->pairing);
		if (raw) /* of one row or of all, as above: it lies in the file as well */
			memcpy(at, dt_source_raw(e->s, param, off[0], shape[0]), (size_t)shape[0] * bytes);
		else
			rc = dt_source_read(e->s, param, off, shape, encode ? DT_F32 : plain, at, err);
	}
	if (rc == 0 && encode)
		encode_rows(f, (const float *)e->tmp, n, cols, dst);
	return rc;
}

/* Reads rows [row, row + n) of a transposed tensor, which are columns of its parts. Plain types only. */
static int read_turned(struct exporter *e, const struct exp_tensor *t, int64_t row, int64_t n, char *dst,
		       struct dt_err *err)
{
	int64_t size = dt_format_info(t->format)->bytes, first = 0;
	int rc = 0;

	for (int k = 0; k < t->nparts && rc == 0; k++) {
		const struct dt_param *p = &dt_source_params(e->s)->p[t->part[k]];
		int64_t off[2] = {0, row}, shape[2] = {p->shape[0], n};

		if (exp_grow(&e->tmp, &e->tmp_bytes, (size_t)(shape[0] * n * size)) < 0)
			return dt_err_sys(err, -ENOMEM, "cannot convert '%s'", p->name);
		rc = dt_source_read(e->s, t->part[k], off, shape,
				    (enum dt_dtype)dt_format_info(t->format)->dtype, e->tmp, err);
		for (int64_t r = 0; r < n; r++)
			for (int64_t c = 0; c < shape[0]; c++)
				memcpy(dst + (r * t->shape[1] + first + c) * size,
				       e->tmp + (c * n + r) * size, (size_t)size);
		first += shape[0];
	}
	return rc;
}

int exp_put(const struct exporter *e, const void *p, size_t n, FILE *f, struct dt_err *err)
{
	errno = 0;
	return fwrite(p, 1, n, f) == n ? 0
				       : dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", e->file);
}

static int write_buffer(struct exporter *e, const struct exp_tensor *t, FILE *f, struct dt_err *err)
{
	int rc;

	if (exp_grow(&e->buf, &e->buf_bytes, (size_t)t->bytes) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", t->name);
	rc = dt_source_buffer(e->s, t->name, t->shape[0], (float *)e->buf, err);
	if (rc == 0)
		rc = exp_put(e, e->buf, (size_t)t->bytes, f, err);
	return rc == 0 ? exp_cancelled(e, t->bytes, err) : rc;
}

/* Reads rows [row, row + n) of a tensor that is not transposed, of all its parts. */
static int read_joined(struct exporter *e, const struct exp_tensor *t, int64_t row, int64_t n, char *dst,
		       struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(e->s);
	int64_t first = 0, some;
	int rc = 0, k = 0;

	for (; n > 0 && rc == 0; row += some, n -= some) {
		int64_t at, left;

		if (t->nparts == 1) {
			at = t->row0 + row;
			left = n;
		} else if (t->run) {
			k = (int)(row / t->run % t->nparts);
			at = row / t->run / t->nparts * t->run + row % t->run;
			left = t->run - row % t->run;
		} else {
			while (row - first >= params->p[t->part[k]].shape[0])
				first += params->p[t->part[k++]].shape[0];
			at = row - first;
			left = params->p[t->part[k]].shape[0] - at;
		}
		some = left < n ? left : n;
		rc = read_rows(e, t->part[k], at, some, t->format, dst, err);
		dst += dt_format_bytes(t->format, some * cols_of(t));
	}
	return rc;
}

/* Reads the blocks of all parts at once, as a packed word may hold several rows or columns. */
static int write_packed(struct exporter *e, const struct exp_tensor *t, FILE *f, struct dt_err *err)
{
	int rc = exp_grow(&e->buf, &e->buf_bytes, dt_format_bytes(t->format, t->shape[0] * t->shape[1]));

	if (rc < 0)
		return dt_err_sys(err, rc, "cannot write '%s'", t->name);
	rc = read_joined(e, t, 0, t->shape[0], e->buf, err);
	return rc == 0 ? exp_write_parts(e, t, e->buf, f, err) : rc;
}

int exp_write(struct exporter *e, const struct exp_tensor *t, FILE *f, struct dt_err *err)
{
	size_t row_bytes = dt_format_bytes(t->format, t->shape[0] * cols_of(t)) / (size_t)t->shape[0];
	int64_t band = BAND / (int64_t)row_bytes + 1;
	int rc = 0;

	if (t->buffer)
		return write_buffer(e, t, f, err);
	if (t->packed)
		return write_packed(e, t, f, err);
	band = band > 64 ? band / 64 * 64 : band;
	if (exp_grow(&e->buf, &e->buf_bytes, (size_t)(band < t->shape[0] ? band : t->shape[0]) * row_bytes) <
	    0)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", t->name);
	for (int64_t r = 0; r < t->shape[0] && rc == 0; r += band) {
		int64_t n = t->shape[0] - r < band ? t->shape[0] - r : band;

		rc = t->transposed && t->stack ? exp_read_experts(e, t, r, n, e->buf, err)
		     : t->transposed	       ? read_turned(e, t, r, n, e->buf, err)
					       : read_joined(e, t, r, n, e->buf, err);
		if (rc == 0)
			rc = exp_put(e, e->buf, (size_t)n * row_bytes, f, err);
		if (rc == 0)
			rc = exp_cancelled(e, (uint64_t)n * row_bytes, err);
	}
	return rc;
}

void exp_zeros(FILE *f, uint64_t n)
{
	static const char zeros[4096];

	for (; n; n -= n < sizeof(zeros) ? n : sizeof(zeros))
		fwrite(zeros, 1, n < sizeof(zeros) ? (size_t)n : sizeof(zeros), f);
}

const char *exp_token(const json_t *root, int64_t id)
{
	const json_t *added = json_object_get(root, "added_tokens"), *o;
	json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *v;
	const char *key;
	size_t i;

	if (id < 0)
		return NULL;
	json_array_foreach(added, i, o) if (json_integer_value(json_object_get(o, "id")) ==
					    id) return json_string_value(json_object_get(o, "content"));
	json_object_foreach(vocab, key, v) if (json_is_integer(v) && json_integer_value(v) == id) return key;
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
