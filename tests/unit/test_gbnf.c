/*
 * Grammars in GBNF: random ones against a naive recogniser of the tree that they were written from, masks
 * against single tokens, texts of well-known kinds, and what is refused.
 */
#include "base/rng.h"
#include "grammar/matcher_priv.h"
#include "small_stack.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct dt_rng rng;
static uint64_t drawn;

static int below(int n)
{
	return (int)dt_rng_below(&rng, drawn++, (uint64_t)n);
}

/* ---- trees ---- */

enum { RULES = 5, NODES = 400, LETTERS = 4, LONGEST = 12 };

/* The alphabet, as bytes and in GBNF; the last letter is none of the others. */
static const char *const letter[LETTERS] = {"a", "b", "\xc3\xa9", "\xe2\x82\xac"};
static const char *const written[LETTERS] = {"a", "\\x62", "\xc3\xa9", "\\u20ac"};

enum kind { WORD, SET, REF, SEQ, ALT, MANY };

struct node {
	enum kind kind;
	int word[3], n;	  /* WORD: letters */
	unsigned set;	  /* SET: bit of each letter */
	bool negated;	  /* SET: as it is written */
	int rule;	  /* REF */
	int child[3];	  /* SEQ, ALT: [n]; MANY: [1] */
	int min, max, op; /* MANY; max -1: no limit; op: how it is written */
};

struct tree {
	struct node node[NODES];
	int n, root[RULES];
};

static int leaf(struct tree *t)
{
	struct node *x = &t->node[t->n];

	*x = (struct node){.kind = below(2) ? WORD : SET, .set = 1 + (unsigned)below(14), .n = below(4)};
	for (int i = 0; i < x->n; i++)
		x->word[i] = below(LETTERS);
	x->negated = below(3) == 0;
	return t->n++;
}

/* A node that may use rules from `first` on, and any rule once a letter was read. */
static int grow(struct tree *t, int first, int depth)
{
	const int at = t->n, what = depth > 3 || t->n > NODES - 40 ? 0 : below(6);
	struct node x = {.kind = WORD};

	if (what < 2)
		return leaf(t);
	t->n++;
	if (what == 2 && first < RULES) {
		x = (struct node){.kind = REF, .rule = first + below(RULES - first)};
	} else if (what == 3) {
		x = (struct node){.kind = MANY, .op = below(6), .min = below(3)};
		x.max = x.min + below(3);
		x.child[0] = grow(t, first, depth + 1);
		if (x.op < 3) {
			x.min = x.op == 1;
			x.max = x.op == 2 ? 1 : -1;
		} else if (x.op == 3) {
			x.max = x.min;
		} else if (x.op == 4) {
			x.max = -1;
		}
	} else if (what == 4) {
		x.kind = ALT;
		x.n = 1 + below(3);
		for (int i = 0; i < x.n; i++)
			x.child[i] = grow(t, first, depth + 1);
	} else {
		x.kind = SEQ;
		x.n = 1 + below(3);
		for (int i = 0; i < x.n; i++) {
			const bool read = i > 0 && t->node[x.child[0]].kind == SET;

			x.child[i] = grow(t, read ? 0 : first, depth + 1);
		}
	}
	t->node[at] = x;
	return at;
}

/* Every rule has an alternative that is a leaf, so that all of them end. */
static void plant(struct tree *t)
{
	t->n = 0;
	for (int r = 0; r < RULES; r++) {
		const int at = t->n++;
		struct node x = {.kind = ALT, .n = 2};

		x.child[0] = grow(t, r + 1, 0);
		x.child[1] = leaf(t);
		t->node[at] = x;
		t->root[r] = at;
	}
}

static void space(FILE *f, bool lines)
{
	static const char *const some[] = {" ", "  ", "\t", " \n ", " # a | comment\n", "\n\n"};

	fputs(some[below(lines ? 6 : 3)], f);
}

