#include "data/dataset_look.h"

json_t *dt_dataset_json(const struct dt_dataset *d, const char *path)
{
	struct dt_dataset_info i;
	json_t *o;

	dt_dataset_info(d, &i);
	o = json_pack("{s:i, s:s, s:I, s:I, s:s, s:i, s:i, s:i, s:s, s:I, s:s}", "schema", 1, "path", path,
		      "tokens", (json_int_t)i.tokens, "documents", (json_int_t)i.documents, "pack",
		      i.apart ? "documents" : "stream", "vocab", i.vocab, "token_bytes", i.token_bytes,
		      "shards", i.shards, "tokenizer_hash", i.tokenizer_hash, "tokenizer_bytes",
		      (json_int_t)i.tokenizer_bytes, "source", i.source);
	if (i.marked)
		json_object_set_new(o, "targets", json_integer(dt_dataset_targets(d, 0, i.tokens)));
	if (i.row)
		json_object_set_new(o, "row", json_integer(i.row));
	if (i.preferences)
		json_object_set_new(o, "preferences", json_true());
	return o;
}

struct dt_table *dt_dataset_table(const struct dt_dataset *d)
{
	struct dt_table *t = dt_table_new("property|value");
	struct dt_dataset_info i;

	dt_dataset_info(d, &i);
	dt_table_cell(t, "tokens");
	dt_table_cell(t, "%lld of %d bytes", (long long)i.tokens, i.token_bytes);
	dt_table_cell(t, "documents");
	dt_table_cell(t, "%lld%s", (long long)i.documents, i.apart ? ", kept apart" : "");
	if (i.marked) {
		dt_table_cell(t, "targets");
		dt_table_cell(t, "%lld", (long long)dt_dataset_targets(d, 0, i.tokens));
	}
	if (i.row) {
		dt_table_cell(t, "packed into");
		dt_table_cell(t, "samples of %lld tokens%s", (long long)i.row,
			      i.preferences ? ", preferences" : "");
	}
	dt_table_cell(t, "vocabulary");
	dt_table_cell(t, "%d", i.vocab);
	dt_table_cell(t, "shards");
	dt_table_cell(t, "%d", i.shards);
	dt_table_cell(t, "tokenizer");
	dt_table_cell(t, "%s", i.tokenizer_hash);
	dt_table_cell(t, "source");
	dt_table_cell(t, "%s", i.source);
	return t;
}
/* SPDX-License-Identifier: Apache-2.0 */
