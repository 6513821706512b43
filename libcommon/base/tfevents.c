#include "base/tfevents.h"

#include "base/crc.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- protocol buffers, as far as events need them ---- */

struct message {
	unsigned char *p;
	size_t n, cap;
	bool failed;
};

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void add(struct message *m, const void *from, size_t n)
{
	if (m->n + n > m->cap) {
		size_t cap = 2 * (m->n + n) + 64;
		unsigned char *grown = realloc(m->p, cap);

		m->failed |= !grown;
		if (!grown)
			return;
		m->p = grown;
		m->cap = cap;
	}
	memcpy(m->p + m->n, from, n);
	m->n += n;
}

static void varint(struct message *m, uint64_t v)
{
	unsigned char b[10];
	size_t n = 0;

	do {
		b[n] = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
		v >>= 7;
	} while (b[n++] & 128);
	add(m, b, n);
}

static void key(struct message *m, int field, int type)
{
	varint(m, (uint64_t)field << 3 | (uint64_t)type);
}

static void put_int(struct message *m, int field, int64_t v)
{
	key(m, field, VARINT);
	varint(m, (uint64_t)v);
}

static void put_double(struct message *m, int field, double v)
{
	key(m, field, FIXED64);
	add(m, &v, sizeof(v)); /* little-endian, as the machines we run on */
}

static void put_float(struct message *m, int field, float v)
{
	key(m, field, FIXED32);
	add(m, &v, sizeof(v));
}

static void put_bytes(struct message *m, int field, const void *p, size_t n)
{
	key(m, field, BYTES);
	varint(m, n);
	add(m, p, n);
}

static void put_text(struct message *m, int field, const char *s)
{
	put_bytes(m, field, s, strlen(s));
}

/* inner becomes a field and is released. */
static void put_message(struct message *m, int field, struct message *inner)
{
	m->failed |= inner->failed;
	put_bytes(m, field, inner->p ? (const void *)inner->p : "", inner->n);
	free(inner->p);
	*inner = (struct message){0};
}

/* ---- records ---- */

static uint32_t masked(const void *p, size_t n)
{
	uint32_t crc = dt_crc32c(p, n);

	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Field numbers of Event. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };

static struct message event(double now, int64_t step)
{
	struct message m = {0};

	put_double(&m, EVENT_TIME, now);
	if (step)
		put_int(&m, EVENT_STEP, step);
	return m;
}

/* Writes the record of an event and releases it. */
static void record(struct dt_tfevents *e, struct message *m)
{
	uint64_t n = m->n;
	uint32_t crc[2] = {masked(&n, sizeof(n)), m->failed ? 0 : masked(m->p, m->n)};

	errno = 0;
	if (e->error == 0 && m->failed)
		e->error = -ENOMEM;
	else if (e->error == 0 && (fwrite(&n, sizeof(n), 1, e->f) != 1 || fwrite(&crc[0], 4, 1, e->f) != 1 ||
				   fwrite(m->p, 1, m->n, e->f) != m->n || fwrite(&crc[1], 4, 1, e->f) != 1))
		e->error = errno ? -errno : -EIO;
	free(m->p);
	*m = (struct message){0};
}

int dt_tfevents_open(const char *dir, double now, struct dt_tfevents **ret, struct dt_err *err)
{
	struct dt_tfevents *e = calloc(1, sizeof(*e));
	struct message m = event(now, 0);
	char host[64] = "host";
	int rc = e ? dt_mkdir_p(dir, err) : dt_err_sys(err, -ENOMEM, "cannot write to '%s'", dir);

	gethostname(host, sizeof(host) - 1);
	if (rc == 0 && asprintf(&e->path, "%s/events.out.tfevents.%010lld.%s.%d", dir, (long long)now, host,
				(int)getpid()) < 0) {
		e->path = NULL;
		rc = dt_err_sys(err, -ENOMEM, "cannot write to '%s'", dir);
	}
	if (rc == 0)
		rc = dt_out_stream(e->path, false, &e->f, err);
	if (rc < 0) {
		free(m.p);
		if (e)
			free(e->path);
		free(e);
		return rc;
	}
	put_text(&m, EVENT_VERSION, "brain.Event:2");
	record(e, &m);
	*ret = e;
	return 0;
}

void dt_tfevents_restart(struct dt_tfevents *e, double now, int64_t step)
{
	struct message m = event(now, step), log = {0};

	put_int(&log, 1, 1); /* SessionLog.status = START */
	put_message(&m, EVENT_SESSION, &log);
	record(e, &m);
}

/* An event of one value of a summary: tag is its first field, rest the others, which is released. */
static void value(struct dt_tfevents *e, double now, int64_t step, const char *tag, struct message *rest)
{
	struct message m = event(now, step), summary = {0}, v = {0};

	put_text(&v, 1, tag);
	v.failed |= rest->failed;
	add(&v, rest->p, rest->n);
	free(rest->p);
	put_message(&summary, 1, &v);
	put_message(&m, EVENT_SUMMARY, &summary);
	record(e, &m);
}

void dt_tfevents_scalar(struct dt_tfevents *e, double now, int64_t step, const char *tag, double x)
{
	struct message rest = {0};

	put_float(&rest, 2, (float)x);
	value(e, now, step, tag, &rest);
}

void dt_tfevents_histogram(struct dt_tfevents *e, double now, int64_t step, const char *tag,
			   const struct dt_tf_histogram *h)
{
	struct message rest = {0}, histo = {0};

	put_double(&histo, 1, h->min);
	put_double(&histo, 2, h->max);
	put_double(&histo, 3, h->num);
	put_double(&histo, 4, h->sum);
	put_double(&histo, 5, h->sum_squares);
	put_bytes(&histo, 6, h->limits, h->n * sizeof(*h->limits));
	put_bytes(&histo, 7, h->counts, h->n * sizeof(*h->counts));
	put_message(&rest, 5, &histo);
	value(e, now, step, tag, &rest);
}

void dt_tfevents_text(struct dt_tfevents *e, double now, int64_t step, const char *tag, const char *text)
{
	struct message rest = {0}, meta = {0}, plugin = {0}, tensor = {0}, shape = {0}, dim = {0};

	put_int(&tensor, 1, 7); /* DT_STRING */
	put_int(&dim, 1, 1);
	put_message(&shape, 2, &dim);
	put_message(&tensor, 2, &shape);
	put_text(&tensor, 8, text);
	put_message(&rest, 8, &tensor);
	put_text(&plugin, 1, "text");
	put_message(&meta, 1, &plugin);
	put_message(&rest, 9, &meta);
	value(e, now, step, tag, &rest);
}

int dt_tfevents_flush(struct dt_tfevents *e, struct dt_err *err)
{
	errno = 0;
	if (e->error == 0 && fflush(e->f) == EOF)
		e->error = errno ? -errno : -EIO;
	return e->error ? dt_err_sys(err, e->error, "cannot write '%s'", e->path) : 0;
}

void dt_tfevents_close(struct dt_tfevents *e)
{
	if (!e)
		return;
	fclose(e->f);
	free(e->path);
	free(e);
}
/* SPDX-License-Identifier: Apache-2.0 */
