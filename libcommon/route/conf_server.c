/* Servers in a router's configuration: their entries, and the addresses of their host names. */
#include "route/conf_priv.h"

#include "base/http.h"
#include "base/json.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

/* Splits http://HOST:PORT; returns what follows the port; NULL: err is set. */
static const char *split_url(const char *url, char host[256], char port[8], struct dt_err *err)
{
	const char *at = strncmp(url, "http://", 7) ? NULL : url + 7, *colon, *end;

	snprintf(port, 8, "80");
	end = !at ? NULL : *at == '[' ? strchr(at, ']') : at + strcspn(at, ":/");
	if (!end || end - at >= 256 - 8 || end == at) {
		dt_err_set(err, -EINVAL, "'%.200s' is not http://HOST:PORT", url);
		return NULL;
	}
	snprintf(host, 256, "%.*s", (int)(end - at - (*at == '[')), at + (*at == '['));
	colon = *end == ']' ? end + 1 : end;
	if (*colon == ':') {
		size_t n = strspn(colon + 1, "0123456789");

		long number = n == 0 || n > 5 ? 0 : strtol(colon + 1, NULL, 10);

		if (number < 1 || number > 65535) {
			dt_err_set(err, -EINVAL, "'%.200s' has no port from 1 to 65535 after ':'", url);
			return NULL;
		}
		snprintf(port, 8, "%ld", number);
		colon += 1 + n;
	}
	return colon;
}

uint64_t dt_route_conf_sum(const struct addrinfo *list)
{
	uint64_t sum = 1;

	for (; list; list = list->ai_next)
		sum += dt_prefix_hash(11, list->ai_addr, list->ai_addrlen) | 1;
	return sum;
}

/* Adds a host name that is not an address to those that are looked up again from time to time. */
static int watch(struct dt_route_conf *c, const char *host, const char *port, bool each,
		 const struct addrinfo *list, struct dt_err *err)
{
	struct dt_route_watched *w = realloc(c->watched, ((size_t)c->nwatched + 1) * sizeof(*w));
	unsigned char any[16];

	if (!w)
		return dt_err_sys(err, -ENOMEM, "cannot read the configuration");
	c->watched = w;
	if (inet_pton(AF_INET, host, any) == 1 || inet_pton(AF_INET6, host, any) == 1)
		return 0;
	w = &c->watched[c->nwatched++];
	*w = (struct dt_route_watched){.each = each, .sum = dt_route_conf_sum(list)};
	snprintf(w->host, sizeof(w->host), "%s", host);
	snprintf(w->port, sizeof(w->port), "%s", port);
	return 0;
}

static int take_address(struct dt_route_server_conf *s, const char *host, const char *port,
			const struct addrinfo *a, struct dt_err *err)
{
	memcpy(&s->addr, a->ai_addr, a->ai_addrlen);
	s->addrlen = a->ai_addrlen;
	snprintf(s->host, sizeof(s->host), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	free(s->url);
	if (asprintf(&s->url, "http://%s", s->host) < 0) {
		s->url = NULL;
		return dt_err_sys(err, -ENOMEM, "cannot read the configuration");
	}
	return 0;
}

struct dt_route_server_conf *dt_route_conf_new(struct dt_route_conf *c, struct dt_err *err)
{
	struct dt_route_server_conf *p = c->nservers < DT_PREFIX_SERVERS
						 ? realloc(c->server, ((size_t)c->nservers + 1) * sizeof(*p))
						 : NULL;

	if (!p) {
		dt_err_set(err, -EINVAL, "a router has at most %d servers", DT_PREFIX_SERVERS);
		return NULL;
	}
	c->server = p;
	p[c->nservers] = (struct dt_route_server_conf){.weight = 1};
	return &p[c->nservers++];
}

/* Appends a copy of the server with this number, without an address. */
static int copy_server(struct dt_route_conf *c, int number, struct dt_err *err)
{
	struct dt_route_server_conf *s = dt_route_conf_new(c, err), from;

	if (!s)
		return -EINVAL;
	from = c->server[number];
	*s = from;
	s->url = NULL;
	s->model = from.nmodels ? calloc((size_t)from.nmodels, sizeof(*s->model)) : NULL;
	if (from.nmodels && !s->model)
		return dt_err_sys(err, -ENOMEM, "cannot read the configuration");
	for (int i = 0; i < from.nmodels; i++)
		s->model[i] = from.model[i];
	return 0;
}

/* Replaces the last server by one for each of these addresses, of which there may be none. */
static int spread(struct dt_route_conf *c, const char *port, const struct addrinfo *list, struct dt_err *err)
{
	int first = c->nservers - 1;
	char host[NI_MAXHOST];

	c->neach++;
	if (!list) {
		free(c->server[first].model);
		c->nservers--;
	}
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		if (a != list && copy_server(c, first, err) < 0)
			return -EINVAL;
		if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST))
			return dt_err_set(err, -EINVAL, "cannot format the address of a server");
		if (take_address(&c->server[c->nservers - 1], host, port, a, err) < 0)
			return -ENOMEM;
	}
	return 0;
}