static void write_set(const struct node *x, FILE *f)
{
	fputs(x->negated ? "[^" : "[", f);
	for (int i = 0; i < LETTERS; i++) /* the negated set of the letters that are missing */
		if ((x->set >> i & 1) != x->negated)
			fprintf(f, "%s", written[i]);
	if (x->negated) /* nothing else is in texts: all other letters may be in it or not */
		fputs("z-", f);
	fputc(']', f);
}

static void write_many(const struct node *x, FILE *f)
{
	if (x->op < 3)
		fputc("*+?"[x->op], f);
	else if (x->op == 3)
		fprintf(f, "{%d}", x->min);
	else if (x->op == 4)
		fprintf(f, "{ %d , }", x->min);
	else
		fprintf(f, "{%d,%d}", x->min, x->max);
}

/* nested: inside parentheses. */
static void write_node(const struct tree *t, int at, bool nested, FILE *f)
{
	static const char *const name[RULES] = {"root", "a-rule", "B_2", "x", "9"};
	const struct node *x = &t->node[at];

	switch (x->kind) {
	case WORD:
		fputc('"', f);
		for (int i = 0; i < x->n; i++)
			fputs(written[x->word[i]], f);
		fputc('"', f);
		break;
	case SET:
		write_set(x, f);
		break;
	case REF:
		fputs(name[x->rule], f);
		break;
	case MANY:
		if (t->node[x->child[0]].kind == MANY || below(2)) {
			fputc('(', f);
			space(f, true);
			write_node(t, x->child[0], true, f);
			fputc(')', f);
		} else {
			write_node(t, x->child[0], nested, f);
		}
		write_many(x, f);
		break;
	case ALT:
	case SEQ:
		fputc('(', f);
		for (int i = 0; i < x->n; i++) {
			space(f, true);
			if (i > 0 && x->kind == ALT)
				fputs("| ", f);
			write_node(t, x->child[i], true, f);
		}
		space(f, true);
		fputc(')', f);
	}
	if (!nested)
		space(f, false);
}

static char *write_tree(const struct tree *t)
{
	static const char *const name[RULES] = {"root", "a-rule", "B_2", "x", "9"};
	char *s = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&s, &n);

	for (int r = 0; r < RULES; r++) {
		const struct node *x = &t->node[t->root[r]];

		fprintf(f, "%s ::=", name[r]);
		space(f, true);
		for (int i = 0; i < x->n; i++) {
			if (i > 0)
				fputs(below(2) ? "| \n " : "\n  |", f);
			write_node(t, x->child[i], false, f);
		}
		fputs(below(2) ? "\n" : " # end\n\n", f);
	}
	fclose(f);
	return s;
}

/* ---- the recogniser: all ends of a node's matches of a text of letters, as bits ---- */

struct text {
	const struct tree *t;
	int letter[LONGEST], n;
	bool more; /* the text ended where a letter could have followed: it is the beginning of another */
	uint32_t known[NODES]
		      [LONGEST + 1]; /* the ends of a node from a letter, and bit 31; 0: not known yet */
};

static uint32_t ends(struct text *x, int at, int from);

static uint32_t ends_of_all(struct text *x, int at, uint32_t from)
{
	uint32_t all = 0;

	for (int i = 0; i <= x->n; i++)
		if (from >> i & 1)
			all |= ends(x, at, i);
	return all;
}

static uint32_t ends_of_letter(struct text *x, unsigned set, int from)
{
	if (from == x->n) {
		x->more = true;
		return 0;
	}
	return set >> x->letter[from] & 1 ? 2u << from : 0;
}

static uint32_t ends_of_many(struct text *x, const struct node *m, int from)
{
	uint32_t now = 1u << from, all = m->min == 0 ? now : 0;

	for (int i = 1; (m->max < 0 ? i <= m->min + x->n + 1 : i <= m->max) && now; i++) {
		now = ends_of_all(x, m->child[0], now);
		all |= i >= m->min ? now : 0;
	}
	return all;
}

