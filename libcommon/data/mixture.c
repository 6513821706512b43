#include "data/mixture.h"

#include "base/tmpfile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 4096

struct part {
	char *path;
	double weight;
	struct dt_dataset *data;
	struct dt_sampler sampler;
};

struct dt_mixture {
	struct part part[DT_MIXTURE_PARTS];
	int parts;
	struct dt_mixture_order order;
	struct dt_dataset_info info;
	char text[TEXT_BYTES];
};

/* Parses "PATH:WEIGHT" of n bytes; the text after the last colon is a weight if it is a number. */
static int take_part(struct part *p, const char *s, size_t n, const char *spec, struct dt_err *err)
{
	char *colon, *end;

	p->weight = 1;
	p->path = strndup(s, n);
	if (!p->path)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", spec);
	colon = strrchr(p->path, ':');
	if (colon && colon[1] && access(p->path, F_OK) < 0) {
		double v = strtod(colon + 1, &end);

		if (!*end) {
			p->weight = v;
			*colon = '\0';
		}
	}
	return *p->path ? 0 : dt_err_set(err, -EINVAL, "'%s' has a data set with an empty path", spec);
}

static int parse(const char *spec, struct part *part, int *ret_parts, struct dt_err *err)
{
	int n = 0, rc = 0;
	bool whole = access(spec, F_OK) == 0 || !strpbrk(spec, ",:");

	for (const char *s = spec; rc == 0; n++) {
		size_t length = whole ? strlen(s) : strcspn(s, ",");

		if (n == DT_MIXTURE_PARTS)
			rc = dt_err_set(err, -EINVAL, "at most %d data sets can be mixed", n);
		else
			rc = take_part(&part[n], s, length, spec, err);
		if (rc < 0 || !s[length]) {
			n += rc == 0;
			break;
		}
		s += length + 1;
	}
	*ret_parts = n;
	return rc;
}

bool dt_mixture_has(const char *spec, const char *out)
{
	struct part part[DT_MIXTURE_PARTS] = {0};
	int n;
	bool has = dt_out_is(out, spec);

	parse(spec, part, &n, NULL);
	for (int i = 0; i < DT_MIXTURE_PARTS; i++) {
		has |= part[i].path && dt_out_is(out, part[i].path);
		free(part[i].path);
	}
	return has;
}

static const char *contents(const struct dt_dataset_info *i)
{
	return i->labels	 ? "texts with labels"
	       : !i->preferences ? "text"
	       : i->labelled	 ? "labelled answers"
				 : "pairs of answers";
}

static int open_part(struct dt_mixture *m, int i, int64_t seq, uint64_t seed, bool shuffle,
		     struct dt_err *err)
{
	struct part *p = &m->part[i];
	struct dt_dataset_info info;
	int rc = dt_dataset_open(p->path, &p->data, err);

	if (rc == 0)
		rc = dt_sampler_init(&p->sampler, p->data, seq, seed, shuffle, err);
	if (rc < 0)
		return rc;
	dt_dataset_info(p->data, &info);
	if (!i) {
		m->info = info;
		return 0;
	}
	if (strcmp(info.tokenizer_hash, m->info.tokenizer_hash))
		return dt_err_set(err, -EINVAL, "'%s' and '%s' were made with different tokenizers",
				  m->part[0].path, p->path);
	if (info.preferences != m->info.preferences || info.labelled != m->info.labelled ||
	    info.labels != m->info.labels)
		return dt_err_set(err, -EINVAL, "'%s' holds %s and '%s' %s: they cannot be mixed",
				  m->part[0].path, contents(&m->info), p->path, contents(&info));
	m->info.tokens += info.tokens;
	m->info.documents += info.documents;
	m->info.shards += info.shards;
	m->info.apart &= info.apart;
	return 0;
}

static void write_text(struct dt_mixture *m)
{
	size_t at = 0;

	for (int i = 0; i < m->parts && m->parts > 1 && at < sizeof(m->text); i++) {
		struct dt_dataset_info info;

		dt_dataset_info(m->part[i].data, &info);
		at += (size_t)snprintf(m->text + at, sizeof(m->text) - at, "%s%lld of %lld tokens",
				       i ? ", " : "", (long long)m->order.weight[i], (long long)info.tokens);
	}
}

/* Reads a mixture's paths and order, without opening its data sets. */
static int read_spec(const char *spec, struct dt_mixture **ret, struct dt_err *err)
{
	struct dt_mixture *m = *ret = calloc(1, sizeof(*m));
	double weight[DT_MIXTURE_PARTS];
	int rc =
		m ? parse(spec, m->part, &m->parts, err) : dt_err_sys(err, -ENOMEM, "cannot open '%s'", spec);

	for (int i = 0; rc == 0 && i < m->parts; i++)
		weight[i] = m->part[i].weight;
	return rc == 0 ? dt_mixture_order_init(&m->order, m->parts, weight, err) : rc;
}

int dt_mixture_check(const char *spec, struct dt_err *err)
{
	struct dt_mixture *m;
	int rc = read_spec(spec, &m, err);

	dt_mixture_close(m);
	return rc;
}

int dt_mixture_open(const char *spec, int64_t seq, uint64_t seed, bool shuffle, struct dt_mixture **ret,
		    struct dt_err *err)
{
	struct dt_mixture *m;
	int rc = read_spec(spec, &m, err);

	for (int i = 0; rc == 0 && i < m->parts; i++)
		rc = open_part(m, i, seq, seed, shuffle, err);
	if (rc < 0) {
		dt_mixture_close(m);
		return rc;
	}
	write_text(m);
	*ret = m;
	return 0;
}

void dt_mixture_close(struct dt_mixture *m)
{
	if (!m)
		return;
	for (int i = 0; i < DT_MIXTURE_PARTS; i++) {
		dt_dataset_close(m->part[i].data);
		free(m->part[i].path);
	}
	dt_mixture_order_release(&m->order);
	free(m);
}

void dt_mixture_info(const struct dt_mixture *m, struct dt_dataset_info *ret)
{
	*ret = m->info;
}

int64_t dt_mixture_cursor(const struct dt_mixture *m, int64_t n, int i)
{
	int64_t period = m->order.period, given = n / period * m->order.weight[i];

	for (int64_t r = n % period; r-- > 0;)
		if (m->order.part[r] == i)
			return given + m->order.before[r] + 1;
	return given;
}

int dt_mixture_parts(const struct dt_mixture *m)
{
	return m ? m->parts : 0;
}

void dt_mixture_part(const struct dt_mixture *m, int i, struct dt_mixture_part *ret)
{
	*ret = (struct dt_mixture_part){m->part[i].path, (double)m->order.weight[i] / (double)m->order.period,
					m->part[i].sampler.samples};
}

const char *dt_mixture_text(const struct dt_mixture *m)
{
	return m ? m->text : "";
}

const struct dt_sampler *dt_mixture_at(const struct dt_mixture *m, int64_t n, int64_t *ret_own)
{
	int part = 0;

	*ret_own = n;
	if (n >= 0)
		dt_mixture_order_at(&m->order, n, &part, ret_own);
	return &m->part[part].sampler;
}

int dt_mixture_get(const struct dt_mixture *m, int64_t n, int32_t *ret, struct dt_err *err)
{
	int64_t own;
	const struct dt_sampler *s = dt_mixture_at(m, n, &own);

	return dt_sampler_get(s, own, ret, err);
}

bool dt_mixture_threads(const struct dt_mixture *m)
{
	for (int i = 0; i < m->parts; i++)
		if (!dt_dataset_threads(m->part[i].data))
			return false;
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
