#include "base/tfevents.h"

#include "base/crc.h"
#include "base/protobuf.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- records ---- */

static uint32_t masked(const void *p, size_t n)
{
	uint32_t crc = dt_crc32c(p, n);

	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Field numbers of Event. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };

static struct dt_pb event(double now, int64_t step)
{
	struct dt_pb m = {0};

	dt_pb_double(&m, EVENT_TIME, now);
	if (step)
		dt_pb_int(&m, EVENT_STEP, step);
	return m;
}

/* Writes an event's record and releases the message. */
static void record(struct dt_tfevents *e, struct dt_pb *m)
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
	*m = (struct dt_pb){0};
}

int dt_tfevents_open(const char *dir, double now, struct dt_tfevents **ret, struct dt_err *err)
{
	struct dt_tfevents *e = calloc(1, sizeof(*e));
	struct dt_pb m = event(now, 0);
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
	dt_pb_text(&m, EVENT_VERSION, "brain.Event:2");
	record(e, &m);
	*ret = e;
	return 0;
}

void dt_tfevents_restart(struct dt_tfevents *e, double now, int64_t step)
{
	struct dt_pb m = event(now, step), log = {0};

	dt_pb_int(&log, 1, 1); /* SessionLog.status = START */
	dt_pb_message(&m, EVENT_SESSION, &log);
	record(e, &m);
}

/*
 * Writes an event with one summary value: tag is its first field, `rest` the encoded other fields. Releases
 * rest.
 */
static void value(struct dt_tfevents *e, double now, int64_t step, const char *tag, struct dt_pb *rest)
{
	struct dt_pb m = event(now, step), summary = {0}, v = {0};

	dt_pb_text(&v, 1, tag);
	v.failed |= rest->failed;
	dt_pb_raw(&v, rest->p, rest->n);
	free(rest->p);
	dt_pb_message(&summary, 1, &v);
	dt_pb_message(&m, EVENT_SUMMARY, &summary);
	record(e, &m);
}

void dt_tfevents_scalar(struct dt_tfevents *e, double now, int64_t step, const char *tag, double x)
{
	struct dt_pb rest = {0};

	dt_pb_float(&rest, 2, (float)x);
	value(e, now, step, tag, &rest);
}

void dt_tfevents_histogram(struct dt_tfevents *e, double now, int64_t step, const char *tag,
			   const struct dt_tf_histogram *h)
{
	struct dt_pb rest = {0}, histo = {0};

	dt_pb_double(&histo, 1, h->min);
	dt_pb_double(&histo, 2, h->max);
	dt_pb_double(&histo, 3, h->num);
	dt_pb_double(&histo, 4, h->sum);
	dt_pb_double(&histo, 5, h->sum_squares);
	dt_pb_bytes(&histo, 6, h->limits, h->n * sizeof(*h->limits));
	dt_pb_bytes(&histo, 7, h->counts, h->n * sizeof(*h->counts));
	dt_pb_message(&rest, 5, &histo);
	value(e, now, step, tag, &rest);
}

void dt_tfevents_text(struct dt_tfevents *e, double now, int64_t step, const char *tag, const char *text)
{
	struct dt_pb rest = {0}, meta = {0}, plugin = {0}, tensor = {0}, shape = {0}, dim = {0};

	dt_pb_int(&tensor, 1, 7); /* DT_STRING */
	dt_pb_int(&dim, 1, 1);
	dt_pb_message(&shape, 2, &dim);
	dt_pb_message(&tensor, 2, &shape);
	dt_pb_text(&tensor, 8, text);
	dt_pb_message(&rest, 8, &tensor);
	dt_pb_text(&plugin, 1, "text");
	dt_pb_message(&meta, 1, &plugin);
	dt_pb_message(&rest, 9, &meta);
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