static uint32_t find_ends(struct text *x, int at, int from)
{
	const struct node *m = &x->t->node[at];
	uint32_t all = 1u << from, any = 0;

	switch (m->kind) {
	case WORD:
		for (int i = 0; i < m->n && all; i++)
			all = ends_of_letter(x, 1u << m->word[i], from + i);
		return all;
	case SET:
		return ends_of_letter(x, m->set, from);
	case REF:
		return ends(x, x->t->root[m->rule], from);
	case MANY:
		return ends_of_many(x, m, from);
	case ALT:
		for (int i = 0; i < m->n; i++)
			any |= ends(x, m->child[i], from);
		return any;
	default:
		for (int i = 0; i < m->n && all; i++)
			all = ends_of_all(x, m->child[i], all);
		return all;
	}
}

static uint32_t ends(struct text *x, int at, int from)
{
	if (!x->known[at][from])
		x->known[at][from] = find_ends(x, at, from) | 1u << 31;
	return x->known[at][from] & ~(1u << 31);
}

/* ---- the tests ---- */

static struct dt_grammar *grammar_of(const char *text)
{
	struct dt_grammar *g = NULL;
	struct dt_err err;

	if (dt_grammar_gbnf(text, strlen(text), NULL, &g, &err) < 0)
		fail_msg("%s\n%s", err.msg, text);
	return g;
}

/* 1: the whole text fits; 0: it is the beginning of one that fits; -1: neither; 2: it is too ambiguous. */
static int match(struct dt_grammar *g, const char *text)
{
	struct dt_matcher *m = dt_matcher_new(g);
	int rc = !dt_matcher_push(m, text, strlen(text)) ? -1 : dt_matcher_complete(m);

	rc = m->failed ? 2 : rc;
	dt_matcher_free(m);
	return rc;
}

static void spell(const struct text *x, char *s)
{
	for (int i = 0; i < x->n; i++)
		s = stpcpy(s, letter[x->letter[i]]);
	*s = 0;
}

/* A text that begins like one that fits, mostly: letters that the grammar allows, sometimes another. */
static void draw_text(struct text *x, struct dt_grammar *g)
{
	const int most = below(LONGEST);
	char s[4 * LONGEST];

	for (x->n = 0; x->n < most;) {
		x->letter[x->n++] = below(LETTERS);
		spell(x, s);
		for (int i = 0; i < 8 && below(20) && match(g, s) < 0; i++) {
			x->letter[x->n - 1] = below(LETTERS);
			spell(x, s);
		}
	}
}

static void test_random(void **state)
{
	int whole = 0, part = 0, none = 0, ambiguous = 0;

	rng = dt_rng_make(41, DT_RNG_TEST, 0);
	drawn = 0;
	for (int k = 0; k < 400; k++) {
		struct tree t;
		struct dt_grammar *g;
		char *s;

		plant(&t);
		s = write_tree(&t);
		g = grammar_of(s);
		for (int i = 0; i < 60; i++) {
			struct text x = {.t = &t};
			char text[4 * LONGEST];
			int want, got;

			draw_text(&x, g);
			want = ends(&x, t.root[0], 0) >> x.n & 1;
			want = want ? 1 : x.more ? 0 : -1;
			spell(&x, text);
			got = match(g, text);
			ambiguous += got == 2;
			if (got == 2)
				continue;
			whole += want == 1;
			part += want == 0;
			none += want < 0;
			if (got != want)
				fail_msg("'%s': %d, not %d\n%s", text, got, want, s);
		}
		dt_grammar_drop(g);
		free(s);
	}
	print_message("%d texts fit, %d begin one that does, %d do not; %d are too ambiguous\n", whole, part,
		      none, ambiguous);
	assert_true(whole > 2000 && part > 2000 && none > 2000 && ambiguous < 200);
}

enum { VOCAB = 300 };

