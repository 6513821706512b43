/* Routes of an image classifier. */
#include "data/image.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* top_k of the query string, used when the body is an image. -EINVAL with e filled. */
static int top_of(struct dt_http_req *q, int *ret, struct dt_api_error *e)
{
	const char *s = MHD_lookup_connection_value(q->mhd, MHD_GET_ARGUMENT_KIND, "top_k");
	json_t *v = s ? json_loads(s, JSON_DECODE_ANY, NULL) : NULL;
	int rc;

	if (s && !v)
		v = json_null();
	rc = dt_classification_read_top(v, ret, e);
	json_decref(v);
	return rc;
}

/* Charges the memory of n decoded images before they are decoded. */
static int charge(struct dt_http_req *q, size_t n, struct dt_api_error *e)
{
	const struct dt_classify_info i = dt_classify_info(q->classify);

	n = n < DT_CLASSIFY_IMAGES ? n : DT_CLASSIFY_IMAGES; /* more are refused later */
	return dt_http_take(q, n * (i.row + (size_t)i.classes) * sizeof(float)) ? 0 : dt_http_no_memory(e);
}

static int read_raw(struct dt_http_req *q, struct dt_classification *r, struct dt_api_error *e)
{
	int top;

	return top_of(q, &top, e) < 0 || charge(q, 1, e) < 0
		       ? -EINVAL
		       : dt_classification_raw(r, q->classify, q->body, q->n, top, e);
}

/* Answers 404 if the body names another model than the one served, as the routes of text do. */
static int check_model(const struct dt_http_req *q, const json_t *body, struct dt_api_error *e)
{
	const char *model = NULL;
	struct dt_err err;

	if (dt_json_str(body, "model", false, &model, &err) < 0)
		return dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", err.msg);
	return !model || !strcmp(model, q->params->model_name)
		       ? 0
		       : dt_api_no_model(e, model, q->params->model_name, NULL);
}

static int read_json(struct dt_http_req *q, struct dt_classification *r, struct dt_api_error *e)
{
	json_t *body;
	size_t n, i = 0;
	int rc;

	while (i < q->n && q->body[i] && strchr(" \t\r\n", q->body[i]))
		i++;
	if (i < q->n && q->body[i] != '{' && q->body[i] != '[') /* most likely an image of another format */
		return dt_api_fail(e, 400, "invalid_request_error", NULL,
				   "the body is neither a JPEG, PNG or PNM image nor a JSON object");
	body = dt_http_body(q, e);
	n = json_array_size(json_object_get(body, "images"));
	rc = body ? charge(q, n ? n : 1, e) : -EINVAL;
	if (rc == 0)
		rc = check_model(q, body, e);
	if (rc == 0)
		rc = dt_classification_parse(r, q->classify, body, e);
	json_decref(body);
	return rc;
}

/* Decodes the images of the body, then frees the body. */
static int read_images(struct dt_http_req *q, struct dt_classification *r, struct dt_api_error *e)
{
	const bool raw = q->body && dt_image_kind((const uint8_t *)q->body, q->n) != DT_IMAGE_UNKNOWN;
	const int rc = raw ? read_raw(q, r, e) : read_json(q, r, e);

	free(q->body);
	q->body = NULL;
	q->n = q->cap = 0;
	return rc;
}

enum MHD_Result dt_http_classify(struct dt_http_req *q)
{
	struct dt_classification r = {0};
	struct dt_api_error e;
	json_t *v = NULL;

	if (read_images(q, &r, &e) == 0 && dt_classification_run(&r, q->classify, &e) == 0) {
		v = dt_classification_json(&r, q->classify, q->params->model_name);
		if (!v)
			dt_api_fail(&e, 500, "server_error", NULL, "out of memory");
	}
	dt_classification_release(&r);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

enum MHD_Result dt_http_classify_models(struct dt_http_req *q)
{
	const struct dt_classify_info i = dt_classify_info(q->classify);
	json_t *classes = json_array();

	for (int k = 0; k < i.classes; k++)
		json_array_append_new(classes, json_string(i.name[k]));
	return dt_http_reply_json(q, 200,
				  json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:i, s:i, s:o}]}", "object",
					    "list", "data", "id", q->params->model_name, "object", "model",
					    "created", (json_int_t)time(NULL), "owned_by", "dt", "image_size",
					    i.side, "channels", i.channels, "classes", classes));
}

enum MHD_Result dt_http_classify_metrics(struct dt_http_req *q)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	struct dt_api_error e;

	if (!f || dt_classify_metrics(q->classify, q->params->model_name, f) < 0 || fclose(f) == EOF) {
		free(text);
		dt_api_fail(&e, 500, "server_error", NULL, "out of memory");
		return dt_http_reply_error(q, &e);
	}
	return dt_http_reply_text(q, 200, "text/plain; version=0.0.4; charset=utf-8", text, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
