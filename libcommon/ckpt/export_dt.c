/* Writes a model as a checkpoint of one shard. */
#include "ckpt/export_internal.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fill_piece(void *arg, const struct dt_piece *p, const void **ret, struct dt_err *err)
{
	struct exporter *e = arg;
	int64_t n = dt_dtype_size(p->dtype);
	const char *name = p->name + strlen("model/");
	const int i = dt_params_find(dt_source_params(e->s), name);
	int rc;

	for (int d = 0; d < p->ndim; d++)
		n *= p->shape[d];
	if (exp_grow(&e->buf, &e->buf_bytes, (size_t)n) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot convert '%s'", p->name);
	rc = i < 0 ? dt_source_buffer(e->s, name, p->shape[0], (float *)e->buf, err)
		   : dt_source_read(e->s, i, p->off, p->shape, p->dtype, e->buf, err);
	*ret = e->buf;
	return rc < 0 ? rc : exp_cancelled(e, (uint64_t)n, err);
}

/* Writes the image fields as a run's checkpoints have them. */
static void put_images(const json_t *images, json_t *meta)
{
	json_t *mean = json_object_get(images, "mean"), *classes = json_object_get(images, "classes");

	if (classes)
		json_object_set(meta, "classes", classes);
	if (mean)
		json_object_set_new(meta, "pixels",
				    json_pack("{s:O, s:O}", "mean", mean, "deviation",
					      json_object_get(images, "deviation")));
}

static json_t *make_meta(struct exporter *e)
{
	json_t *meta = json_pack("{s:o, s:s, s:I}", "model", dt_config_to_json(dt_source_config(e->s)),
				 "layout", "dp1", "step", (json_int_t)e->x->step),
	       *tok = json_object();
	const char *chat = dt_source_chat_template(e->s), *text;
	size_t n;

	put_images(dt_source_images(e->s), meta);
	text = dt_source_tokenizer(e->s, &n);
	if (text)
		json_object_set_new(tok, "text", json_stringn(text, n));
	if (text && e->x->tokenizer_hash)
		json_object_set_new(tok, "hash", json_string(e->x->tokenizer_hash));
	if (chat)
		json_object_set_new(tok, "chat_template", json_string(chat));
	for (int i = 0; text && i < 2; i++)
		if (dt_source_named(e->s, i))
			json_object_set_new(tok, dt_source_named_keys[i],
					    json_string(dt_source_named(e->s, i)));
	if (json_object_size(tok))
		json_object_set(meta, "tokenizer", tok);
	json_decref(tok);
	return meta;
}

int exp_dt(struct exporter *e, const char *dst, struct dt_err *err)
{
	const struct dt_params *params = dt_source_params(e->s);
	int rc = exp_buffers(e, err);
	const int n = params->n + e->buffers.n;
	struct dt_piece *p = calloc((size_t)n + 1, sizeof(*p));
	json_t *meta = make_meta(e), *list = NULL;
	const bool made = access(dst, F_OK) < 0;
	char *tmp = NULL;

	if (rc == 0 && (!p || !meta))
		rc = dt_err_sys(err, -ENOMEM, "cannot write '%s'", dst);
	for (int i = 0; i < n && rc == 0; i++) {
		const bool buffer = i >= params->n;
		const struct dt_param *q = buffer ? &e->buffers.p[i - params->n] : &params->p[i];
		int dtype = buffer	       ? DT_F32
			    : e->x->format < 0 ? dt_format_info(dt_source_format(e->s, i))->dtype
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
		rc = dt_ckpt_write_shard_from(tmp, 0, p, n, e->x->compress, fill_piece, e, &list, err);
	if (rc == 0)
		rc = dt_ckpt_commit(dst, e->x->step, meta, &list, 1, 0, err);
	if (rc < 0 && tmp)
		dt_ckpt_discard(dst, tmp, made);
	json_decref(list);
	json_decref(meta);
	free(tmp);
	free(p);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