static char words[VOCAB][16];

static const char *word_of(const void *arg, int32_t id, size_t *ret_n)
{
	*ret_n = strlen(words[id]);
	return words[id];
}

/* Tokens are up to three letters, and parts of letters. */
static void make_words(struct dt_vocab_order *o)
{
	for (int i = 0; i < VOCAB; i++) {
		char *s = words[i];

		*s = 0;
		for (int k = 1 + below(3); k > 0; k--)
			s = stpcpy(s, letter[below(LETTERS)]);
		if (i % 7 == 0)
			words[i][strlen(words[i]) - 1] = 0;
		if (i % 11 == 0)
			memmove(words[i], words[i] + 1, strlen(words[i]));
	}
	assert_int_equal(dt_vocab_order_init(o, VOCAB, word_of, NULL), 0);
}

/* The masks along random walks: each token is allowed exactly if it can be pushed. */
static void test_masks(void **state)
{
	struct dt_vocab_order o;
	int64_t good = 0, bad = 0;

	rng = dt_rng_make(42, DT_RNG_TEST, 0);
	drawn = 0;
	make_words(&o);
	for (int k = 0; k < 60; k++) {
		struct tree t;
		struct dt_grammar *g, *other;
		struct dt_matcher *m;
		char *s, text[300] = "";

		plant(&t);
		s = write_tree(&t);
		g = grammar_of(s);
		other = grammar_of(s);
		m = dt_matcher_new(g);
		for (int step = 0; step < 12; step++) {
			uint32_t mask[(VOCAB + 31) / 32];
			int next = -1, seen = 0;

			assert_true(dt_matcher_copy_mask(m, &o, mask));
			for (int i = 0; i < VOCAB; i++) {
				struct dt_matcher *one = dt_matcher_new(other);
				bool fits;

				assert_true(dt_matcher_push(one, text, strlen(text)));
				fits = *words[i] && dt_matcher_push(one, words[i], strlen(words[i]));
				assert_false(one->failed);
				if (fits != (mask[i / 32] >> i % 32 & 1))
					fail_msg("'%s' after '%s'\n%s", words[i], text, s);
				good += fits;
				bad += !fits;
				if (fits && below(++seen) == 0)
					next = i;
				dt_matcher_free(one);
			}
			if (next < 0)
				break;
			strcat(text, words[next]);
			assert_true(dt_matcher_push(m, words[next], strlen(words[next])));
		}
		dt_matcher_free(m);
		dt_grammar_drop(g);
		dt_grammar_drop(other);
		free(s);
	}
	print_message("%lld tokens fit, %lld do not\n", (long long)good, (long long)bad);
	assert_true(good > 1000 && bad > 1000);
	dt_vocab_order_release(&o);
}

struct text_of { /* whether a text fits: 1, 0 begins one, -1 does not */
	const char *text;
	int want;
};

static void check(const char *gbnf, const struct text_of *c, size_t n)
{
	struct dt_grammar *g = grammar_of(gbnf);

	for (size_t i = 0; i < n; i++)
		if (match(g, c[i].text) != c[i].want)
			fail_msg("'%s': not %d\n%s", c[i].text, c[i].want, gbnf);
	dt_grammar_drop(g);
}

#define CHECK(gbnf, ...)                                                                                     \
	check(gbnf, (const struct text_of[]){__VA_ARGS__},                                                   \
	      sizeof((const struct text_of[]){__VA_ARGS__}) / sizeof(struct text_of))

