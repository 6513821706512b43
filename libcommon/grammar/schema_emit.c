/* Converts automata and listed values to rules over bytes in JSON notation. */
#include "grammar/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQ	 DT_SEQ
#define MAX_SETS 256 /* max character sets of one automaton that are cached */

/* ---- automata as rules ---- */

/* Whether an ASCII character stands for itself. */
static bool is_plain(const struct dt_schema *b, uint32_t c)
{
	return b->raw ? c > 0 : c >= ' ' && c != '"' && c != '\\';
}

static void add_escaped(struct dt_grammar *g, int r, uint32_t c)
{
	static const char letters[] = "bfnrt\"\\", control[] = "\b\f\n\r\t\"\\";
	const char *p = c ? strchr(control, (int)c) : NULL;

	if (p) /* other control characters are left out: they are not useful, and no pattern needs them */
		dt_gr_alt(g, r, SEQ(dt_gr_byte(g, '\\'), dt_gr_byte(g, letters[p - control])));
}

struct charset {
	int32_t *class; /* classes of the automaton */
	int n;
	struct dt_elem e;
};

/* The element that reads one character of these classes. */
static struct dt_elem characters(struct dt_schema *b, const struct dt_auto *a, const int32_t *class, int n)
{
	struct dt_grammar *g = b->g;
	char ascii[2 * 128 + 1];
	int r, k = 0, plain = 0, others = 0;

	for (int i = 0; i < n; i++) {
		uint32_t first = a->first[class[i]],
			 last = class[i] + 1 < a->nclass ? a->first[class[i] + 1] - 1 : DT_AUTO_LAST;

		for (uint32_t c = first; c <= last && c < 0x80; c++)
			if (is_plain(b, c)) {
				ascii[k++] = (char)c;
				plain++;
			} else {
				others++;
			}
		others += last >= 0x80;
	}
	ascii[k] = '\0';
	r = -1;
	if (others || !plain)
		r = dt_gr_rule(g);
	if (plain) {
		struct dt_elem e = dt_gr_c(dt_gr_members(g, ascii));

		if (r < 0)
			return e;
		dt_gr_alt(g, r, &e, 1);
	}
	for (int i = 0; i < n; i++) {
		uint32_t first = a->first[class[i]],
			 last = class[i] + 1 < a->nclass ? a->first[class[i] + 1] - 1 : DT_AUTO_LAST;

		for (uint32_t c = first; c <= last && c < 0x80; c++)
			if (!is_plain(b, c) && !b->raw)
				add_escaped(g, r, c);
		if (last >= 0x80)
			dt_gr_wide(g, r, first < 0x80 ? 0x80 : first, last);
	}
	return dt_gr_r(r);
}

struct emit {
	struct charset set[MAX_SETS];
	int nset, round;
	int32_t *class, *target; /* [nclass] scratch */
};

static struct dt_elem charset_of(struct dt_schema *b, struct emit *m, const struct dt_auto *a, int n)
{
	struct dt_elem e;

	for (int i = 0; i < m->nset; i++)
		if (m->set[i].n == n && !memcmp(m->set[i].class, m->class, (size_t)n * sizeof(*m->class)))
			return m->set[i].e;
	e = characters(b, a, m->class, n);
	if (m->nset < MAX_SETS) {
		struct charset *s = &m->set[m->nset];

		s->class = malloc((size_t)n * sizeof(*s->class));
		if (s->class) {
			memcpy(s->class, m->class, (size_t)n * sizeof(*s->class));
			s->n = n;
			s->e = e;
			m->nset++;
		}
	}
	return e;
}

/* The alternatives of one state: for each successor, the characters that lead to it. */
static void emit_state(struct dt_schema *b, struct emit *m, const struct dt_auto *a, int base, int s)
{
	const int32_t *next = a->next + (size_t)s * (size_t)a->nclass;

	if (a->accept[s])
		dt_gr_alt(b->g, base + s, NULL, 0);
	memset(m->target, 0, (size_t)a->nclass * sizeof(*m->target));
	for (int k = 0; k < a->nclass; k++) {
		int n = 0;

		if (next[k] < 0 || m->target[k])
			continue;
		for (int j = k; j < a->nclass; j++)
			if (next[j] == next[k]) {
				m->target[j] = 1;
				m->class[n++] = j;
			}
		if (!dt_schema_work(b, a->nclass))
			return;
		dt_gr_alt(b->g, base + s, SEQ(charset_of(b, m, a, n), dt_gr_r(base + next[k])));
	}
}

