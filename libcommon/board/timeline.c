/* The timeline of a pipeline step, from a trace of dt-train (base/trace.h writes one event a line). */
#include "board/board.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPANS_MAX = 20000, LINE = 65536 };

struct span {
	int rank;
	double ts, dur;
	char kind; /* selects a colour on the page */
	int mb, chunk;
};

struct spans {
	struct span *v;
	int n;
	double from, to; /* start and end of the displayed step */
	int64_t step;
};

static char kind_of(const char *cat, const char *name)
{
	if (!strcmp(cat, "pipeline"))
		return name[0] == 'f' ? 'F' : name[0] == 'b' ? 'B' : 'W';
	if (!strcmp(cat, "bubble"))
		return 'w';
	if (!strcmp(cat, "data"))
		return 'd';
	if (!strcmp(cat, "optimizer"))
		return 'o';
	if (!strcmp(cat, "save"))
		return 's';
	return !strcmp(cat, "message") || !strcmp(cat, "wait") ? 'm' : '\0';
}

/* Calls fn for each complete event (span) of the file. */
static void each(const char *path, void (*fn)(struct spans *s, const json_t *e), struct spans *s)
{
	FILE *f = fopen(path, "re");
	char *line = malloc(LINE);

	while (f && line && fgets(line, LINE, f)) {
		size_t n = strlen(line);
		json_t *e;

		while (n && strchr(",\n", line[n - 1]))
			n--;
		if (!n || line[0] != '{')
			continue;
		e = json_loadb(line, n, 0, NULL);
		if (e && json_string_value(json_object_get(e, "ph")) &&
		    !strcmp(json_string_value(json_object_get(e, "ph")), "X"))
			fn(s, e);
		json_decref(e);
	}
	free(line);
	if (f)
		fclose(f);
}

static double real(const json_t *e, const char *key)
{
	return json_number_value(json_object_get(e, key));
}

static const char *word(const json_t *e, const char *key)
{
	const char *s = json_string_value(json_object_get(e, key));

	return s ? s : "";
}

/* Finds the last step but one of any rank; the last may have been cut off by the end of the run. */
static void newest_step(struct spans *s, const json_t *e)
{
	int64_t step = json_integer_value(json_object_get(json_object_get(e, "args"), "step"));

	if (!strcmp(word(e, "cat"), "step") && step > s->step)
		s->step = step;
}

static void its_time(struct spans *s, const json_t *e)
{
	double from = real(e, "ts"), to = from + real(e, "dur");

	if (strcmp(word(e, "cat"), "step") ||
	    json_integer_value(json_object_get(json_object_get(e, "args"), "step")) != s->step)
		return;
	s->from = fmin(s->from, from);
	s->to = fmax(s->to, to);
}

static void take(struct spans *s, const json_t *e)
{
	const json_t *args = json_object_get(e, "args"), *mb = json_object_get(args, "microbatch");
	char kind = kind_of(word(e, "cat"), word(e, "name"));
	double ts = real(e, "ts");

	if (!kind || s->n == SPANS_MAX || ts < s->from || ts + real(e, "dur") > s->to + 1)
		return;
	s->v[s->n++] = (struct span){.rank = (int)json_integer_value(json_object_get(e, "pid")),
				     .ts = ts - s->from,
				     .dur = real(e, "dur"),
				     .kind = kind,
				     .mb = mb ? (int)json_integer_value(mb) : -1,
				     .chunk = (int)json_integer_value(json_object_get(args, "chunk"))};
}

void dt_board_put_timeline(const struct dt_board *b, const struct dt_board_ask *q, FILE *f)
{
	struct spans s = {.from = INFINITY, .step = -1};
	const char *path = NULL;

	for (int k = 0; q->run >= 0 && q->run < b->n && k < b->nfile; k++)
		if (b->file[k].trace && b->file[k].folder == b->folder[q->run])
			path = b->file[k].path;
	s.v = path ? malloc(SPANS_MAX * sizeof(*s.v)) : NULL;
	if (s.v) {
		each(path, newest_step, &s);
		s.step -= s.step > 1;
		each(path, its_time, &s);
		each(path, take, &s);
	}
	fprintf(f, "{\"step\":%lld,\"us\":%.3f,\"spans\":[", (long long)s.step, s.n ? s.to - s.from : 0);
	for (int i = 0; i < s.n; i++)
		fprintf(f, "%s[%d,\"%c\",%.1f,%.1f,%d,%d]", i ? "," : "", s.v[i].rank, s.v[i].kind, s.v[i].ts,
			s.v[i].dur, s.v[i].mb, s.v[i].chunk);
	fputs("]}", f);
	free(s.v);
}
/* SPDX-License-Identifier: Apache-2.0 */
