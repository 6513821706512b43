/* What all targets need: the list of tensors, their elements in bands, the checkpoint target. */
#include "ckpt/export_internal.h"

#include "base/tmpfile.h"
#include "kernels/rope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAND ((int64_t)4 << 20) /* bytes handled at a time */

static int64_t cols_of(const struct exp_tensor *t)
{
	return t->ndim == 2 ? t->shape[1] : 1;
}

/* The type a tensor gets. */
static enum dt_format choose(struct exporter *e, const struct exp_tensor *t, const struct dt_param *p,
			     bool blocks)
{
	int want = e->x->format, have = (int)dt_source_format(e->s, t->part[0]);
	bool gguf = e->x->to == DT_SOURCE_GGUF;

	if (want < 0) {
		bool fits = dt_format_info((enum dt_format)have)->dtype >= 0 ||
			    (blocks && !t->transposed && dt_source_raw(e->s, t->part[0]));

		want = fits ? have : DT_FMT_F32;
	}
	if (gguf && (p->ndim == 1 || p->role == DT_W_ROUTER)) /* as GGUF's own writer */
		return DT_FMT_F32;
	if (dt_format_info((enum dt_format)want)->dtype >= 0)
		return (enum dt_format)want;
	if (p->ndim == 1 || p->role == DT_W_POS)
		return DT_FMT_F32;
	if (t->shape[1] % dt_format_info((enum dt_format)want)->block == 0)
		return (enum dt_format)want;
	e->unpacked++;
	return DT_FMT_F16;
}

const struct exp_tensor *exp_find(const struct exporter *e, const char *name)
{
	for (int i = 0; i < e->n; i++)
		if (!strcmp(e->t[i].name, name))
			return &e->t[i];
	return NULL;
}

/* Tensor k of those that parameter i becomes. */
static void list_one(struct exporter *e, int i, int64_t k, const struct dt_place_in_file *at, bool blocks)
{
	const struct dt_param *p = &dt_source_params(e->s)->p[i];
	struct exp_tensor *t = &e->t[e->n++];

	*t = (struct exp_tensor){.ndim = p->ndim,
				 .transposed = at->transposed,
				 .part = {i},
				 .nparts = 1,
				 .row0 = k * at->rows,
				 .stack = at->stack};
	snprintf(t->name, sizeof(t->name), "%s", at->name);
	t->shape[0] = at->transposed ? p->shape[1] : at->rows;
	t->shape[1] = at->transposed ? at->rows : p->ndim == 2 ? p->shape[1] : 1;
	t->format = choose(e, t, p, blocks);
	t->bytes = dt_format_bytes(t->format, t->shape[0] * t->shape[1]);
	e->total += t->bytes;
}

int exp_list(struct exporter *e, bool blocks, struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(e->s);
	size_t most = 0;

	for (int i = 0; i < params->n; i++)
		most += params->p[i].experts ? (size_t)params->p[i].experts : 1;
	e->t = calloc(most, sizeof(*e->t));
	if (!e->t)
		return dt_err_sys(err, -ENOMEM, "cannot list the tensors");
	for (int i = 0; i < params->n; i++) {
		const struct dt_param *p = &params->p[i];
		struct dt_place_in_file at = {.split = 1};

		for (int64_t k = 0; k < at.split; k++) {
			if (!dt_names_place(e->scheme, dt_source_config(e->s), p, k, &at))
				return dt_err_set(err, -ENOTSUP, "the format has no place for '%s'", p->name);
			if (at.first) { /* k and v join the q before them */
				struct exp_tensor *t = (struct exp_tensor *)exp_find(e, at.name);

				t->part[t->nparts++] = i;
			} else {
				list_one(e, i, k, &at, blocks);
			}
		}
	}
	return 0;
}

void exp_release(struct exporter *e)
{
	free(e->t);
	free(e->buf);
	free(e->tmp);
}

static int grow(char **buf, size_t *have, size_t want)
{
	char *grown;

	if (want <= *have)
		return 0;
	grown = realloc(*buf, want);
	if (!grown)
		return -ENOMEM;
	*buf = grown;
	*have = want;
	return 0;
}

