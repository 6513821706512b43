#include "route/conf_priv.h"

#include "base/json.h"
#include "base/opt.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE (64 << 20) /* bytes */
#define MAX	 1e9

/* ---- numbers: one row for each key ---- */

enum kind { COUNT, SECONDS, BYTES, SHARE, NUMBER };

static const struct row {
	const char *key;
	enum kind kind;
	size_t at;
	double min, max, def;
} rows[] = {
#define AT(f) offsetof(struct dt_route_conf, f)
	{"retries", COUNT, AT(retries), 0, 100, 4},
	{"retry_budget", SHARE, AT(retry_budget), 0, 1, 0.1},
	{"retry_backoff_s", SECONDS, AT(backoff), 0, 60, 0.05},
	{"connect_timeout_s", SECONDS, AT(connect_timeout), 0.01, 600, 5},
	{"first_byte_timeout_s", SECONDS, AT(first_byte_timeout), 0.01, MAX, 600},
	{"between_bytes_timeout_s", SECONDS, AT(between_bytes_timeout), 0.01, MAX, 600},
	{"request_timeout_s", SECONDS, AT(request_timeout), 0.01, MAX, 3600},
	{"idle_timeout_s", SECONDS, AT(idle_timeout), 0.1, MAX, 75},
	{"head_timeout_s", SECONDS, AT(head_timeout), 0.1, MAX, 15},
	{"body_timeout_s", SECONDS, AT(body_timeout), 0.1, MAX, 60},
	{"health_interval_s", SECONDS, AT(health_interval), 0.05, MAX, 5},
	{"health_timeout_s", SECONDS, AT(health_timeout), 0.05, MAX, 5},
	{"health_fall", COUNT, AT(fall), 1, 1000, 3},
	{"health_rise", COUNT, AT(rise), 1, 1000, 1},
	{"circuit_failures", COUNT, AT(circuit_failures), 1, 1e6, 10},
	{"circuit_window_s", SECONDS, AT(circuit_window), 0.1, MAX, 120},
	{"circuit_open_s", SECONDS, AT(circuit_open), 0.05, MAX, 60},
	{"circuit_successes", COUNT, AT(circuit_successes), 1, 1e6, 3},
	{"queue", COUNT, AT(queue), 0, 1e6, 1024},
	{"queue_timeout_s", SECONDS, AT(queue_timeout), 0, MAX, 60},
	{"hedge_s", SECONDS, AT(hedge), 0, MAX, 0},
	{"scale_min", COUNT, AT(scale_least), 0, DT_PREFIX_SERVERS, 1},
	{"scale_max", COUNT, AT(scale_most), 0, DT_PREFIX_SERVERS, 0},
	{"scale_spares", COUNT, AT(scale_spares), 0, DT_PREFIX_SERVERS, 0},
	{"scale_requests", NUMBER, AT(scale_requests), 1e-3, 1e6, 8},
	{"scale_band", SHARE, AT(scale_band), 0, 0.9, 0.1},
	{"scale_up_after_s", SECONDS, AT(scale_up_after), 0, MAX, 5},
	{"scale_down_after_s", SECONDS, AT(scale_down_after), 0, MAX, 300},
	{"scale_zero_after_s", SECONDS, AT(scale_zero_after), 0, MAX, 600},
	{"scale_hold_s", SECONDS, AT(scale_hold), 0.1, MAX, 300},
	{"max_connections", COUNT, AT(connections), 1, 1e6, 10000},
	{"max_body_bytes", BYTES, AT(max_body), 1, 1e12, 8 << 20},
	{"max_memory_bytes", BYTES, AT(memory), 1 << 20, 1e15, 1 << 30},
	{"index_blocks", COUNT, AT(index_blocks), 1, 1 << 28, 1 << 18},
	{"index_age_s", SECONDS, AT(index_age), 1, MAX, 3600},
	{"resolve_s", SECONDS, AT(resolve), 0, MAX, 5},
	{"prefill_min_tokens", COUNT, AT(prefill_least), 0, 1e9, 512},
	{"events_interval_s", SECONDS, AT(events_interval), 0, 3600, 0.25},
#undef AT
};
#define NROWS (sizeof(rows) / sizeof(*rows))

static int store(struct dt_route_conf *c, const struct row *r, double v, struct dt_err *err)
{
	char *to = (char *)c + r->at;

	if (!isfinite(v) || v < r->min || v > r->max)
		return dt_err_set(err, -EINVAL, "'%s' is not between %g and %g", r->key, r->min, r->max);
	if ((r->kind == COUNT || r->kind == BYTES) && v != floor(v))
		return dt_err_set(err, -EINVAL, "'%s' is not a whole number", r->key);
	if (r->kind == COUNT)
		*(int *)to = (int)v;
	else if (r->kind == BYTES)
		*(int64_t *)to = (int64_t)v;
	else
		*(double *)to = v;
	return 0;
}

