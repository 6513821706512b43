/* Diagnoses a job that hangs or has died from the recordings of all ranks (base/recorder.h). */
#include "supervise/explain.h"

#include "base/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_RANKS (1 << 20) /* of a job; more are a damaged file's */

struct files {
	struct dt_recording **f; /* [n], by place on the command line */
	int n;
	FILE *out;
	int findings;
};

static int map_file(const char *path, struct dt_recording **ret, struct dt_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct dt_recording *r = MAP_FAILED;
	struct stat st;

	if (fd < 0)
		return dt_err_sys(err, -errno, "cannot open '%s'", path);
	if (fstat(fd, &st) == 0 &&
	    st.st_size == (off_t)sizeof(*r)) /* a private copy: it must not change after the checks */
		r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	close(fd);
	if (r == MAP_FAILED || r->magic != DT_RECORDER_MAGIC || r->record_bytes != sizeof(struct dt_record) ||
	    r->room != DT_RECORDER_ROOM || r->size < 1 || r->size > MOST_RANKS || r->rank < 0 ||
	    r->rank >= r->size) {
		if (r != MAP_FAILED)
			munmap(r, sizeof(*r));
		return dt_err_set(err, -EINVAL,
				  "'%s' is not a flight recording of this version of dt, or is damaged",
				  path);
	}
	for (int i = 0; i < DT_RECORDER_ROOM; i++) {
		struct dt_record *k = &r->r[i];

		k->no = k->seq > INT64_MAX ? 0 : k->no; /* damaged */
		k->group[15] = k->kind[15] = k->type[7] = k->what[47] = '\0';
	}
	*ret = r;
	return 0;
}

static bool same_group(const struct dt_record *a, const struct dt_record *b)
{
	return a->first == b->first && a->members == b->members && !strcmp(a->group, b->group);
}

/* The collective `seq` of this group (0: the newest); NULL: none. */
static const struct dt_record *find(const struct dt_recording *f, const struct dt_record *group, uint64_t seq)
{
	const struct dt_record *best = NULL;

	for (int i = 0; i < DT_RECORDER_ROOM; i++) {
		const struct dt_record *r = &f->r[i];

		if (!r->no || !r->seq || !same_group(r, group))
			continue;
		if (seq ? r->seq == seq : !best || r->seq > best->seq)
			best = r;
	}
	return best;
}

static void describe(const struct dt_record *r, char *buf, size_t n)
{
	snprintf(buf, n, "%s '%s' of %llu %s", r->kind, r->what, (unsigned long long)r->n, r->type);
}

/* Reports the first collective of the group that two ranks call differently. */
static void compare_calls(struct files *s, const struct dt_record *group, uint64_t last)
{
	for (uint64_t seq = last > DT_RECORDER_ROOM ? last - DT_RECORDER_ROOM : 1; seq <= last; seq++) {
		const struct dt_record *a = NULL;
		int who = 0;

		for (int i = 0; i < s->n; i++) {
			const struct dt_record *b = find(s->f[i], group, seq);
			char x[128], y[128];

			if (!b)
				continue;
			if (!a) {
				a = b;
				who = s->f[i]->rank;
				continue;
			}
			if (a->n == b->n && !strcmp(a->kind, b->kind) && !strcmp(a->what, b->what) &&
			    !strcmp(a->type, b->type))
				continue;
			describe(a, x, sizeof(x));
			describe(b, y, sizeof(y));
			fprintf(s->out,
				"group %s of %d ranks, collective %llu: rank %d calls %s, rank %d calls %s\n",
				group->group, group->members, (unsigned long long)seq, who, x, s->f[i]->rank,
				y);
			s->findings++;
			return;
		}
	}
}

/* All ranks have arrived: reports which came last, if they share a clock. */
static void explain_last(struct files *s, const struct dt_record *group, uint64_t seq)
{
	double first = 0, last = 0;
	int who = 0;

	for (int i = 0; i < s->n; i++) {
		const struct dt_record *r = find(s->f[i], group, seq);

		if (!r)
			continue;
		first = first <= 0 || r->began < first ? r->began : first;
		if (r->began >= last) {
			last = r->began;
			who = i;
		}
	}
	if (last - first > 0.5)
		fprintf(s->out,
			"  rank %d (process %d) arrived last, %.1f s after the first (if their clocks "
			"agree)\n",
			s->f[who]->rank, s->f[who]->pid, last - first);
}

