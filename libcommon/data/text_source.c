#include "data/text_source.h"

#include "base/mapped.h"
#include "data/text_lines.h"
#include "data/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK	   (1 << 20)
#define GIVE_BYTES ((size_t)64 << 20)

struct reader {
	struct dt_text_source *s;
	dt_document_fn fn;
	void *ctx;
	const char *path;
};

bool dt_text_is_jsonl(enum dt_text_format format, const char *path)
{
	static const char *const endings[] = {".jsonl", ".ndjson"}, *const packed[] = {"", ".gz", ".zst"};
	size_t n = strlen(path);

	if (format != DT_TEXT_AUTO)
		return format == DT_TEXT_JSONL;
	for (int i = 0; i < 6; i++) {
		size_t a = strlen(endings[i / 3]), b = strlen(packed[i % 3]);

		if (n >= a + b && !strncmp(path + n - a - b, endings[i / 3], a) &&
		    !strcmp(path + n - b, packed[i % 3]))
			return true;
	}
	return false;
}

struct text_file {
	char *held; /* contents that had to be read or mapped to know their length; NULL: still on disk */
	size_t n;
	bool known;  /* n is the length of the text */
	bool mapped; /* held is a memory mapping */
};

/* Reads u to its end to find its length. */
static int count_all(struct unpack *u, size_t *ret_n, struct dt_err *err)
{
	char *buf = malloc(BLOCK);
	size_t n = 0;
	int got;

	if (!buf)
		return dt_err_sys(err, -ENOMEM, "cannot read the input");
	while ((got = unpack_read(u, buf, BLOCK, err)) > 0)
		n += (size_t)got;
	free(buf);
	*ret_n = n;
	return got;
}

/*
 * Finds what must be known of a file beforehand: its length, if the input is cut. A pipe is read into memory;
 * a compressed file is read twice.
 */
