#include "nn/infer_disk_priv.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEASURE_S     1.0 /* seconds for which the disk is measured */
#define MEASURE_BYTES ((uint64_t)512 << 20)

/* ---- writing the file ---- */

/* Adds w, the packed weights of a parameter or expert, to piece e of a layer. */
static int add_member(struct dt_infer_disk *d, int layer, int64_t e, struct dt_packed *w)
{
	struct disk_piece *p = &d->piece[d->first[layer] + e];

	if (p->n == DISK_MEMBERS)
		return -ENOTSUP;
	p->w[p->n++] = w;
	return 0;
}

static int64_t pieces_of(const struct dt_infer *m, const struct dt_param *part, int n, int layer)
{
	for (int i = 0; i < n; i++)
		if (part[i].layer == layer && dt_weights_disk_has(&m->config, &part[i]))
			return part[i].experts ? part[i].experts : 1;
	return 0;
}

static int number_pieces(struct dt_infer *m, const struct dt_param *part)
{
	struct dt_infer_disk *d = m->disk;
	const int layers = (int)m->config.layers;
	int64_t at = 0, number = 0;

	d->first = calloc((size_t)layers + 1, sizeof(*d->first));
	d->piece = calloc((size_t)d->plan.pieces + 1, sizeof(*d->piece));
	d->slot = calloc((size_t)d->plan.slots + 1, sizeof(*d->slot));
	if (!d->first || !d->piece || !d->slot)
		return -ENOMEM;
	for (int l = 0; l < layers; l++) {
		d->first[l] = (int)number;
		number += pieces_of(m, part, m->plan.stage.local.n, l);
	}
	d->first[layers] = (int)number;
	for (int64_t i = 0; i < number; i++) {
		d->piece[i].slot = -1;
		d->piece[i].kept = dt_weights_disk_keeps(&d->plan, i);
		d->piece[i].at = at;
		at += !d->piece[i].kept;
	}
	for (int64_t k = 0; k < d->plan.slots; k++)
		d->slot[k] = (struct disk_slot){.piece = -1, .transfer = -1};
	return 0;
}

/* Bytes per checksum: a part of a slot. */
static size_t grain(const struct dt_infer_disk *d)
{
	size_t n = DT_WEIGHTS_CHECKED;

	while (d->plan.slot_bytes % n)
		n /= 2;
	return n;
}

int dt_infer_disk_open(struct dt_infer *m, const struct dt_param *part, const enum dt_format *format,
		       struct dt_err *err)
{
	struct dt_infer_disk *d;
	int rc;

	if (!m->p.disk_memory)
		return 0;
	d = m->disk = calloc(1, sizeof(*d));
	if (!d)
		return dt_err_sys(err, -ENOMEM, "cannot load the model");
	rc = dt_weights_disk_plan(&m->config, part, format, m->plan.stage.local.n, m->p.dtype,
				  m->p.disk_memory, &d->plan, err);
	if (rc < 0)
		return rc;
	if ((rc = number_pieces(m, part)) < 0)
		return dt_err_sys(err, rc, "cannot load the model");
	d->plan.host = !m->p.disk_dir;
	return d->plan.file_bytes ? dt_backing_open(m->dev, m->p.disk_dir, d->plan.file_bytes, grain(d),
						    "weights", &d->use, &d->file, err)
				  : 0;
}

static int put(struct dt_infer *m, struct disk_piece *p, char *buf, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	size_t used = 0;
	int rc = 0;

	for (int i = 0; i < p->n && rc == 0; i++) {
		const size_t n = dt_packed_close_bytes(p->w[i]);

		rc = dt_packed_lend(p->w[i], buf + used);
		used += n;
	}
	if (rc == 0 && used < d->plan.slot_bytes)
		rc = dt_dev_clear(m->dev, buf + used, d->plan.slot_bytes - used);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot write weights to --weights-disk");
	dt_backing_write(d->file, 0, buf, d->plan.slot_bytes, (uint64_t)p->at * d->plan.slot_bytes);
	return dt_backing_wait(d->file, 0, err);
}