/* Reports which ranks have arrived at the group's newest collective, and which have not. */
static void explain_group(struct files *s, const struct dt_record *group)
{
	const struct dt_record *newest = NULL;
	int waiting = 0, late = 0;
	char text[128];

	for (int i = 0; i < s->n; i++) {
		const struct dt_record *r = find(s->f[i], group, 0);

		if (r && (!newest || r->seq > newest->seq))
			newest = r;
	}
	if (!newest)
		return;
	compare_calls(s, group, newest->seq);
	for (int i = 0; i < s->n; i++) {
		const struct dt_record *r = find(s->f[i], group, 0);

		waiting += r && r->seq == newest->seq && r->ended <= 0;
		late += r && r->seq < newest->seq;
	}
	if (!waiting)
		return;
	describe(newest, text, sizeof(text));
	fprintf(s->out, "group %s of %d ranks, collective %llu, %s: %d ranks wait in it\n", group->group,
		group->members, (unsigned long long)newest->seq, text, waiting);
	s->findings++;
	if (!late)
		explain_last(s, group, newest->seq);
	for (int i = 0; i < s->n && late; i++) {
		const struct dt_record *r = find(s->f[i], group, 0);

		if (!r || r->seq == newest->seq)
			continue;
		describe(r, text, sizeof(text));
		fprintf(s->out, "  rank %d (process %d) is behind: its last is collective %llu, %s, %s\n",
			s->f[i]->rank, s->f[i]->pid, (unsigned long long)r->seq, text,
			r->ended > 0 ? "complete" : "not complete");
	}
}

/* Explains each group once, by the first record that names it. */
static void explain_groups(struct files *s)
{
	struct dt_record seen[256];
	int n = 0;

	for (int i = 0; i < s->n; i++)
		for (int j = 0; j < DT_RECORDER_ROOM && n < 256; j++) {
			const struct dt_record *r = &s->f[i]->r[j];
			int k = 0;

			while (k < n && !same_group(r, &seen[k]))
				k++;
			if (!r->no || !r->seq || k < n)
				continue;
			seen[n++] = *r;
			explain_group(s, r);
		}
}

static void explain_messages(struct files *s)
{
	for (int i = 0; i < s->n; i++)
		for (int j = 0; j < DT_RECORDER_ROOM; j++) {
			const struct dt_record *r = &s->f[i]->r[j];
			char text[128];

			if (!r->no || r->seq || r->ended > 0)
				continue;
			describe(r, text, sizeof(text));
			fprintf(s->out, "rank %d: %s with rank %d is not complete\n", s->f[i]->rank, text,
				r->peer);
			s->findings++;
		}
}

static void explain_missing(struct files *s)
{
	int size = s->f[0]->size;

	for (int rank = 0; rank < size; rank++) {
		bool there = false;

		for (int i = 0; i < s->n; i++)
			there |= s->f[i]->rank == rank;
		if (there)
			continue;
		fprintf(s->out, "rank %d of %d: its recording was not given\n", rank, size);
		s->findings++;
	}
}

int dt_supervise_explain(char *const *path, int n, FILE *out, struct dt_err *err)
{
	struct files s = {.f = calloc((size_t)n, sizeof(*s.f)), .out = out};
	int rc = s.f ? 0 : dt_err_sys(err, -ENOMEM, "recordings");

	for (int i = 0; i < n && rc == 0; i++) {
		rc = map_file(path[i], &s.f[i], err);
		s.n += rc == 0;
	}
	if (rc == 0) {
		explain_missing(&s);
		explain_groups(&s);
		explain_messages(&s);
		if (!s.findings)
			fprintf(out, "%d ranks: all recorded operations are complete\n", n);
	}
	for (int i = 0; i < s.n; i++)
		munmap(s.f[i], sizeof(*s.f[i]));
	free(s.f);
	return rc < 0 ? rc : s.findings;
}
/* SPDX-License-Identifier: Apache-2.0 */