int dt_schema_emit(struct dt_schema *b, const struct dt_auto *a)
{
	struct emit *m = calloc(1, sizeof(*m));
	int base = dt_gr_rule(b->g);

	if (m) {
		m->class = malloc(((size_t)a->nclass + 1) * sizeof(*m->class));
		m->target = malloc(((size_t)a->nclass + 1) * sizeof(*m->target));
	}
	if (!m || !m->class || !m->target) {
		dt_schema_good(b, -ENOMEM);
	} else {
		for (int s = 1; s < a->nstate; s++)
			dt_gr_rule(b->g);
		for (int s = 0; s < a->nstate && b->rc == 0 && !b->g->no_memory; s++) {
			emit_state(b, m, a, base, s);
			if (b->g->nelem > DT_MAX_ELEMS)
				dt_schema_good(b, -E2BIG);
		}
	}
	for (int i = 0; m && i < m->nset; i++)
		free(m->set[i].class);
	if (m) {
		free(m->class);
		free(m->target);
	}
	free(m);
	return base;
}

/* ---- listed values ---- */

/* The shortest text that reads back as the same number. */
static char *dump(struct dt_schema *b, const json_t *v)
{
	char *text = NULL;

	for (size_t digits = 15; digits <= 17; digits++) {
		json_t *back;
		bool same;

		free(text);
		text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
		if (!text)
			break;
		back = json_loads(text, JSON_DECODE_ANY, NULL);
		same = back && json_equal(back, v);
		json_decref(back);
		if (same)
			break;
	}
	if (!text)
		dt_schema_good(b, -ENOMEM);
	return text;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/*
 * A prefix tree of n sorted texts, without their first `at` bytes, which are equal. What all of them begin
 * with is one rule, so the depth of the tree is limited by the number of texts, not by their length.
 */
static int tree(struct dt_schema *b, char **text, int n, size_t at)
{
	const char *first = text[0] + at, *last = text[n - 1] + at;
	size_t same = 0;
	int r, all, i = 0;

	while (first[same] && first[same] == last[same])
		same++;
	if (!first[same] && !last[same]) /* all texts are equal */
		return dt_gr_literal(b->g, first, same);
	r = dt_gr_rule(b->g);
	at += same;
	while (i < n && !text[i][at]) {
		if (i == 0)
			dt_gr_alt(b->g, r, NULL, 0);
		i++;
	}
	while (i < n && dt_schema_work(b, n)) {
		int end = i + 1, rest;

		while (end < n && text[end][at] == text[i][at])
			end++;
		rest = tree(b, text + i, end - i, at + 1);
		dt_gr_alt(b->g, r, SEQ(dt_gr_byte(b->g, (unsigned char)text[i][at]), dt_gr_r(rest)));
		i = end;
	}
	if (same == 0)
		return r;
	all = dt_gr_rule(b->g);
	dt_gr_alt(b->g, all, SEQ(dt_gr_r(dt_gr_literal(b->g, first, same)), dt_gr_r(r)));
	return all;
}

int dt_schema_literals(struct dt_schema *b, const json_t *const *value, int n)
{
	char **text = calloc((size_t)n + 1, sizeof(*text));
	int r = 0, k = 0;

	if (!text)
		dt_schema_good(b, -ENOMEM);
	for (int i = 0; text && i < n && b->rc == 0; i++)
		if ((text[k] = dump(b, value[i]))) {
			dt_schema_work(b, 20 * (int64_t)strlen(text[k]));
			k++;
		}
	if (b->rc == 0) {
		qsort(text, (size_t)k, sizeof(*text), by_text);
		r = k ? tree(b, text, k, 0) : dt_gr_rule(b->g);
	}
	for (int i = 0; i < k; i++)
		free(text[i]);
	free(text);
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