/* Finds the members of a layer's pieces once they are loaded. */
static int find_members(struct dt_infer *m, int layer)
{
	struct dt_infer_disk *d = m->disk;
	const struct dt_local *local = &m->plan.stage.local;
	const int n = d->first[layer + 1] - d->first[layer];
	int rc = 0;

	for (int i = 0; i < local->n && rc == 0; i++) {
		if (m->plan.stage.graph.params.p[local->p[i].index].layer != layer)
			continue;
		if (!m->config.experts && m->packed[i])
			rc = add_member(d, layer, 0, m->packed[i]);
		for (int e = 0; m->expert[i] && e < n && rc == 0; e++)
			rc = add_member(d, layer, e, m->expert[i][e]);
	}
	return rc;
}

int dt_infer_disk_put(struct dt_infer *m, int layer, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	struct dt_arena buf;
	int rc;

	if (!d || !d->file || layer < 0 || layer >= m->config.layers ||
	    d->first[layer] == d->first[layer + 1])
		return 0;
	if ((rc = find_members(m, layer)) < 0)
		return dt_err_set(err, rc, "layers with more than %d matrices are not read from disk",
				  DISK_MEMBERS);
	rc = dt_infer_area(m, &buf, d->plan.slot_bytes, err);
	if (rc < 0)
		return rc;
	for (int i = d->first[layer]; i < d->first[layer + 1] && rc == 0; i++)
		if (!d->piece[i].kept)
			rc = put(m, &d->piece[i], buf.base, err);
	dt_infer_area_release(m, &buf);
	return rc;
}

/* ---- loading and closing ---- */

/* Measures the disk: reads pieces, as many at a time as in serving; leaves the first in slots. */
static int measure(struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	const int together = d->plan.experts ? DT_SCRATCH_SLOTS : DT_WEIGHTS_AHEAD;
	const double t0 = dt_now();
	uint64_t bytes = 0;
	int rc = 0, behind = 0, last = 0;

	for (int i = 0; i < d->plan.pieces && rc == 0; i++) {
		if (d->piece[i].kept)
			continue;
		if (bytes >= MEASURE_BYTES || dt_now() - t0 > MEASURE_S)
			break;
		rc = dt_infer_disk_begin(m, i, err);
		bytes += d->plan.slot_bytes;
		last = i + 1;
		while (rc == 0 && behind <= i - together) {
			if (d->piece[behind].slot >= 0)
				rc = dt_infer_disk_finish(m, d->piece[behind].slot, err);
			behind++;
		}
	}
	for (; behind < last && rc == 0; behind++)
		if (d->piece[behind].slot >= 0)
			rc = dt_infer_disk_finish(m, d->piece[behind].slot, err);
	if (rc == 0 && dt_dev_sync(m->dev) < 0) /* a device's transfers are queued */
		rc = dt_err_set(err, -EIO, "cannot read weights");
	d->facts.bw = (double)bytes / (dt_now() - t0);
	return rc;
}

int dt_infer_disk_start(struct dt_infer *m, struct dt_err *err)
{
	struct dt_infer_disk *d = m->disk;
	int rc;

	if (!d)
		return 0;
	d->facts.plan = d->plan;
	d->facts.how = "";
	if (!d->file)
		return 0;
	d->facts.how = dt_backing_how(d->file);
	rc = dt_infer_area(m, &d->area, (size_t)d->plan.slots * d->plan.slot_bytes, err);
	if (rc == 0 && d->plan.experts && !dt_dev_is_host(m->dev)) {
		void *p;

		rc = dt_dev_host_alloc(m->dev, &p, ((size_t)m->config.experts + 1) * sizeof(*d->chosen));
		d->chosen = rc == 0 ? p : NULL;
		if (rc < 0)
			dt_err_sys(err, rc, "cannot load the model");
	}
	if (rc < 0)
		return rc;
	m->packed_bytes += d->area.bytes;
	rc = measure(m, err);
	d->before = d->use;
	return rc;
}

void dt_infer_disk_close(struct dt_infer *m)
{
	struct dt_infer_disk *d = m->disk;

	if (!d)
		return;
	dt_backing_close(d->file);
	dt_infer_area_release(m, &d->area);
	if (d->chosen)
		dt_dev_host_free(m->dev, d->chosen);
	free(d->slot);
	free(d->piece);
	free(d->first);
	free(d);
	m->disk = NULL;
}

bool dt_infer_disk_told(const struct dt_infer *m, struct dt_infer_disk_facts *ret)
{
	const struct dt_infer_disk *d = m->disk;

	if (!d)
		return false;
	*ret = d->facts;
	ret->read_bytes = d->use.read_bytes - d->before.read_bytes;
	ret->wait_s = d->use.wait_s - d->before.wait_s;
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