static int look_at(struct dt_text_source *s, const char *path, struct text_file *f, struct dt_err *err)
{
	struct unpack *u;
	struct stat st;
	bool regular, packed;
	int rc;

	if (unpack_is_file(path) && stat(path, &st) < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	regular = unpack_is_file(path) && S_ISREG(st.st_mode);
	if (!regular && s->eval_percent <= 0)
		return 0;
	rc = unpack_open(path, &u, err);
	if (rc < 0)
		return rc;
	packed = unpack_is_packed(u);
	f->known = !packed || s->eval_percent > 0;
	if (regular && (!packed || s->eval_percent <= 0))
		f->n = (size_t)st.st_size;
	else
		rc = regular ? count_all(u, &f->n, err) : unpack_rest(u, SIZE_MAX / 4, &f->held, &f->n, err);
	unpack_close(u);
	return rc;
}

int dt_text_source_open(struct dt_text_source *s, int n, const char *const *paths, struct dt_err *err)
{
	int rc = 0;

	s->path = paths;
	s->paths = n;
	s->total_bytes = s->read_bytes = 0;
	s->bad = s->empty = 0;
	s->file = calloc((size_t)n, sizeof(*s->file));
	if (!s->file)
		return dt_err_sys(err, -ENOMEM, "cannot read the input");
	for (int i = 0; i < n && rc == 0; i++) {
		rc = look_at(s, paths[i], &s->file[i], err);
		s->total_bytes += s->file[i].n;
	}
	s->cut = UINT64_MAX;
	if (s->eval_percent > 0)
		s->cut = (uint64_t)floorl((long double)s->total_bytes * (100 - (long double)s->eval_percent) /
					  100);
	return rc;
}

static void let_go(struct text_file *f)
{
	if (f->mapped)
		dt_mapped_drop(f->held, f->n);
	else
		free(f->held);
	*f = (struct text_file){0};
}

void dt_text_source_close(struct dt_text_source *s)
{
	for (int i = 0; i < s->paths && s->file; i++)
		let_go(&s->file[i]);
	free(s->file);
	s->file = NULL;
}

/* Passes on a document at byte `at` of the input, as two if the cut is inside it. */
static int give(const struct reader *r, const char *text, size_t n, uint64_t at, struct dt_err *err)
{
	uint64_t cut = r->s->cut;
	size_t head = cut <= at ? 0 : cut - at < n ? (size_t)(cut - at) : n;
	int rc = 0;

	if (!n && at >= r->s->from)
		r->s->empty++;
	while (head > 0 && head < n && ((unsigned char)text[head] & 0xc0) == 0x80)
		head--;
	if (head && at >= r->s->from)
		rc = r->fn(r->ctx, text, head, false, at, err);
	if (rc >= 0 && head < n && at + head >= r->s->from)
		rc = r->fn(r->ctx, text + head, n - head, true, at + head, err);
	return rc < 0 ? rc : 0;
}

/* Releases pages of a mapped file that have been read, in large steps, to bound memory. */
static void give_back(const struct text_file *f, size_t read, size_t *given)
{
	size_t to = read / GIVE_BYTES * GIVE_BYTES;

	if (f->mapped && to > *given) {
		madvise(f->held + *given, to - *given, MADV_DONTNEED);
		*given = to;
	}
}

static int read_plain(const struct reader *r, const struct text_file *f, struct dt_err *err)
{
	const char *text = f->held;
	size_t n = f->n, given = 0;
	const char *sep = r->s->separator, *end;
	uint64_t base = r->s->read_bytes;
	size_t at = n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0, sep_n = sep ? strlen(sep) : 0;
	int rc = at < n ? 0 : give(r, NULL, 0, base, err);

	while (at < n && rc == 0) {
		end = sep ? memmem(text + at, n - at, sep, sep_n) : NULL;
		if (!end)
			end = text + n;
		rc = give(r, text + at, (size_t)(end - text) - at, base + at, err);
		at = (size_t)(end - text) + sep_n;
		give_back(f, at < n ? at : n, &given);
	}
	r->s->read_bytes = base + n;
	return rc;
}

/* A file's bytes, in memory or on disk. */
struct lines_from {
	const struct reader *r;
	struct unpack *u; /* NULL: in memory */
	const struct text_file *f;
	size_t taken;	/* bytes consumed of held */
	uint64_t begin; /* offset of the file in the input */
};

static int more_bytes(void *ctx, void *buf, int n, struct dt_err *err)
{
	struct lines_from *l = ctx;
	size_t left = l->f->n - l->taken;

	if (l->u)
		return unpack_read(l->u, buf, n, err);
	if ((size_t)n > left)
		n = (int)left;
	memcpy(buf, l->f->held + l->taken, (size_t)n);
	l->taken += (size_t)n;
	return n;
}

static int bad_line(const struct reader *r, const char *why, struct dt_err *err)
{
	struct dt_err own, *e = r->s->skip_bad ? &own : err;
	int rc = dt_err_set(e, -EBADMSG, "'%s': %s", r->path, why);

	if (!r->s->skip_bad)
		return rc;
	r->s->bad++;
	if (r->s->told)
		r->s->told(r->s->told_ctx, own.msg);
	return 0;
}

static int take_line(void *ctx, const struct text_line *l, struct dt_err *err)
{
	const struct reader *r = ((struct lines_from *)ctx)->r;
	const json_t *v = json_object_get(l->value, r->s->field);
	const uint64_t at = r->s->read_bytes;
	char why[256];
	int rc;

	r->s->read_bytes += l->bytes;
	if (at < r->s->from)
		return 0;
	if (*l->why)
		return bad_line(r, l->why, err);
	if (!l->value)
		return 0;
	if (!json_is_string(v)) {
		snprintf(why, sizeof(why), "line %zu has no string '%s'", l->number, r->s->field);
		if (bad_line(r, why, err) == 0)
			return 0;
		dt_err_hint(err, "use --field to give the key of the document");
		return err->code;
	}
	if (!json_string_length(v)) {
		r->s->empty++;
		return 0;
	}
	rc = r->fn(r->ctx, json_string_value(v), json_string_length(v), at >= r->s->cut, at, err);
	return rc < 0 ? rc : 0;
}

static bool is_wanted(void *ctx, size_t at)
{
	const struct lines_from *l = ctx;

	return l->begin + at >= l->r->s->from;
}

static int read_jsonl_file(const struct reader *r, const struct text_file *file, struct dt_err *err)
{
	struct lines_from from = {.r = r, .f = file, .begin = r->s->read_bytes};
	const struct text_lines lines = {
		.more = more_bytes, .take = take_line, .wanted = is_wanted, .ctx = &from};
	int rc = file->held ? 0 : unpack_open(r->path, &from.u, err);

	if (rc == 0)
		rc = text_lines_read(&lines, err);
	if (from.u)
		unpack_close(from.u);
	return rc;
}

/* Maps a plain file, so that its pages come and go; reads any other into memory. */
static int hold(const char *path, struct text_file *f, struct dt_err *err)
{
	struct unpack *u;
	struct stat st;
	int rc = unpack_open(path, &u, err), fd;

	if (rc < 0)
		return rc;
	if (!unpack_is_packed(u) && unpack_is_file(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
	    st.st_size > 0) {
		unpack_close(u);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		f->n = (size_t)st.st_size;
		f->held = fd < 0 ? MAP_FAILED : mmap(NULL, f->n, PROT_READ, MAP_PRIVATE, fd, 0);
		f->mapped = f->held != MAP_FAILED;
		if (f->mapped) {
			dt_mapped_note(f->held, f->n, path);
		} else {
			f->held = NULL;
			rc = dt_err_sys(err, -errno, "cannot read '%s'", path);
		}
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = unpack_rest(u, SIZE_MAX / 4, &f->held, &f->n, err);
	unpack_close(u);
	return rc;
}

int dt_text_source_read(struct dt_text_source *s, dt_document_fn fn, void *ctx, struct dt_err *err)
{
	struct reader r = {.s = s, .fn = fn, .ctx = ctx};
	int rc = 0;

	for (int i = 0; i < s->paths && rc == 0; i++) {
		struct text_file *f = &s->file[i];

		r.path = s->path[i];
		if (f->known && f->n && s->read_bytes + f->n <= s->from) {
			s->read_bytes += f->n;
			let_go(f);
			continue;
		}
		if (dt_text_is_jsonl(s->format, r.path)) {
			rc = read_jsonl_file(&r, f, err);
			continue;
		}
		if (!f->held)
			rc = hold(r.path, f, err);
		if (rc == 0)
			rc = read_plain(&r, f, err);
		let_go(f);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
