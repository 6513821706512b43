/*
 * --trace: each rank writes its own file while it runs, so that a failed run leaves its events; at the end
 * rank 0 merges them.
 */
#include "train/outputs.h"
#include "train/trainer.h"

#include "base/progress.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)

static struct dt_comm *everybody(const struct trainer *t)
{
	return dt_mesh_comm(&t->mesh, DT_ON_ALL);
}

static int open_own(struct trainer *t, double shift, struct dt_err *err)
{
	char *path = NULL;
	int rc = t->info.size > 1 ? asprintf(&path, "%s.%d", t->run.trace, t->info.rank)
				  : asprintf(&path, "%s", t->run.trace);

	if (rc < 0)
		return dt_err_sys(err, -ENOMEM, "cannot open the trace");
	rc = outputs_overwrite(&t->run, path)
		     ? dt_err_set(err, -EINVAL, "--trace would overwrite the input '%s'", path)
		     : 0;
	if (rc == 0)
		rc = dt_trace_open(path, t->info.rank, shift, &t->report.trace, err);
	free(path);
	return rc;
}

int trace_open(struct trainer *t, struct dt_err *err)
{
	double offset, error, begin = dt_now();
	int rc;

	if (!t->run.trace)
		return 0;
	rc = dt_comm_clock(everybody(t), &offset, &error, err);
	if (rc == 0)
		rc = dt_broadcast(everybody(t), &begin, 1, DT_F64, 0, "begin of the trace", err);
	if (rc == 0)
		rc = trainer_agree(t, open_own(t, offset - begin, err), err);
	if (rc < 0)
		return rc;
	if (error > 0)
		dt_log_debug(t->log, "trace: this machine's clock to that of rank 0's within %.1f us",
			     error * 1e6);
	t->exec.trace = t->report.trace;
	dt_world_trace(t->world, t->report.trace);
	return 0;
}

/* Reads the next piece of a rank's events; *ret_n 0: no more. */
static int piece(FILE *f, int64_t *left, char *buf, size_t *ret_n)
{
	*ret_n = *left < (int64_t)PIECE ? (size_t)*left : PIECE;
	*left -= (int64_t)*ret_n;
	if (fread(buf, 1, *ret_n, f) == *ret_n)
		return 0;
	*ret_n = 0;
	return ferror(f) ? -errno : -EIO;
}

static int open_events(const char *path, FILE **ret, int64_t *ret_left)
{
	FILE *f = fopen(path, "re");
	int64_t n = f && fseeko(f, 0, SEEK_END) == 0 ? ftello(f) : -1;

	n -= (int64_t)strlen(DT_TRACE_OPEN DT_TRACE_CLOSE);
	if (n < 0 || fseeko(f, (off_t)strlen(DT_TRACE_OPEN), SEEK_SET) < 0) {
		if (f)
			fclose(f);
		return errno ? -errno : -EIO;
	}
	*ret = f;
	*ret_left = n;
	return 0;
}

/*
 * Sends one rank's events to rank 0, which writes them to out. A rank that cannot read its own file ends the
 * transfer early and fails afterwards.
 */
static int hand_over(struct trainer *t, int from, FILE *out, char *buf, struct dt_err *err)
{
	const bool mine = t->info.rank == from, root = t->info.rank == 0;
	int64_t left = 0;
	FILE *f = NULL;
	int failed = mine ? open_events(t->report.trace->path, &f, &left) : 0, rc = 0;
	double n = 1;

	while (rc == 0 && n > 0) {
		size_t got = 0;

		if (mine && failed == 0)
			failed = piece(f, &left, buf, &got);
		n = (double)got;
		if (from && mine)
			rc = dt_send(everybody(t), &n, 1, DT_F64, 0, 1, "trace", err);
		else if (from)
			rc = dt_recv(everybody(t), &n, 1, DT_F64, from, 1, "trace", err);
		if (rc == 0 && from && n > 0)
			rc = mine ? dt_send(everybody(t), buf, (size_t)n, DT_I8, 0, 1, "trace", err)
				  : dt_recv(everybody(t), buf, (size_t)n, DT_I8, from, 1, "trace", err);
		if (rc == 0 && root && out)
			fwrite(buf, 1, (size_t)n, out);
	}
	if (f)
		fclose(f);
	return rc == 0 && failed < 0
		       ? dt_err_sys(err, failed, "cannot read '%s' again", t->report.trace->path)
		       : rc;
}

static int write_all(struct trainer *t, FILE *out, struct dt_err *err)
{
	const bool root = t->info.rank == 0;
	char *buf = malloc(PIECE);
	int rc = trainer_agree(t, buf ? 0 : dt_err_sys(err, -ENOMEM, "cannot join the trace"), err), mine = 0;

	if (out)
		fputs(DT_TRACE_OPEN, out);
	for (int r = 0; r < t->info.size && rc == 0; r++) {
		struct dt_err e = {0};

		if (out && r)
			fputs(DT_TRACE_JOIN, out);
		if (root || t->info.rank == r)
			mine = hand_over(t, r, out, buf, mine ? &e : err) < 0 ? -EIO : mine;
	}
	if (out && rc == 0) {
		fputs(DT_TRACE_CLOSE, out);
		if (fflush(out) == EOF || ferror(out))
			mine = dt_err_sys(err, errno ? -errno : -EIO, "cannot write '%s'", t->run.trace);
	}
	free(buf);
	return rc < 0 ? rc : mine;
}

/* Merges the files of all ranks into FILE. */
static int join(struct trainer *t, struct dt_err *err)
{
	FILE *out = NULL;
	int rc = t->info.rank == 0 ? dt_out_stream(t->run.trace, false, &out, err) : 0;

	rc = trainer_agree(t, rc, err);
	if (rc == 0)
		rc = trainer_agree(t, write_all(t, out, err), err);
	if (out && fclose(out) == EOF && rc == 0)
		rc = dt_err_sys(err, -errno, "cannot write '%s'", t->run.trace);
	rc = trainer_agree(t, rc, err);
	if (rc == 0)
		unlink(t->report.trace->path);
	return rc;
}

int trace_close(struct trainer *t, bool whole, struct dt_err *err)
{
	struct dt_trace *trace = t->report.trace;
	int rc;

	t->exec.trace = NULL;
	dt_world_trace(t->world, NULL);
	rc = dt_trace_end(trace, err);
	if (t->run.trace && whole && t->info.size > 1) {
		rc = trainer_agree(t, rc, err);
		if (rc == 0)
			rc = join(t, err);
	}
	dt_trace_close(trace);
	t->report.trace = NULL;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
