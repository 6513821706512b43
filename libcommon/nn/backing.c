/* Transfers between memory and a file, directly or through pinned memory for a device; see backing.h. */
#include "nn/backing_card.h"

#include "base/crc.h"
#include "base/progress.h"
#include "nn/exec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_backing_open(struct dt_dev *dev, const char *folder, uint64_t bytes, size_t grain, const char *what,
		    struct dt_backing_use *use, struct dt_backing **ret, struct dt_err *err)
{
	struct dt_backing *b = calloc(1, sizeof(*b));
	const size_t grains = folder ? (size_t)(bytes / grain) + 1 : 0;
	int rc = 0;

	if (!b)
		return dt_err_sys(err, -ENOMEM, "cannot offload %s", what);
	*b = (struct dt_backing){
		.dev = dev, .card = !dt_dev_is_host(dev), .use = use, .what = what, .grain = grain};
	if (folder) {
		snprintf(b->folder, sizeof(b->folder), "%s", folder);
		b->crc = calloc(grains, sizeof(*b->crc));
		b->written = calloc(grains, sizeof(*b->written));
		rc = b->crc && b->written ? dt_scratch_open(folder, bytes, false, &b->file, err)
					  : dt_err_sys(err, -ENOMEM, "cannot offload %s", what);
	}
	if (rc == 0 && b->card)
		rc = dt_backing_card_open(b, bytes, err);
	if (rc < 0) {
		dt_backing_close(b);
		return rc;
	}
	if (folder)
		snprintf(b->how, sizeof(b->how), "%s%s", dt_scratch_how(b->file),
			 b->card ? ", by way of the host's memory" : "");
	if (folder)
		snprintf(b->where, sizeof(b->where), "a file in '%s' (%s)", folder, b->how);
	else
		snprintf(b->where, sizeof(b->where), "the host's memory");
	*ret = b;
	return 0;
}

void dt_backing_close(struct dt_backing *b)
{
	if (!b)
		return;
	if (b->card)
		dt_backing_card_drain(b);
	dt_scratch_close(b->file);
	if (b->card)
		dt_backing_card_close(b);
	free(b->crc);
	free(b->written);
	free(b);
}

const char *dt_backing_where(const struct dt_backing *b)
{
	return b->where;
}

const char *dt_backing_how(const struct dt_backing *b)
{
	return b->how;
}

void dt_backing_waited(struct dt_backing *b, double since, bool write)
{
	double s = dt_now() - since;

	b->use->wait_s += s;
	b->use->wait_write_s += write ? s : 0;
}

bool dt_backing_any_written(const struct dt_backing *b, size_t n, uint64_t at)
{
	return memchr(b->written + at / b->grain, 1, n / b->grain) != NULL;
}

/* The bytes of grain i, of n bytes divided into grains. */
static size_t in_grain(const struct dt_backing *b, size_t n, int64_t i)
{
	const size_t at = (size_t)i * b->grain;

	return at >= n ? 0 : n - at < b->grain ? n - at : b->grain;
}

void dt_backing_file_write(struct dt_backing *b, int slot, char *from, size_t n, uint64_t at,
			   struct backing_beside source)
{
	const int64_t first = (int64_t)(at / b->grain), grains = (int64_t)(n / b->grain);

#pragma omp parallel for num_threads(b->dev->nthreads)
	for (int64_t i = 0; i < grains; i++) {
		char *p = from + (size_t)i * b->grain;

		if (source.values)
			memcpy(p, source.values + (size_t)i * b->grain, in_grain(b, source.n, i));
		b->crc[first + i] = dt_crc32(0, p, b->grain);
	}
	memset(b->written + first, 1, (size_t)grains);
	dt_scratch_write(b->file, slot, from, n, at);
}

int dt_backing_look(struct dt_backing *b, char *to, size_t n, uint64_t at, struct backing_beside copy,
		    struct dt_err *err)
{
	const int64_t first = (int64_t)(at / b->grain), grains = (int64_t)(n / b->grain);
	int64_t bad = grains;

#pragma omp parallel for num_threads(b->dev->nthreads) reduction(min : bad)
	for (int64_t i = 0; i < grains; i++) {
		char *p = to + (size_t)i * b->grain;

		if (!b->written[first + i])
			memset(p, 0, b->grain);
		else if (dt_crc32(0, p, b->grain) != b->crc[first + i])
			bad = i < bad ? i : bad;
		if (copy.values)
			memcpy(copy.values + (size_t)i * b->grain, p, in_grain(b, copy.n, i));
	}
	if (bad == grains)
		return 0;
	return dt_err_set(err, -EBADMSG,
			  "byte %llu of the %s is not as it was written: the file in '%s' was changed, or "
			  "its disk fails",
			  (unsigned long long)(at + (uint64_t)bad * b->grain), b->what, b->folder);
}

