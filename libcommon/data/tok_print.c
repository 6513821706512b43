#include "data/tok_print.h"

#include "base/json.h"
#include "base/table.h"

static int print_json(const struct dt_tokenizer *t, const struct dt_tokenizer_info *i, FILE *f,
		      struct dt_err *err)
{
	json_t *list = json_array(), *o;
	int rc;

	for (int k = 0; k < i->patterns; k++)
		json_array_append_new(list, json_string(i->pattern[k]));
	o = json_pack("{s:i, s:s, s:i, s:I, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:s}", "schema", 1, "kind",
		      i->kind, "vocab", dt_tokenizer_vocab(t), "merges", (json_int_t)i->merges,
		      "added_tokens", i->added, "special_tokens", i->special, "eot_id", dt_tokenizer_eot(t),
		      "bos_id", dt_tokenizer_bos(t), "end_id", dt_tokenizer_end(t), "normalizer",
		      i->normalizer, "patterns", list, "hash", dt_tokenizer_hash(t));
	rc = dt_json_write_line(f, o, err);
	json_decref(o);
	return rc;
}

static void put_token(struct dt_table *table, const struct dt_tokenizer *t, const char *name, int32_t id)
{
	size_t n = 0;
	const char *s = dt_tokenizer_piece(t, id, true, &n);

	dt_table_cell(table, "%s", name);
	if (s && n && *s == ' ') { /* WordPiece's decoder has a blank before it */
		s++;
		n--;
	}
	if (s)
		dt_table_cell(table, "%d %.*s", id, (int)n, s);
	else
		dt_table_cell(table, "none");
}

int dt_tokenizer_print(const struct dt_tokenizer *t, bool json, FILE *f, struct dt_err *err)
{
	struct dt_tokenizer_info i;
	struct dt_table *table;

	dt_tokenizer_describe(t, &i);
	if (json)
		return print_json(t, &i, f, err);
	table = dt_table_new("property|value");
	dt_table_cell(table, "kind");
	dt_table_cell(table, "%s", i.kind);
	dt_table_cell(table, "vocabulary");
	dt_table_cell(table, "%d", dt_tokenizer_vocab(t));
	dt_table_cell(table, "merges");
	dt_table_cell(table, "%lld", (long long)i.merges);
	dt_table_cell(table, "added tokens");
	dt_table_cell(table, "%d, of which %d special", i.added, i.special);
	put_token(table, t, "end of text", dt_tokenizer_eot(t));
	put_token(table, t, "start of text", dt_tokenizer_bos(t));
	if (dt_tokenizer_end(t) >= 0)
		put_token(table, t, "after a text", dt_tokenizer_end(t));
	dt_table_cell(table, "normalizer");
	dt_table_cell(table, "%s", *i.normalizer ? i.normalizer : "none");
	for (int k = 0; k < i.patterns; k++) {
		dt_table_cell(table, "pattern");
		dt_table_cell(table, "%s", i.pattern[k]);
	}
	dt_table_cell(table, "hash");
	dt_table_cell(table, "%s", dt_tokenizer_hash(t));
	dt_table_print(table, f);
	dt_table_free(table);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