/* ---- structure ---- */

int dt_route_conf_real(const json_t *o, const char *key, double min, double max, double *ret,
		       struct dt_err *err)
{
	double v = *ret;
	int rc = dt_json_real(o, key, false, &v, err);

	if (rc < 0)
		return rc;
	if (!isfinite(v) || v < min || v > max)
		return dt_err_set(err, -EINVAL, "'%s' is not between %g and %g", key, min, max);
	*ret = v;
	return 0;
}

static int read_target(struct dt_route_target *t, const json_t *o, struct dt_err *err)
{
	static const char *const known[] = {"model", "weight", NULL};

	t->weight = 1;
	t->model = json_string_value(o);
	if (t->model)
		return 0;
	if (dt_json_keys(o, known, err) < 0 || dt_json_str(o, "model", true, &t->model, err) < 0 ||
	    dt_route_conf_real(o, "weight", 0, 1e6, &t->weight, err) < 0)
		return -EINVAL;
	return 0;
}

/* Reads NAME: "model", or NAME: {"to": [{"model", "weight"}, ...], "shadow", "shadow_share"}. */
static int read_name(struct dt_route_conf *c, const char *name, const json_t *o, struct dt_err *err)
{
	static const char *const known[] = {"to", "shadow", "shadow_share", NULL};
	struct dt_route_name *n = &c->name[c->nnames++];
	const json_t *to = json_is_string(o) ? o : json_object_get(o, "to");
	size_t many = json_is_array(to) ? json_array_size(to) : 1;
	double sum = 0;

	*n = (struct dt_route_name){.name = name, .shadow_share = 1};
	if (!json_is_string(o) &&
	    (dt_json_keys(o, known, err) < 0 || dt_json_str(o, "shadow", false, &n->shadow, err) < 0 ||
	     dt_route_conf_real(o, "shadow_share", 0, 1, &n->shadow_share, err) < 0))
		return -EINVAL;
	if (!to || many == 0)
		return dt_err_set(err, -EINVAL, "'to' is missing or empty");
	n->to = calloc(many, sizeof(*n->to));
	if (!n->to)
		return dt_err_sys(err, -ENOMEM, "cannot read the configuration");
	for (size_t i = 0; i < many; i++) {
		if (read_target(&n->to[i], json_is_array(to) ? json_array_get(to, i) : to, err) < 0)
			return -EINVAL;
		sum += n->to[i].weight;
		n->nto++;
	}
	return sum > 0 ? 0 : dt_err_set(err, -EINVAL, "all weights are 0");
}

static int read_lists(struct dt_route_conf *c, const json_t *o, struct dt_err *err)
{
	const json_t *servers = json_object_get(o, "servers"), *models = json_object_get(o, "models");
	const char *name;
	json_t *v;

	if (servers && !json_is_array(servers))
		return dt_err_set(err, -EINVAL, "'servers' is not an array");
	for (size_t i = 0; i < json_array_size(servers); i++)
		if (dt_route_conf_server(c, json_array_get(servers, i), err) < 0)
			return dt_err_prefix(err, "servers[%zu]", i);
	if (models && !json_is_object(models))
		return dt_err_set(err, -EINVAL, "'models' is not an object");
	c->name = calloc(json_object_size(models) + 1, sizeof(*c->name));
	if (!c->name)
		return dt_err_sys(err, -ENOMEM, "cannot read the configuration");
	json_object_foreach((json_t *)models, name, v) if (read_name(c, name, v, err) <
							   0) return dt_err_prefix(err, "models.%.60s", name);
	return 0;
}

/* Strings that the command line may set too. */
struct texts {
	const char *key_file, *books, *on_scale;
};