/* Grammars of the kinds that llama.cpp ships, written for this test. */
static void test_kinds(void **state)
{
	CHECK("# JSON\n"
	      "root   ::= gap value\n"
	      "value  ::= (object | list | text | number | \"true\" | \"false\" | \"null\") gap\n"
	      "object ::= \"{\" gap (pair (\",\" gap pair)*)? \"}\"\n"
	      "pair   ::= text gap \":\" gap value\n"
	      "list   ::= \"[\" gap (value (\",\" gap value)*)? \"]\"\n"
	      "text   ::=\n  \"\\\"\" (\n    [^\"\\\\\\x00-\\x1F] | # plain\n"
	      "    \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n  )* \"\\\"\"\n"
	      "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)?\n"
	      "gap    ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
	      {"{\"a\": [1, -2.5e+7, \"x\\u00e9\xc3\xa9\"], \"b\":{}}", 1}, {"[1,]", -1}, {"[01]", -1},
	      {"\"\t\"", -1}, {"{\"a\" :null", 0}, {"  1", -1}, {" 0", 1}, {"\"\\q\"", -1}, {"\"\\u12g", -1});
	CHECK("root ::= (sum \"=\" gap value \"\\n\")+\n"
	      "sum  ::= value ([-+*/] gap value)*\n"
	      "value ::= name | whole | \"(\" gap sum \")\" gap\n"
	      "name ::= [a-z] [a-z0-9_]* gap\n"
	      "whole ::= [0-9]+ gap\n"
	      "gap ::= [ \\t\\n]*\n",
	      {"(a1 + 2)*x = 7\n", 1}, {"1+=2\n", -1}, {"((1)", 0}, {"a=b\nc=", 0});
	CHECK("root ::= item+\n\n# one line\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\u0085\\u2028\\u2029]+ "
	      "\"\\n\"",
	      {"- a\n- \xe2\x82\xac\n", 1}, {"- a\n-b", -1}, {"- \n", -1}, {"- a\xe2\x80\xa8", -1},
	      {"- a\xe2\x80\xaa", 0}, {"", 0});
	CHECK("root ::= (\n  \"1. \" move \" \" move \"\\n\" # first\n\n  ([1-9] [0-9]? \". \" move \" \" "
	      "move "
	      "\"\\n\")+\n)\n"
	      "move ::= (pawn | piece | castle) [+#]?\n"
	      "piece ::= [NBKQR] [a-h]? [1-8]? \"x\"? square\n"
	      "pawn ::= ([a-h] \"x\")? square (\"=\" [NBQR])?\n"
	      "castle ::= \"O-O\" \"-O\"?\nsquare ::= [a-h] [1-8]",
	      {"1. e4 e5\n2. Nf3 Nc6\n", 1}, {"1. e4 e5\n", 0}, {"1. e9", -1}, {"1. O-O-O exd5+\n12. Q", 0});
	CHECK("root ::= [\xe3\x81\x81-\xe3\x82\x9f]+ | .{2} \"\\U0001F600\"", {"\xe3\x81\x82\xe3\x82\x9f", 1},
	      {"\xe3\x81\x80", 0}, {"\n\xf0\x9f\x98\x80\xf0\x9f\x98\x80", 1}, {"\xe3\x81\x80x\xf0\x9f", 0},
	      {"\xed\xa0\x80", -1});
}

/* Sets and repetitions at their edges. */
static void test_edges(void **state)
{
	CHECK("root ::= [-a] [a-] [^^] [\\]\\[] [\\-\\^]", {"--b]^", 1}, {"aaa[-", 1}, {"b", -1},
	      {"--^", -1});
	CHECK("root ::= [^a-c]", {"d", 1}, {"b", -1}, {"\xc3\xa9", 1}, {"\xf4\x8f\xbf\xbf", 1}, {"\xff", -1});
	CHECK("root ::= \"ab\"{2} \"\"", {"abab", 1}, {"abb", -1}, {"ab", 0});
	CHECK("root ::= (\"a\"*)* \"b\" (\"\" | \"c\")+", {"aab", 1}, {"bcc", 1}, {"", 0}, {"ca", -1});
	CHECK("root ::= (\"a\"? \"b\"?){2,3} \".\"", {".", 1}, {"ababab.", 1}, {"ba.", 1}, {"abababa", -1},
	      {"baba", 0});
	CHECK("root ::= x{0} \"a\"? y\nx ::= \"z\"\ny ::= \"\" | \"(\" y \")\" y", {"a(())()", 1}, {"z", -1},
	      {"", 1}, {"(()", 0}, {"())", -1});
	CHECK("root ::= \"a\"+?{3}", {"aaaaa", 1}, {"", 1}, {"b", -1});
	CHECK("root ::= \"\\x41\\u0042\\U00000043\\t\\r\\n\\\\\\\"\"", {"ABC\t\r\n\\\"", 1}, {"ABCt", -1});
	CHECK("root ::= \"a\" | dead\ndead ::= \"b\" dead", {"a", 1}, {"b", -1});
	CHECK("root::=\"a\"|\r\n\"b\"\r\n|\"c\"\r\n\r\n# c\r\n", {"a", 1}, {"b", 1}, {"c", 1}, {"\r", -1});
}

