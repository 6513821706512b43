/* The table of adapters: names, versions, adapters added by clients. */
#include "serve/engine/adapters.h"

#include "base/cond.h"
#include "base/progress.h"
#include "data/tokenizer.h"
#include "serve/engine/adapters_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define NAME_MAX_BYTES 128

int dt_adapters_open(struct dt_adapters **ret, const struct dt_adapters_params *p, struct dt_err *err)
{
	struct dt_adapters *a = calloc(1, sizeof(*a));

	if (!a)
		return dt_err_sys(err, -ENOMEM, "cannot keep adapters");
	a->p = *p;
	TAILQ_INIT(&a->all);
	TAILQ_INIT(&a->queue);
	pthread_mutex_init(&a->mu, NULL);
	pthread_mutex_init(&a->reading, NULL);
	dt_cond_init_monotonic(&a->changed);
	if (p->dir && !(a->dir = realpath(p->dir, NULL))) {
		const int rc = -errno;

		dt_adapters_close(a);
		return dt_err_sys(err, rc, "cannot open '%s'", p->dir);
	}
	*ret = a;
	return 0;
}

static void adapter_free(struct dt_served_adapter *s)
{
	TAILQ_REMOVE(&s->of->all, s, in_list);
	dt_adapters_evict(s);
	free(s->name);
	free(s->path);
	free(s);
}

void dt_adapters_close(struct dt_adapters *a)
{
	if (!a)
		return;
	while (!TAILQ_EMPTY(&a->all))
		adapter_free(TAILQ_FIRST(&a->all));
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->reading);
	pthread_mutex_destroy(&a->mu);
	free(a->dir);
	free(a);
}

/* Drops one reference; the last one frees the adapter. Call with the lock held. */
static void unref(struct dt_served_adapter *s)
{
	if (--s->refs == 0)
		adapter_free(s);
}

/* Call with the lock held. */
static struct dt_served_adapter *find(struct dt_adapters *a, const char *name)
{
	struct dt_served_adapter *s;

	TAILQ_FOREACH (s, &a->all, in_list)
		if (s->listed && !strcmp(s->name, name))
			return s;
	return NULL;
}

/* Removes s from the list; requests that hold it keep it until they end. Call with the lock held. */
static void unlist(struct dt_served_adapter *s)
{
	s->listed = false;
	if (s->holds == 0)
		dt_adapters_evict(s);
	unref(s);
}

/* Resolves the path that a client gave; it must be inside the folder of adapters. */
static int inside(const struct dt_adapters *a, const char *path, char **ret, struct dt_err *err)
{
	char *full = NULL, *real;
	size_t n;

	if (!a->dir)
		return dt_err_set(err, -EPERM, "adapters can only be loaded if the server has --lora-dir");
	if (path[0] != '/' && asprintf(&full, "%s/%s", a->dir, path) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot load '%s'", path);
	real = realpath(full ? full : path, NULL);
	n = strlen(a->dir);
	free(full);
	/* one answer for missing and for forbidden paths, so that clients cannot probe for files */
	if (!real || strncmp(real, a->dir, n) || (n > 1 && real[n] != '/')) {
		free(real);
		return dt_err_set(err, -EPERM, "'%s' is not in the folder of --lora-dir", path);
	}
	*ret = real;
	return 0;
}

/* -EINVAL: the adapter's tokenizer has more tokens than the base model's. */
static int check_tokenizer(const struct dt_adapters *a, const char *path, struct dt_err *err)
{
	struct dt_tokenizer *t = NULL;
	char file[PATH_MAX];
	struct stat st;
	int rc, more;

	if (snprintf(file, sizeof(file), "%s/tokenizer.json", path) >= (int)sizeof(file) ||
	    stat(file, &st) < 0)
		return 0;
	rc = dt_tokenizer_open(file, &t, err);
	if (rc < 0)
		return rc;
	more = dt_tokenizer_vocab(t) - dt_tokenizer_vocab(a->p.tok);
	dt_tokenizer_close(t);
	if (more > 0)
		return dt_err_set(
			err, -EINVAL,
			"adapter '%s': its tokenizer has %d more tokens than the base model's, which the "
			"base model cannot embed",
			path, more);
	return 0;
}

static int check_name(const char *name, struct dt_err *err)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < ' ' || strchr(",\"\\", name[i]))
			n = 0;
	return n > 0 && n <= NAME_MAX_BYTES ? 0
					    : dt_err_set(err, -EINVAL,
							 "the name of an adapter must have 1 to %d bytes and "
							 "no comma, quote, backslash or "
							 "control character",
							 NAME_MAX_BYTES);
}