static int read_object(struct dt_route_conf *c, const json_t *o, struct texts *t, struct dt_err *err)
{
	const char *known[NROWS + 8] = {"policy", "servers", "models", "api_key_file", "books", "on_scale"};
	const char *policy = NULL;
	int rc;

	for (size_t i = 0; i < NROWS; i++)
		known[6 + i] = rows[i].key;
	rc = dt_json_keys(o, known, err);
	for (size_t i = 0; i < NROWS && rc >= 0; i++) {
		double v = 0;

		rc = dt_json_real(o, rows[i].key, false, &v, err);
		if (rc > 0)
			rc = store(c, &rows[i], v, err);
	}
	if (rc < 0 || dt_json_str(o, "policy", false, &policy, err) < 0 ||
	    dt_json_str(o, "api_key_file", false, &t->key_file, err) < 0 ||
	    dt_json_str(o, "books", false, &t->books, err) < 0 ||
	    dt_json_str(o, "on_scale", false, &t->on_scale, err) < 0)
		return -EINVAL;
	rc = policy ? dt_opt_choice_index(DT_BALANCE_POLICIES, policy) : (int)c->policy;
	if (rc < 0)
		return dt_err_set(err, -EINVAL, "'policy' is '%.60s', not one of " DT_BALANCE_POLICIES,
				  policy);
	c->policy = (enum dt_balance_policy)rc;
	return read_lists(c, o, err);
}

/*
 * Without a command the wanted number is only reported, to an autoscaler that may start more servers than are
 * configured.
 */
static int check_scale(struct dt_route_conf *c, struct dt_err *err)
{
	if (c->scale_most == 0)
		c->scale_most = c->on_scale && c->neach == 0 ? c->nservers : DT_PREFIX_SERVERS;
	if (c->on_scale && c->neach == 0 && c->scale_most > c->nservers)
		return dt_err_set(err, -EINVAL,
				  "'scale_max' is %d, but on_scale has only %d configured server%s",
				  c->scale_most, c->nservers, c->nservers == 1 ? "" : "s");
	if (c->scale_least > c->scale_most || c->scale_spares > c->scale_most)
		return dt_err_set(err, -EINVAL, "'%s' exceeds 'scale_max', which is %d",
				  c->scale_least > c->scale_most ? "scale_min" : "scale_spares",
				  c->scale_most);
	return 0;
}

static int check_whole(struct dt_route_conf *c, struct dt_err *err)
{
	if (c->nservers + c->neach == 0)
		return dt_err_set(err, -EINVAL, "no server is configured");
	for (int i = 0; i < c->nservers; i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(c->server[i].url, c->server[k].url))
				return dt_err_set(err, -EINVAL, "'%s' is configured twice", c->server[i].url);
	return check_scale(c, err);
}

static int read_all(struct dt_route_conf *c, const struct dt_route_args *args, struct dt_err *err)
{
	struct texts t = {0};

	if (args->file) {
		if (dt_json_load(args->file, MAX_FILE, &c->text, err) < 0)
			return -EINVAL;
		if (read_object(c, c->text, &t, err) < 0)
			return dt_err_prefix(err, "'%s'", args->file);
	}
	for (int i = 0; i < args->nurls; i++) {
		struct dt_route_server_conf *s = dt_route_conf_new(c, err);

		if (!s || dt_route_conf_url(c, args->url[i], false, err) < 0)
			return -EINVAL;
	}
	if (args->policy >= 0)
		c->policy = (enum dt_balance_policy)args->policy;
	t.key_file = args->key_file ? args->key_file : t.key_file;
	t.books = args->books ? args->books : t.books;
	t.on_scale = args->on_scale ? args->on_scale : t.on_scale;
	if ((t.books && !(c->books = strdup(t.books))) || (t.on_scale && !(c->on_scale = strdup(t.on_scale))))
		return dt_err_sys(err, -ENOMEM, "cannot read the configuration");
	if (t.key_file && dt_keyfile_read(t.key_file, &c->keys, err) < 0)
		return -EINVAL;
	for (int i = 0; i < args->nkeys; i++)
		if (dt_keyfile_add(&c->keys, args->key[i], err) < 0)
			return -EINVAL;
	return check_whole(c, err);
}

int dt_route_conf_read(struct dt_route_conf *ret, const struct dt_route_args *args, struct dt_err *err)
{
	struct dt_route_conf c = {0};
	int rc;

	for (size_t i = 0; i < NROWS; i++)
		store(&c, &rows[i], rows[i].def, NULL);
	rc = read_all(&c, args, err);
	if (rc < 0)
		dt_route_conf_release(&c);
	else
		*ret = c;
	return rc;
}

void dt_route_conf_release(struct dt_route_conf *c)
{
	for (int i = 0; i < c->nservers; i++) {
		free(c->server[i].url);
		free(c->server[i].model);
	}
	for (int i = 0; i < c->nnames; i++)
		free(c->name[i].to);
	free(c->server);
	free(c->watched);
	free(c->name);
	free(c->books);
	free(c->on_scale);
	dt_keyfile_release(&c->keys);
	json_decref(c->text);
	*c = (struct dt_route_conf){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