/* Starts a transfer in a slot; fields that persist between transfers are kept. */
static struct backing_slot *begin(struct dt_backing *b, int slot, enum backing_does does, void *memory,
				  size_t n, uint64_t at)
{
	struct backing_slot *s = &b->slot[slot];

	s->does = does;
	s->memory = memory;
	s->n = n;
	s->at = at;
	s->rc = 0;
	return s;
}

void dt_backing_read(struct dt_backing *b, int slot, void *to, size_t n, uint64_t at)
{
	struct backing_slot *s = begin(b, slot, READS, to, n, at);

	if (b->card) {
		dt_backing_card_read(b, slot);
	} else if (dt_backing_any_written(b, n, at)) {
		b->use->read_bytes += n;
		dt_scratch_read(b->file, slot, to, n, at);
	} else {
		memset(to, 0, n);
		s->does = NOTHING;
	}
}

/* source: what is copied into memory before the write, when the CPU computes. */
static void begin_write(struct dt_backing *b, int slot, void *memory, size_t n, uint64_t at,
			struct backing_beside source)
{
	begin(b, slot, WRITES, memory, n, at);
	b->use->written_bytes += n;
	if (b->card)
		dt_backing_card_write(b, slot);
	else
		dt_backing_file_write(b, slot, memory, n, at, source);
}

void dt_backing_write(struct dt_backing *b, int slot, const void *from, size_t n, uint64_t at)
{
	begin_write(b, slot, (void *)from, n, at, (struct backing_beside){0});
}

/* Waits for the slot's transfer; after a read, copies the data. */
static int end(struct dt_backing *b, int slot, struct backing_beside copy, struct dt_err *err)
{
	struct backing_slot *s = &b->slot[slot];
	const enum backing_does does = s->does;
	double t0 = dt_now();
	int rc;

	s->does = NOTHING;
	rc = dt_scratch_wait(b->file, slot, err);
	dt_backing_waited(b, t0, does == WRITES);
	return rc < 0 || does == WRITES ? rc : dt_backing_look(b, s->memory, s->n, s->at, copy, err);
}

int dt_backing_wait(struct dt_backing *b, int slot, struct dt_err *err)
{
	struct backing_slot *s = &b->slot[slot];
	const enum backing_does does = s->does;

	if (does == NOTHING)
		return 0;
	if (!b->card)
		return end(b, slot, (struct backing_beside){0}, err);
	s->does = NOTHING;
	return dt_backing_card_wait(b, slot, does, err);
}

/* Copies with all threads, or on the device. */
static int copy(struct dt_backing *b, char *to, const char *from, size_t n, struct dt_err *err)
{
	if (b->card)
		return dt_kernel_check(dt_dev_copy(b->dev, to, from, n), "dt_dev_copy(", err);
#pragma omp parallel for num_threads(b->dev->nthreads)
	for (int64_t i = 0; i < (int64_t)((n + b->grain - 1) / b->grain); i++)
		memcpy(to + (size_t)i * b->grain, from + (size_t)i * b->grain, in_grain(b, n, i));
	return 0;
}

int dt_backing_leave(struct dt_backing *b, int slot, void *memory, const void *from, size_t have, size_t n,
		     uint64_t at, struct dt_err *err)
{
	int rc = b->card ? copy(b, memory, from, have, err) : 0;

	if (rc == 0)
		begin_write(b, slot, memory, n, at, (struct backing_beside){(char *)from, have});
	return rc;
}

int dt_backing_come(struct dt_backing *b, int slot, const void *memory, void *to, size_t have,
		    struct dt_err *err)
{
	const enum backing_does does = b->slot[slot].does;
	int rc = 0;

	if (!b->card && does == READS)
		return end(b, slot, (struct backing_beside){to, have}, err);
	if (does == READS)
		rc = dt_backing_wait(b, slot, err);
	return rc < 0 ? rc : copy(b, to, memory, have, err);
}

bool dt_backing_done(struct dt_backing *b, int slot)
{
	return b->slot[slot].does == NOTHING ||
	       (b->card ? dt_backing_card_done(b, slot) : dt_scratch_done(b->file, slot));
}
/* SPDX-License-Identifier: Apache-2.0 */