/* Creates an entry; takes over path on success. */
static int make(struct dt_adapters *a, const char *name, char *path, struct dt_served_adapter **ret,
		struct dt_err *err)
{
	struct dt_served_adapter *s = calloc(1, sizeof(*s));

	if (s)
		*s = (struct dt_served_adapter){.of = a,
						.name = strdup(name),
						.path = path,
						.refs = 1,
						.listed = true,
						.quota = dt_quota_full(a->p.quota, dt_now())};
	if (!s || !s->name) {
		free(s);
		free(path);
		return dt_err_sys(err, -ENOMEM, "cannot load '%s'", name);
	}
	*ret = s;
	return 0;
}

/* Puts s on the list in order of names; replaces an entry of the same name. Call with the lock held. */
static int list(struct dt_adapters *a, struct dt_served_adapter *s, bool replace, struct dt_err *err)
{
	struct dt_served_adapter *old = find(a, s->name), *at;

	if (!strcmp(s->name, a->p.name))
		return dt_err_set(err, -EEXIST, "'%s' is the name of the base model", s->name);
	if (old && !replace)
		return dt_err_set(err, -EEXIST, "adapter '%s' exists already", s->name);
	if (old)
		unlist(old);
	s->number = ++a->numbers;
	TAILQ_FOREACH (at, &a->all, in_list)
		if (strcmp(at->name, s->name) > 0)
			break;
	if (at)
		TAILQ_INSERT_BEFORE(at, s, in_list);
	else
		TAILQ_INSERT_TAIL(&a->all, s, in_list);
	return 0;
}

int dt_adapters_add(struct dt_adapters *a, const char *name, const char *path, bool asked, bool replace,
		    struct dt_err *err)
{
	struct dt_served_adapter *s;
	struct dt_infer_adapter *in = NULL;
	char *own = NULL;
	int rc = check_name(name, err);

	if (rc == 0)
		rc = asked		    ? inside(a, path, &own, err)
		     : (own = strdup(path)) ? 0
					    : dt_err_sys(err, -ENOMEM, "cannot load '%s'", path);
	if (rc == 0)
		rc = check_tokenizer(a, own, err);
	if (rc < 0) {
		free(own);
		return rc;
	}
	rc = make(a, name, own, &s, err);
	if (rc < 0)
		return rc;
	rc = dt_adapters_read(s, &in, err);
	if (rc == 0)
		s->sum = dt_infer_adapter_sum(in);
	pthread_mutex_lock(&a->mu);
	if (rc == 0)
		rc = list(a, s, replace, err);
	if (rc == 0 && a->in_memory < a->p.resident) {
		s->in = in;
		s->used = dt_now();
		a->in_memory++;
		a->bytes += dt_infer_adapter_bytes(in);
		a->loads++;
		in = NULL;
	}
	pthread_mutex_unlock(&a->mu);
	dt_infer_adapter_close(in);
	if (rc < 0) {
		free(s->name);
		free(s->path);
		free(s);
	}
	return rc;
}

int dt_adapters_remove(struct dt_adapters *a, const char *name, struct dt_err *err)
{
	struct dt_served_adapter *s;
	int rc = 0;

	if (!a->dir)
		return dt_err_set(err, -EPERM, "adapters can only be unloaded if the server has --lora-dir");
	pthread_mutex_lock(&a->mu);
	s = find(a, name);
	if (s)
		unlist(s);
	else
		rc = dt_err_set(err, -ENOENT, "no adapter '%.128s'", name);
	pthread_mutex_unlock(&a->mu);
	return rc;
}

struct dt_served_adapter *dt_adapters_find(struct dt_adapters *a, const char *name)
{
	struct dt_served_adapter *s;

