#include "plan/roofline.h"

#include "base/table.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

int dt_roofline_print(const struct dt_roofline *q, bool json, FILE *out, struct dt_err *err)
{
	const struct dt_config *c = q->config;
	const struct dt_device d = q->device;
	double bits = dt_weight_bits(q->weights), ridge = d.peak_flops / d.mem_bw, kv = q->cache_bits;
	int64_t seq = q->seq, mb = q->microbatch;
	struct {
		const char *name;
		struct dt_intensity i;
	} rows[] = {{.name = "train"},
		    {.name = "prefill"},
		    {.name = "decode, 1 sequence"},
		    {.name = "decode, 32 sequences"},
		    {.name = "decode, 256 sequences"}};
	struct dt_table *t = dt_table_new("phase|>flops|>bytes|>flops/byte|bound by|>share of peak");
	json_t *list = json_array(), *o;
	char f[24], b[24];
	int rc = dt_train_intensity(c, mb, seq, &rows[0].i, err);

	if (rc == 0)
		rc = dt_prefill_intensity(c, seq, bits, &rows[1].i, err);
	for (int i = 0, n = 1; i < 3 && rc == 0; i++, n = n == 1 ? 32 : 256)
		rc = dt_decode_intensity(c, n, seq, bits, kv, &rows[2 + i].i, err);
	for (size_t i = 0; rc == 0 && i < sizeof(rows) / sizeof(rows[0]); i++) {
		double x = rows[i].i.flops / rows[i].i.bytes;

		json_array_append_new(list,
				      json_pack("{s:s, s:f, s:f, s:f, s:s}", "phase", rows[i].name, "flops",
						rows[i].i.flops, "bytes", rows[i].i.bytes, "flops_per_byte",
						x, "bound", x < ridge ? "memory" : "compute"));
		dt_table_cell(t, "%s", rows[i].name);
		dt_table_cell(t, "%s", dt_format_count(rows[i].i.flops, f, sizeof(f)));
		dt_table_cell(t, "%s", dt_format_size((uint64_t)rows[i].i.bytes, b, sizeof(b)));
		dt_table_cell(t, "%.4g", x);
		dt_table_cell(t, "%s", x < ridge ? "memory" : "compute");
		dt_table_cell(t, "%.1f%%", 100 * fmin(1, x / ridge));
	}
	if (rc == 0 && json) {
		o = json_pack("{s:i, s:s, s:s, s:f, s:O}", "schema", 1, "model", c->name, "device", d.name,
			      "ridge_flops_per_byte", ridge, "phases", list);
		rc = dt_json_write_line(out, o, err);
		json_decref(o);
	} else if (rc == 0) {
		fprintf(out,
			"%s: %.4g TFLOP/s over %.4g TB/s is a ridge point of %.4g FLOP/B; operations below "
			"it "
			"are memory-bound\n",
			d.name, d.peak_flops / 1e12, d.mem_bw / 1e12, ridge);
		if (!strncmp(d.name, "A100", 4))
			fprintf(out,
				"(some handbooks print 0.156 for A100: 312 TFLOP/s over 2 TB/s is 156, a "
				"thousand times that)\n");
		fprintf(out,
			"%s, trained on %lld x %lld tokens; prompt or context of %lld tokens\n"
			"\n",
			c->name, (long long)mb, (long long)seq, (long long)seq);
		dt_table_print(t, out);
	}
	json_decref(list);
	dt_table_free(t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