/*
 * Host and port of a server. "host:port" means http://host:port; the path /v1 is cut off, so that equal
 * servers have equal URLs. -EINVAL.
 */
static int read_url(const char *given, char url[600], char host[256], char port[8], struct dt_err *err)
{
	const char *path;

	snprintf(url, 600, "%s%.500s", strstr(given, "://") ? "" : "http://", given);
	path = split_url(url, host, port, err);
	if (!path)
		return -EINVAL;
	if (strcmp(path, "") && strcmp(path, "/") && strcmp(path, "/v1") && strcmp(path, "/v1/"))
		return dt_err_set(err, -EINVAL, "'%.200s' has a path; expected http://HOST:PORT", url);
	return 0;
}

int dt_route_args_check(const struct dt_route_args *args, struct dt_err *err)
{
	char host[256], port[8], url[600];
	struct dt_keyfile keys = {0};
	int rc = 0;

	for (int i = 0; i < args->nurls && rc == 0; i++)
		rc = read_url(args->url[i], url, host, port, err);
	for (int i = 0; i < args->nkeys && rc == 0; i++)
		rc = dt_keyfile_add(&keys, args->key[i], err);
	dt_keyfile_release(&keys);
	return rc;
}

int dt_route_conf_url(struct dt_route_conf *c, const char *given, bool each, struct dt_err *err)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char host[256], port[8], url[600];
	int rc = read_url(given, url, host, port, err);

	if (rc < 0)
		return rc;
	rc = getaddrinfo(host, port, &hint, &list);
	if (rc != 0 && !(each && (rc == EAI_NONAME || rc == EAI_NODATA || rc == EAI_AGAIN)))
		return dt_err_set(err, -EINVAL, "'%.200s': %s", url, gai_strerror(rc));
	list = rc == 0 ? list : NULL;
	rc = watch(c, host, port, each, list, err);
	if (rc == 0)
		rc = each ? spread(c, port, list, err)
			  : take_address(&c->server[c->nservers - 1], host, port, list, err);
	if (list)
		freeaddrinfo(list);
	return rc;
}

static int read_models(struct dt_route_server_conf *s, const json_t *models, struct dt_err *err)
{
	if (!models)
		return 0;
	if (!json_is_array(models) || json_array_size(models) == 0)
		return dt_err_set(err, -EINVAL, "'models' is not a non-empty array of strings");
	s->model = calloc(json_array_size(models), sizeof(*s->model));
	for (size_t i = 0; s->model && i < json_array_size(models); i++) {
		s->model[i] = json_string_value(json_array_get(models, i));
		if (!s->model[i])
			return dt_err_set(err, -EINVAL, "'models' is not a non-empty array of strings");
		s->nmodels++;
	}
	return s->model ? 0 : dt_err_sys(err, -ENOMEM, "cannot read the configuration");
}

int dt_route_conf_server(struct dt_route_conf *c, const json_t *o, struct dt_err *err)
{
	static const char *const known[] = {"url",	   "each",    "key",	"weight",
					    "max_running", "drained", "models", NULL};
	struct dt_route_server_conf *s = dt_route_conf_new(c, err);
	const char *url = NULL;
	int64_t most = 0;
	bool each = false;

	if (!s || dt_json_keys(o, known, err) < 0 || dt_json_str(o, "url", true, &url, err) < 0 ||
	    dt_json_bool(o, "each", false, &each, err) < 0 ||
	    dt_json_str(o, "key", false, &s->key, err) < 0 ||
	    dt_route_conf_real(o, "weight", 1e-3, 1e6, &s->weight, err) < 0 ||
	    dt_json_int(o, "max_running", false, 0, 1000000, &most, err) < 0 ||
	    dt_json_bool(o, "drained", false, &s->drained, err) < 0 ||
	    read_models(s, json_object_get(o, "models"), err) < 0)
		return -EINVAL;
	s->most = (int)most;
	if (s->key && !dt_http_is_text(s->key, strlen(s->key)))
		return dt_err_set(err, -EINVAL, "'key' contains a control character");
	return dt_route_conf_url(c, url, each, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
