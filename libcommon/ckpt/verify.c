/* Checks everything in a checkpoint: files, HDF5 structure, every checksum. */
#include "ckpt/internal.h"
#include "ckpt/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SECONDS 600 /* limit to check the structure of one file */
#define MAX_WORKERS   64

struct verify {
	struct dt_ckpt *c;
	bool *skip; /* files whose pieces are not read */
	void (*report)(void *arg, const char *text);
	void *arg;
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	pthread_mutex_t lock; /* guards the fields below and the callbacks */
	int findings, pipe;   /* pipe: descriptor for a child's findings, -1 in the parent */
	int next;	      /* the piece to read next */
	int *order;
	uint64_t done, total;
};

static void finding(struct verify *v, const char *text)
{
	if (v->pipe >= 0) {
		dprintf(v->pipe, "%s\n", text);
		return;
	}
	pthread_mutex_lock(&v->lock);
	v->findings++;
	if (v->report)
		v->report(v->arg, text);
	pthread_mutex_unlock(&v->lock);
}

/* "tensors 'a', 'b' and 3 more": the tensors in a lost file. */
static void tensors_in(const struct ck_manifest *m, int file, char *buf, size_t n)
{
	int shown = 0, more = 0, last = -1;
	size_t k = 0;

	buf[0] = '\0';
	for (int i = 0; i < m->npiece; i++) {
		if (m->piece[i].file != file || m->piece[i].tensor == last)
			continue;
		last = m->piece[i].tensor;
		if (shown == 3)
			more++;
		else if (k < n)
			k += (size_t)snprintf(buf + k, n - k, "%s'%s'", shown++ ? ", " : "",
					      m->tensor[last].name);
	}
	if (more && k < n)
		snprintf(buf + k, n - k, " and %d more", more);
}

/* Returns false if the file cannot be read. */
static bool check_file(struct verify *v, int i)
{
	const struct ck_file *f = &v->c->m.file[i];
	char text[1024], names[300];
	struct dt_err err = {0};
	uint64_t bytes;
	int fd;

	tensors_in(&v->c->m, i, names, sizeof(names));
	if (ck_open_file(v->c->path, f, &fd, &bytes, &err) < 0) {
		snprintf(text, sizeof(text), "%s (it holds pieces of %s)", err.msg, names);
		finding(v, text);
		return false;
	}
	close(fd);
	if (bytes != f->bytes) {
		snprintf(text, sizeof(text),
			 "'%s/%s' has %llu bytes, the manifest says %llu (it holds pieces of %s)", v->c->path,
			 f->name, (unsigned long long)bytes, (unsigned long long)f->bytes, names);
		finding(v, text);
	}
	return true;
}

static void check_shard(struct verify *v, int i)
{
	const struct ck_manifest *m = &v->c->m;
	char path[CK_PATH], text[CK_PATH + 600];
	struct dt_err err = {0};
	hid_t file;

	ck_join(path, v->c->path, m->file[i].name);
	if (dt_h5_open(path, &file, &err) < 0) {
		finding(v, err.msg);
		return;
	}
	for (int k = 0; k < m->npiece; k++) {
		const struct ck_piece *p = &m->piece[k];

		if (p->file != i)
			continue;
		if (ck_h5_check(file, &m->tensor[p->tensor], p, &err) == 0)
			continue;
		snprintf(text, sizeof(text), "'%s': %s", path, err.msg);
		finding(v, text);
	}
	H5Fclose(file);
}

/* Compares one mapping of a virtual dataset with one piece. */
static bool same_mapping(const struct ck_manifest *m, const struct ck_tensor *t, hid_t dcpl, size_t k)
{
	const struct ck_piece *p = &m->piece[t->first + (int)k];
	char file[64] = "", set[CK_DATASET_NAME] = "", want[CK_DATASET_NAME];
	hsize_t lo[DT_CKPT_MAX_DIM], hi[DT_CKPT_MAX_DIM];
	hid_t space = H5Pget_virtual_vspace(dcpl, k);
	bool same;

	ck_dataset_name(want, sizeof(want), t->name, t->ndim, p->off);
	same = H5Pget_virtual_filename(dcpl, k, file, sizeof(file)) >= 0 &&
	       H5Pget_virtual_dsetname(dcpl, k, set, sizeof(set)) >= 0 &&
	       !strcmp(file, m->file[p->file].name) && !strcmp(set, want) &&
	       H5Sget_simple_extent_ndims(space) == t->ndim && H5Sget_select_bounds(space, lo, hi) >= 0;
	for (int d = 0; d < t->ndim && same; d++)
		same = lo[d] == (hsize_t)p->off[d] && hi[d] == (hsize_t)(p->off[d] + p->shape[d] - 1);
	H5Sclose(space);
	return same;
}