/* What is refused, and where. */
static void test_errors(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *msg;
	} c[] = {
		{"", -EINVAL, "no rule 'root'"},
		{"rot ::= \"a\"", -EINVAL, "no rule 'root'"},
		{"root ::= \"a\"\n  b ::= c d\nc ::= \"x\"", -EINVAL,
		 "line 2, column 11: the rule 'd' is not defined"},
		{"root ::= \"\xc3\xa9\" %", -EINVAL, "line 1, column 14: expected a part"},
		{"root ::= \"a\nb", -EINVAL, "line 1, column 10: the literal has no closing quote"},
		{"root ::= (\"a\"\n\n", -EINVAL, "line 1, column 10: the group has no closing"},
		{"root ::= (\"a\" ] )", -EINVAL, "line 1, column 15: expected ')'"},
		{"root ::= \"a\" )", -EINVAL, "line 1, column 14: expected a part"},
		{"root ::= [a-", -EINVAL, "line 1, column 10: the set has no closing"},
		{"root ::= []", -EINVAL, "line 1, column 10: the set is empty"},
		{"root ::= [ab-a]", -EINVAL, "line 1, column 12: the range ends before"},
		{"root ::= \"\\q\"", -EINVAL, "line 1, column 11: unknown escape"},
		{"root ::= \"\\x4\"", -EINVAL, "line 1, column 11: \\x needs 2 hex"},
		{"root ::= \"\\ud800\"", -EINVAL, "line 1, column 11: U+D800 is not"},
		{"root ::= \"\\U00110000\"", -EINVAL, "U+110000 is not"},
		{"root ::= * \"a\"", -EINVAL, "line 1, column 10: '*' follows nothing"},
		{"root ::= \"a\" | ?", -EINVAL, "line 1, column 16: '?' follows nothing"},
		{"root ::= \"a\"{}", -EINVAL, "line 1, column 14: a number of rep"},
		{"root ::= \"a\"{2", -EINVAL, "line 1, column 15: the repetition has no"},
		{"root ::= \"a\"{3,2}", -EINVAL, "line 1, column 13: the repetition has a max"},
		{"root ::= \"a\"{99999999}", -E2BIG, "line 1, column 14: a number of repetitions is above"},
		{"root = \"a\"", -EINVAL, "line 1, column 6: expected '::='"},
		{"start: \"a\"", -EINVAL, "line 1, column 6: expected '::='"},
		{"root ::= \"a\"\n\"b\"", -EINVAL, "line 2, column 1: expected the name"},
		{"root ::= \"a\"\nroot ::= \"b\"", -EINVAL,
		 "line 2, column 1: the rule 'root' is defined a second"},
		{"root ::= <think>", -ENOTSUP, "line 1, column 10: references to tokens"},
		{"root ::= !<[7]>", -ENOTSUP, "line 1, column 10: references to tokens"},
		{"root ::= a\na ::= a \"x\" | \"y\"", -EINVAL,
		 "line 2, column 1: the rule 'a' can begin with itself"},
		{"root ::= \"\"* (b)\nb ::= (\"x\"? c)+\nc ::= (\"\" b) | \"z\"", -EINVAL,
		 "can begin with itself"},
		{"root ::= root | \"a\"", -EINVAL, "line 1, column 1: the rule 'root' can begin"},
		{"root ::= \"a\" root", -EINVAL, "no text can match the grammar"},
		{"root ::= \"\xff\"", -EINVAL, "not UTF-8"},
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct dt_grammar *g = NULL;
		struct dt_err err = {0};
		const int rc = dt_grammar_gbnf(c[i].text, strlen(c[i].text), NULL, &g, &err);

		if (rc != c[i].code || !strstr(err.msg, c[i].msg))
			fail_msg("%s\n%d: %s", c[i].text, rc, rc < 0 ? err.msg : "accepted");
	}
}

