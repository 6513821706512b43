/* Served models: the base model and its adapters, which can be loaded and unloaded. */
#include "base/http.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct dt_adapters *adapters_of(const struct dt_http_req *q)
{
	return dt_engine_params(q->engine)->adapters;
}

static json_t *base_json(const struct dt_http_req *q)
{
	return json_pack("{s:s, s:s, s:I, s:s, s:i}", "id", q->params->model_name, "object", "model",
			 "created", (json_int_t)time(NULL), "owned_by", "dt", "max_model_len",
			 dt_engine_params(q->engine)->max_len);
}

/* In vLLM's format: root is the path, parent the base model. */
static json_t *adapter_json(const struct dt_http_req *q, const struct dt_served_adapter *s)
{
	json_t *v = base_json(q);

	json_object_set_new(v, "id", json_string(s->name));
	json_object_set_new(v, "root", json_string(s->path));
	json_object_set_new(v, "parent", json_string(q->params->model_name));
	return v;
}

struct listing {
	const struct dt_http_req *q;
	json_t *list;
};

static void list_one(void *arg, const struct dt_served_adapter *s)
{
	const struct listing *l = arg;

	json_array_append_new(l->list, adapter_json(l->q, s));
}

enum MHD_Result dt_http_models(struct dt_http_req *q)
{
	struct listing l = {q, json_array()};

	json_array_append_new(l.list, base_json(q));
	if (adapters_of(q))
		dt_adapters_each(adapters_of(q), list_one, &l);
	return dt_http_reply_json(q, 200, json_pack("{s:s, s:o}", "object", "list", "data", l.list));
}

enum MHD_Result dt_http_model(struct dt_http_req *q)
{
	char *name = strdup(q->path + strlen(q->route->path));
	struct dt_served_adapter *s = NULL;
	struct dt_api_error e;
	json_t *v = NULL;

	if (!name) {
		dt_http_no_memory(&e);
		return dt_http_reply_error(q, &e);
	}
	dt_http_unescape(name);
	if (!strcmp(name, q->params->model_name))
		v = base_json(q);
	else if (adapters_of(q) && (s = dt_adapters_find(adapters_of(q), name)))
		v = adapter_json(q, s);
	dt_adapters_drop(s);
	if (!v)
		dt_api_no_model(&e, name, q->params->model_name, adapters_of(q));
	free(name);
	return v ? dt_http_reply_json(q, 200, v) : dt_http_reply_error(q, &e);
}

/* ---- loading and unloading ---- */

static int fail(struct dt_api_error *e, int rc, const char *msg)
{
	const int status = rc == -EPERM ? 403 : rc == -ENOENT ? 404 : rc == -ENOMEM ? 500 : 400;

	return dt_api_fail(e, status, status < 500 ? "invalid_request_error" : "server_error", NULL, "%s",
			   msg);
}

/* Reads the body's lora_name and, for loading, lora_path and load_inplace. -EINVAL with e filled. */
static int read_keys(const json_t *o, const char **name, const char **path, bool *replace,
		     struct dt_api_error *e)
{
	const char *key;
	struct dt_err err;
	json_t *v;

	json_object_foreach((json_t *)o, key, v)
	{
		if (!strcmp(key, "lora_name") || (path && !strcmp(key, "lora_path")) ||
		    (path && !strcmp(key, "load_inplace")))
			continue;
		return dt_api_fail(e, 400, "invalid_request_error", NULL, "unknown key '%.60s'", key);
	}
	if (dt_json_str(o, "lora_name", true, name, &err) < 0 ||
	    (path && dt_json_str(o, "lora_path", true, path, &err) < 0) ||
	    (path && dt_json_bool(o, "load_inplace", false, replace, &err) < 0))
		return dt_api_fail(e, 400, "invalid_request_error", NULL, "%s", err.msg);
	return 0;
}

static enum MHD_Result said(struct dt_http_req *q, const char *name, const char *what)
{
	char *text = NULL;
	int n = asprintf(&text, "Success: LoRA adapter '%s' %s successfully", name, what);

	return dt_http_reply_text(q, 200, "text/plain; charset=utf-8", n < 0 ? NULL : text,
				  n < 0 ? 0 : (size_t)n);
}

/* Loads or unloads the adapter named in the body. */
static enum MHD_Result change(struct dt_http_req *q, bool load)
{
	const char *name = "", *path = "";
	enum MHD_Result r = MHD_NO;
	struct dt_api_error e;
	struct dt_err err;
	bool replace = false;
	json_t *body = dt_http_body(q, &e);
	int rc = body ? read_keys(body, &name, load ? &path : NULL, &replace, &e) : -EINVAL;

	if (rc == 0 && !adapters_of(q)) {
		rc = fail(&e, -EPERM, "this server has no adapters: it was started without --lora-dir");
	} else if (rc == 0) {
		rc = load ? dt_adapters_add(adapters_of(q), name, path, true, replace, &err)
			  : dt_adapters_remove(adapters_of(q), name, &err);
		if (rc < 0)
			rc = fail(&e, rc, err.msg);
	}
	if (rc == 0)
		r = said(q, name, load ? "added" : "removed");
	json_decref(body);
	return rc < 0 ? dt_http_reply_error(q, &e) : r;
}

enum MHD_Result dt_http_load_adapter(struct dt_http_req *q)
{
	return change(q, true);
}

enum MHD_Result dt_http_unload_adapter(struct dt_http_req *q)
{
	return change(q, false);
}
/* SPDX-License-Identifier: Apache-2.0 */