	pthread_mutex_lock(&a->mu);
	s = find(a, name);
	if (s)
		s->refs++;
	pthread_mutex_unlock(&a->mu);
	return s;
}

void dt_adapters_drop(struct dt_served_adapter *s)
{
	struct dt_adapters *a = s ? s->of : NULL;

	if (!s)
		return;
	pthread_mutex_lock(&a->mu);
	unref(s);
	pthread_mutex_unlock(&a->mu);
}

void dt_adapters_count(struct dt_served_adapter *s, int prompt, int generated)
{
	pthread_mutex_lock(&s->of->mu);
	s->requests++;
	s->prompt_tokens += (uint64_t)prompt;
	s->generation_tokens += (uint64_t)generated;
	pthread_mutex_unlock(&s->of->mu);
}

void dt_adapters_each(struct dt_adapters *a, void (*each)(void *arg, const struct dt_served_adapter *s),
		      void *arg)
{
	struct dt_served_adapter *s;

	pthread_mutex_lock(&a->mu);
	TAILQ_FOREACH (s, &a->all, in_list)
		if (s->listed)
			each(arg, s);
	pthread_mutex_unlock(&a->mu);
}

/* Writes the names of adapters that are held, or that are waited for. */
static void write_names(struct dt_adapters *a, bool waiting, FILE *f)
{
	const struct dt_served_adapter *s;
	const char *comma = "";

	TAILQ_FOREACH (s, &a->all, in_list)
		if (waiting ? s->waiters > 0 || s->loading : s->holds > 0) {
			fprintf(f, "%s%s", comma, s->name);
			comma = ",";
		}
}

static void write_counter(struct dt_adapters *a, const char *what, const char *help, int which, FILE *f)
{
	const struct dt_served_adapter *s;

	fprintf(f, "# HELP dt_serve_lora_%s %s\n# TYPE dt_serve_lora_%s counter\n", what, help, what);
	TAILQ_FOREACH (s, &a->all, in_list) {
		const uint64_t v[] = {s->requests, s->prompt_tokens, s->generation_tokens};

		if (s->listed && s->requests > 0) /* leaves out the many that have had no request */
			fprintf(f, "dt_serve_lora_%s{lora_name=\"%s\"} %" PRIu64 "\n", what, s->name,
				v[which]);
	}
}

static void write_number(const char *what, const char *type, const char *help, uint64_t v, FILE *f)
{
	fprintf(f, "# HELP dt_serve_lora_%s %s\n# TYPE dt_serve_lora_%s %s\ndt_serve_lora_%s %" PRIu64 "\n",
		what, help, what, type, what, v);
}

void dt_adapters_write(struct dt_adapters *a, FILE *f)
{
	pthread_mutex_lock(&a->mu);
	fprintf(f, "# HELP dt_serve_lora_requests_info Adapters of running and of waiting requests.\n"
		   "# TYPE dt_serve_lora_requests_info gauge\n");
	fprintf(f, "dt_serve_lora_requests_info{max_lora=\"%d\",running_lora_adapters=\"", a->p.resident);
	write_names(a, false, f);
	fprintf(f, "\",waiting_lora_adapters=\"");
	write_names(a, true, f);
	fprintf(f, "\"} %lld\n", (long long)time(NULL));
	write_number("resident", "gauge", "Adapters in memory.", (uint64_t)a->in_memory, f);
	write_number("memory_bytes", "gauge", "Bytes of adapters in memory.", a->bytes, f);
	write_number("loads_total", "counter", "Adapters loaded into memory.", a->loads, f);
	write_number("evictions_total", "counter", "Adapters evicted from memory.", a->evictions, f);
	write_counter(a, "requests_total", "Finished requests of an adapter.", 0, f);
	write_counter(a, "prompt_tokens_total", "Prompt tokens of finished requests of an adapter.", 1, f);
	write_counter(a, "generation_tokens_total", "Generated tokens of finished requests of an adapter.", 2,
		      f);
	pthread_mutex_unlock(&a->mu);
}
/* SPDX-License-Identifier: Apache-2.0 */