static const char *index_wrong(hid_t file, const struct ck_manifest *m, const struct ck_tensor *t)
{
	hid_t set = H5Dopen2(file, t->name, H5P_DEFAULT), type, want, space, dcpl;
	hsize_t dims[H5S_MAX_RANK];
	const char *wrong = NULL;
	size_t n = 0;

	if (set < 0)
		return "is missing";
	type = H5Dget_type(set);
	want = ck_h5_type(t->dtype);
	space = H5Dget_space(set);
	dcpl = H5Dget_create_plist(set);
	if (H5Tequal(type, want) <= 0)
		wrong = "has another type";
	else if (H5Sget_simple_extent_ndims(space) != t->ndim ||
		 H5Sget_simple_extent_dims(space, dims, NULL) < 0)
		wrong = "has another shape";
	for (int d = 0; d < t->ndim && !wrong; d++)
		if (dims[d] != (hsize_t)t->shape[d])
			wrong = "has another shape";
	if (!wrong && t->npieces &&
	    (H5Pget_layout(dcpl) != H5D_VIRTUAL || H5Pget_virtual_count(dcpl, &n) < 0))
		wrong = "is not virtual";
	if (!wrong && n != (size_t)t->npieces)
		wrong = "has a wrong number of pieces";
	for (size_t k = 0; k < n && !wrong; k++)
		if (!same_mapping(m, t, dcpl, k))
			wrong = "has a piece in the wrong place";
	H5Tclose(type);
	H5Tclose(want);
	H5Sclose(space);
	H5Pclose(dcpl);
	H5Dclose(set);
	return wrong;
}

static void check_index(struct verify *v)
{
	const struct ck_manifest *m = &v->c->m;
	char path[CK_PATH], text[CK_PATH + 256];
	struct dt_err err = {0};
	hid_t file;

	ck_join(path, v->c->path, "index.h5");
	if (dt_h5_open(path, &file, &err) < 0) {
		finding(v, err.msg);
		return;
	}
	for (int i = 0; i < m->ntensor; i++) {
		const char *wrong = index_wrong(file, m, &m->tensor[i]);

		if (!wrong)
			continue;
		snprintf(text, sizeof(text), "'%s': tensor '%s' %s", path, m->tensor[i].name, wrong);
		finding(v, text);
	}
	H5Fclose(file);
}

/* Reports the lines of a child as findings. */
static void collect(struct verify *v, int fd)
{
	FILE *f = fdopen(fd, "r");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	while (f && (n = getline(&line, &cap, f)) > 0) {
		line[n - 1] = '\0';
		finding(v, line);
	}
	free(line);
	if (f)
		fclose(f);
	else
		close(fd);
}

/* A process that checks the structure of one file: the index, or the shard of that number. */
struct child {
	const char *name;
	pid_t pid; /* -1: it could not be started */
	int fd;	   /* its findings */
};

/*
 * HDF5 can crash or loop forever on damaged files. Such a file is reported, without ending this process: HDF5
 * is called in children only. They start before the threads that read pieces: a child of a process with
 * threads may only call async-signal-safe functions, and would find the locks of these threads taken.
 */
static void start(struct verify *v, int i, struct child *c)
{
	char text[CK_PATH + 128];
	int fd[2];

	c->name = i < v->c->m.nfile ? v->c->m.file[i].name : "index.h5";
	c->pid = -1;
	if (pipe2(fd, O_CLOEXEC) == 0) {
		c->pid = fork();
		if (c->pid < 0) {
			close(fd[0]);
			close(fd[1]);
		}
	}
	if (c->pid < 0) {
		snprintf(text, sizeof(text), "'%s/%s': its structure could not be checked: %s", v->c->path,
			 c->name, strerror(errno));
		finding(v, text);
		return;
	}
	if (c->pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		struct rlimit none = {0, 0};

		if (null >= 0)
			dup2(null, STDERR_FILENO); /* hides messages of the C library */
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGALRM, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		alarm(CHILD_SECONDS);
		dt_h5_quiet();
		v->pipe = fd[1];
		if (i < v->c->m.nfile)
			check_shard(v, i);
		else
			check_index(v);
		_exit(0);
	}
	close(fd[1]);
	c->fd = fd[0];
}