static char *repeated(const char *before, const char *s, int n, const char *after)
{
	char *ret = malloc(strlen(before) + (size_t)n * strlen(s) + strlen(after) + 1),
	     *p = stpcpy(ret, before);

	for (int i = 0; i < n; i++)
		p = stpcpy(p, s);
	strcpy(p, after);
	return ret;
}

struct reading {
	const char *text;
	struct dt_grammar *g;
	int rc;
};

static void *read_text(void *arg)
{
	struct reading *r = arg;
	struct dt_err err = {0};

	r->rc = dt_grammar_gbnf(r->text, strlen(r->text), NULL, &r->g, &err);
	return NULL;
}

/* Large and nasty grammars are refused or read, in a bounded time of the processor and on a small stack. */
static void test_hostile(void **state)
{
	const clock_t begin = clock();
	char *text[] = {
		repeated("root ::= ", "(", 100000, ""),
		repeated("root ::= ", "(\"a\"", 200, ""),
		repeated("root ::= ", "\"a\" ", 260000, ""),
		repeated("root ::= \"a\"", "{9}", 3000, ""),
		repeated("root ::= \"a\"", "*", 50000, ""),
		repeated("root ::= \"a\"", "+", 50000, ""),
		repeated("root ::= \"a\"", "*", 256, ""),
		repeated("root ::= \"a\"", "{16777216}", 5, ""),
		repeated("root ::= ", "(\"a\"? ", 250, "\"b\"") /* no closing */,
		repeated("root ::= ", "x ", 100000, "\nx ::= \"\" | \"a\""),
		repeated("root ::= (", "x? ", 100000, ")*\nx ::= \"\" | \"a\""),
		repeated("root ::= ", "[^\xc3\xa9-\xf3\xa0\x80\x81x]", 40000, ""),
		repeated("root ::= ", "r ::= a\nr", 100, ""),
		repeated("root ::= ", "\"\" |", 200000, ""),
		repeated("# ", "x", 1 << 20, ""),
		strdup("root ::= ((((((((\"a\"*)*)*)*)*)*)*)*)* \"b\""),
		strdup("root ::= a a a a a a a a\na ::= b b b b b b b b\nb ::= c c c c c c c c\nc ::= "
		       "\"x\"?"),
	};
	int read = 0;

	for (size_t i = 0; i < sizeof(text) / sizeof(*text); i++) {
		struct reading r = {.text = text[i], .rc = -EIO};

		on_small_stack(read_text, &r);
		assert_true(r.rc == 0 || r.rc == -E2BIG || r.rc == -EINVAL);
		if (r.rc == 0)
			match(r.g, "xxxaaab");
		read += r.rc == 0;
		dt_grammar_drop(r.g);
		free(text[i]);
	}
	print_message("%d grammars read, in %.1f s of processor time\n", read,
		      (double)(clock() - begin) / CLOCKS_PER_SEC);
	assert_true(read > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random), cmocka_unit_test(test_masks),  cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_edges),  cmocka_unit_test(test_errors), cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