int exp_cancelled(struct exporter *e, uint64_t more, struct dt_err *err)
{
	e->done += more;
	if (e->x->progress && !e->x->progress(e->x->arg, e->done, e->total))
		return dt_err_sys(err, -ECANCELED, "stopped");
	return 0;
}

/* Elements of a norm that the target stores with one more, or one less. */
static int read_shifted(struct exporter *e, int param, int64_t at, int64_t n, float shift, enum dt_format f,
			char *dst, struct dt_err *err)
{
	float *x;
	int rc;

	if (grow(&e->tmp, &e->tmp_bytes, (size_t)n * sizeof(*x)) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot convert");
	x = (float *)e->tmp;
	rc = dt_source_read(e->s, param, &at, &n, DT_F32, x, err);
	for (int64_t i = 0; i < n && rc == 0; i++)
		x[i] += shift;
	if (rc == 0)
		dt_quantize(f, x, n, dst);
	return rc;
}

/* Rows [row, row + n) of a parameter in the target's rotary order, in format f, as they lie in our shape. */
static int read_rows(struct exporter *e, int param, int64_t row, int64_t n, enum dt_format f, char *dst,
		     struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const struct dt_param *p = &dt_source_params(e->s)->p[param];
	int64_t cols = p->ndim == 2 ? p->shape[1] : 1, off[2] = {row, 0}, shape[2] = {n, cols};
	bool turn = dt_param_is_rotary(c, p) && c->rope_pairing != e->pairing;
	size_t row_bytes = dt_format_info(f)->dtype < 0 ? dt_format_bytes(f, cols)
							: (size_t)cols * (size_t)dt_format_info(f)->bytes;
	const char *raw = f == dt_source_format(e->s, param) ? dt_source_raw(e->s, param) : NULL;
	float shift = dt_param_is_scale(p) ? (float)c->norm_plus_one - (float)e->plus_one : 0;
	int rc = 0;

	if (shift != 0)
		return read_shifted(e, param, row, n, shift, f, dst, err);
	for (int64_t done = 0; done < n && rc == 0; done += shape[0], dst += shape[0] * (int64_t)row_bytes) {
		off[0] = turn ? dt_rope_row(row + done, c->head_dim, c->rope_pairing, e->pairing) : row;
		shape[0] = turn ? 1 : n;
		if (raw) {
			memcpy(dst, raw + (size_t)off[0] * row_bytes, (size_t)shape[0] * row_bytes);
		} else if (dt_format_info(f)->dtype >= 0) {
			rc = dt_source_read(e->s, param, off, shape, (enum dt_dtype)dt_format_info(f)->dtype,
					    dst, err);
		} else {
			if (grow(&e->tmp, &e->tmp_bytes, (size_t)(shape[0] * cols) * 4) < 0)
				return dt_err_sys(err, -ENOMEM, "cannot convert '%s'", p->name);
			rc = dt_source_read(e->s, param, off, shape, DT_F32, e->tmp, err);
			if (rc == 0)
				dt_quantize(f, (const float *)e->tmp, shape[0] * cols, dst);
		}
	}
	return rc;
}

/* Rows [row, row + n) of a transposed tensor: columns of its parts. Plain types. */
static int read_turned(struct exporter *e, const struct exp_tensor *t, int64_t row, int64_t n, char *dst,
		       struct dt_err *err)
{
	int64_t size = dt_format_info(t->format)->bytes, first = 0;
	int rc = 0;

	for (int k = 0; k < t->nparts && rc == 0; k++) {
		const struct dt_param *p = &dt_source_params(e->s)->p[t->part[k]];
		int64_t off[2] = {0, row}, shape[2] = {p->shape[0], n};

		if (grow(&e->tmp, &e->tmp_bytes, (size_t)(shape[0] * n * size)) < 0)
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

int exp_write(struct exporter *e, const struct exp_tensor *t, FILE *f, struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(e->s);
	size_t row_bytes = dt_format_bytes(t->format, t->shape[0] * cols_of(t)) / (size_t)t->shape[0];
	int64_t band = BAND / (int64_t)row_bytes + 1;
	int rc = 0;

	band = band > 64 ? band / 64 * 64 : band;
	if (grow(&e->buf, &e->buf_bytes, (size_t)(band < t->shape[0] ? band : t->shape[0]) * row_bytes) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", t->name);
	for (int k = 0; k < (t->transposed ? 1 : t->nparts) && rc == 0; k++) {
		int64_t rows = t->transposed || t->nparts == 1 ? t->shape[0] : params->p[t->part[k]].shape[0];

		for (int64_t r = 0; r < rows && rc == 0; r += band) {
			int64_t n = rows - r < band ? rows - r : band;

			rc = t->transposed ? read_turned(e, t, r, n, e->buf, err)
					   : read_rows(e, t->part[k], t->row0 + r, n, t->format, e->buf, err);
			if (rc == 0 && fwrite(e->buf, row_bytes, (size_t)n, f) != (size_t)n)
				rc = dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", t->name);
			if (rc == 0)
				rc = exp_cancelled(e, (uint64_t)n * row_bytes, err);
		}
	}
	return rc;
}

void exp_zeros(FILE *f, uint64_t n)
{
	static const char zeros[4096];

	for (; n; n -= n < sizeof(zeros) ? n : sizeof(zeros))
		fwrite(zeros, 1, n < sizeof(zeros) ? (size_t)n : sizeof(zeros), f);
}

/*
 * What changes the numbers a model computes; names, special tokens and how rows and norms are stored do not.
 */
bool exp_same_model(const struct dt_config *a, const struct dt_config *b, const char **ret_what)
{
	static const char *const free_keys[] = {"name",	    "family", "rope_pairing", "norm_plus_one",
						"init_std", "bos",    "eos"};
	json_t *x = dt_config_to_json(a), *y = dt_config_to_json(b), *v;
	const char *key;
	bool same = true;

	for (size_t i = 0; i < sizeof(free_keys) / sizeof(*free_keys); i++)
		json_object_del(x, free_keys[i]);
	if (a->pos != DT_POS_ROPE || a->rope_scaling != DT_ROPE_SCALING_LLAMA3)
		for (size_t i = 0; i < 3; i++)
			json_object_del(x, ((const char *const[]){"rope_low_freq", "rope_high_freq",
								  "rope_original_seq"})[i]);
	if (a->pos != DT_POS_ROPE || a->rope_scaling == DT_ROPE_SCALING_NONE)
		json_object_del(x, "rope_factor");
	if (a->pos != DT_POS_ROPE)
		json_object_del(x, "rope_theta");
	json_object_foreach(x, key, v)
	{
		const json_t *w = json_object_get(y, key);
		bool equal = json_is_real(v) && json_is_real(w)
				     ? (float)json_real_value(v) == (float)json_real_value(w)
				     : json_equal(v, w);

		if (same && !equal) {
			same = false;
			for (size_t i = 0; ret_what && i < 1; i++)
				*ret_what = !strcmp(key, "window")	? "a sliding window"
					    : !strcmp(key, "act")	? "its activation"
					    : !strncmp(key, "rope_", 5) ? "its rotary positions"
					    : strstr(key, "bias")	? "its biases"
									: "its sizes or norms";
		}
	}
	json_decref(x);
	json_decref(y);
	return same;
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

/* ---- to a checkpoint ---- */

static int fill_piece(void *arg, const struct dt_piece *p, const void **ret, struct dt_err *err)
{
	struct exporter *e = arg;
	int64_t n = dt_dtype_size(p->dtype);
	int rc;

	for (int d = 0; d < p->ndim; d++)
		n *= p->shape[d];
	if (grow(&e->buf, &e->buf_bytes, (size_t)n) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot convert '%s'", p->name);
	rc = dt_source_read(e->s, dt_params_find(dt_source_params(e->s), p->name + strlen("model/")), p->off,
			    p->shape, p->dtype, e->buf, err);
	*ret = e->buf;
	return rc < 0 ? rc : exp_cancelled(e, (uint64_t)n, err);
}

static json_t *make_meta(struct exporter *e)
{
	json_t *meta = json_pack("{s:o, s:s, s:I}", "model", dt_config_to_json(dt_source_config(e->s)),
				 "layout", "dp1", "step", (json_int_t)e->x->step),
	       *tok = json_object();
	const char *chat = dt_source_chat_template(e->s), *text;
	size_t n;

	text = dt_source_tokenizer(e->s, &n);
	if (text)
		json_object_set_new(tok, "text", json_stringn(text, n));
	if (text && e->x->tokenizer_hash)
		json_object_set_new(tok, "hash", json_string(e->x->tokenizer_hash));
	if (chat)
		json_object_set_new(tok, "chat_template", json_string(chat));
	if (json_object_size(tok))
		json_object_set(meta, "tokenizer", tok);
	json_decref(tok);
	return meta;
}

int exp_dt(struct exporter *e, const char *dst, struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(e->s);
	struct dt_piece *p = calloc((size_t)params->n, sizeof(*p));
	json_t *meta = make_meta(e), *list = NULL;
	char *tmp = NULL;
	int rc = p && meta ? 0 : dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);

	for (int i = 0; i < params->n && rc == 0; i++) {
		const struct dt_param *q = &params->p[i];
		int dtype = e->x->format < 0 ? dt_format_info(dt_source_format(e->s, i))->dtype
					     : dt_format_info((enum dt_format)e->x->format)->dtype;

		p[i].dtype = dtype < 0 ? DT_F32 : (enum dt_dtype)dtype;
		p[i].ndim = q->ndim;
		memcpy(p[i].global, q->shape, (size_t)q->ndim * sizeof(*q->shape));
		memcpy(p[i].shape, q->shape, (size_t)q->ndim * sizeof(*q->shape));
		snprintf(p[i].name, sizeof(p[i].name), "model/%s", q->name);
		e->total += (uint64_t)dt_param_numel(q) * (uint64_t)dt_dtype_size(p[i].dtype);
	}
	if (rc == 0)
		rc = dt_ckpt_begin(dst, e->x->step, &tmp, err);
	if (rc == 0)
		rc = dt_ckpt_write_shard_from(tmp, 0, p, params->n, e->x->compress, fill_piece, e, &list,
					      err);
	if (rc == 0)
		rc = dt_ckpt_commit(dst, e->x->step, meta, &list, 1, 0, err);
	if (rc < 0 && tmp)
		dt_remove_tree(tmp, NULL);
	json_decref(list);
	json_decref(meta);
	free(tmp);
	free(p);
	return rc;
}

int dt_export(struct dt_source *s, const char *dst, const struct dt_export *x, struct dt_err *err)
{
	struct exporter e = {
		.s = s, .x = x, .scheme = x->to == DT_SOURCE_SAFETENSORS ? DT_NAMES_HF : DT_NAMES_GGUF};
	const char *family = dt_source_config(s)->family;
	struct stat st;
	int rc;

	e.pairing = x->to == DT_SOURCE_LLAMA2C || (x->to == DT_SOURCE_GGUF &&
						   (!strcmp(family, "llama") || !strncmp(family, "mi", 2)))
			    ? DT_ROPE_ADJACENT
			    : DT_ROPE_HALF;
	e.plus_one = x->to == DT_SOURCE_SAFETENSORS && !strncmp(family, "gemma", 5);
	if (x->to != DT_SOURCE_DT && lstat(dst, &st) == 0) /* a link to nothing too */
		return dt_err_sys(err, -EEXIST, "cannot write '%s'", dst);
	switch (x->to) {
	case DT_SOURCE_SAFETENSORS:
		rc = exp_safetensors(&e, dst, err);
		break;
	case DT_SOURCE_GGUF:
		rc = exp_gguf(&e, dst, err);
		break;
	case DT_SOURCE_LLMC:
		rc = exp_llmc(&e, dst, err);
		break;
	case DT_SOURCE_LLAMA2C:
		rc = exp_llama2c(&e, dst, err);
		break;
	default:
		rc = exp_dt(&e, dst, err);
	}
	if (x->ret_unpacked)
		*x->ret_unpacked = e.unpacked;
	exp_release(&e);
	return rc;
}