/* Reports what a child has found, or that it crashed. */
static void finish(struct verify *v, const struct child *c)
{
	char text[CK_PATH + 128];
	int status = 0;

	if (c->pid < 0)
		return;
	collect(v, c->fd);
	while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return;
	snprintf(text, sizeof(text), "'%s/%s' is so damaged that HDF5 %s on it", v->c->path, c->name,
		 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "does not end" : "crashes");
	finding(v, text);
}

/* Up to `workers` children at a time; their findings are reported in the order of the files. */
static void check_structures(struct verify *v, int workers)
{
	struct child child[MAX_WORKERS];
	int begun = 0, ended = 0, last = v->c->m.nfile;

	for (int i = 0; i <= last; i++) {
		if (i < last && v->skip[i])
			continue;
		if (begun - ended == workers)
			finish(v, &child[ended++ % workers]);
		start(v, i, &child[begun++ % workers]);
	}
	while (ended < begun)
		finish(v, &child[ended++ % workers]);
}

static void check_piece(struct verify *v, int k)
{
	const struct ck_piece *p = &v->c->m.piece[v->order[k]];
	struct dt_err err;

	if (!v->skip[p->file] && ck_read_piece(v->c, p, NULL, NULL, &err) < 0)
		finding(v, err.msg);
	pthread_mutex_lock(&v->lock);
	v->done += p->bytes;
	if (v->progress)
		v->progress(v->arg, v->done, v->total);
	pthread_mutex_unlock(&v->lock);
}

static void *worker(void *arg)
{
	struct verify *v = arg;
	int k;

	for (;;) {
		pthread_mutex_lock(&v->lock);
		k = v->next < v->c->m.npiece ? v->next++ : -1;
		pthread_mutex_unlock(&v->lock);
		if (k < 0)
			return NULL;
		check_piece(v, k);
	}
}

static int in_file_order(const void *a, const void *b, void *arg)
{
	const struct ck_piece *piece = arg, *x = &piece[*(const int *)a], *y = &piece[*(const int *)b];

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

static void read_all(struct verify *v, int workers)
{
	const struct ck_manifest *m = &v->c->m;

	for (int k = 0; k < m->npiece; k++) {
		v->order[k] = k;
		v->total += m->piece[k].bytes;
	}
	qsort_r(v->order, (size_t)m->npiece, sizeof(*v->order), in_file_order, m->piece);
	ck_workers_run(workers, worker, v);
}

int dt_ckpt_verify(const char *path, int workers, void (*report)(void *arg, const char *text), void *arg,
		   void (*progress)(void *arg, uint64_t done, uint64_t total), struct dt_err *err)
{
	struct verify v = {.report = report, .arg = arg, .progress = progress, .pipe = -1};
	int rc = dt_ckpt_open(path, &v.c, err);

	if (rc < 0)
		return rc;
	workers = workers < 1 ? 1 : workers > MAX_WORKERS ? MAX_WORKERS : workers;
	dt_ckpt_read_once(v.c);
	pthread_mutex_init(&v.lock, NULL);
	v.skip = calloc((size_t)v.c->m.nfile + 1, sizeof(*v.skip));
	v.order = calloc((size_t)v.c->m.npiece + 1, sizeof(*v.order));
	if (v.skip && v.order) {
		if (v.c->note)
			finding(&v, v.c->note);
		for (int i = 0; i < v.c->m.nfile; i++)
			v.skip[i] = !check_file(&v, i);
		check_structures(&v, workers);
		read_all(&v, workers);
		rc = v.findings;
	} else {
		rc = dt_err_sys(err, -ENOMEM, "cannot verify '%s'", path);
	}
	pthread_mutex_destroy(&v.lock);
	free(v.skip);
	free(v.order);
	dt_ckpt_close(v.c);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
