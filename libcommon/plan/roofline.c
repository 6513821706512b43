#include "plan/roofline.h"

#include "base/table.h"
#include "base/units.h"

#include <math.h>
#include <string.h>

struct phase {
	const char *name;
	struct dt_intensity i;
};

enum { PHASES = 5 };

static const int together[] = {1, 32, 256}; /* sequences or images */

static int intensities(const struct dt_roofline *q, struct phase ret[PHASES], struct dt_err *err)
{
	const double bits = dt_weight_bits(q->weights);
	int n = 0, rc = dt_train_intensity(q->config, q->microbatch, q->seq, &ret[n++].i, err);

	if (rc == 0 && !dt_config_is_image(q->config))
		rc = dt_prefill_intensity(q->config, q->seq, bits, &ret[n++].i, err);
	for (int i = 0; i < 3 && rc == 0; i++)
		rc = dt_decode_intensity(q->config, together[i], q->seq, bits, q->cache_bits, &ret[n++].i,
					 err);
	return rc < 0 ? rc : n;
}

static int print_json(const struct dt_roofline *q, const struct phase *p, int n, double ridge, FILE *out,
		      struct dt_err *err)
{
	json_t *list = json_array(), *o;
	int rc;

	for (int k = 0; k < n; k++) {
		const double x = p[k].i.flops / p[k].i.bytes;

		json_array_append_new(list,
				      json_pack("{s:s, s:f, s:f, s:f, s:s}", "phase", p[k].name, "flops",
						p[k].i.flops, "bytes", p[k].i.bytes, "flops_per_byte", x,
						"bound", x < ridge ? "memory" : "compute"));
	}
	o = json_pack("{s:i, s:s, s:s, s:f, s:o}", "schema", 1, "model", q->config->name, "device",
		      q->device.name, "ridge_flops_per_byte", ridge, "phases", list);
	rc = dt_json_write_line(out, o, err);
	json_decref(o);
	return rc;
}

static void print_table(const struct phase *p, int n, double ridge, FILE *out)
{
	struct dt_table *t = dt_table_new("phase|>flops|>bytes|>flops/byte|bound by|>share of peak");
	char f[24], b[24];

	for (int k = 0; k < n; k++) {
		const double x = p[k].i.flops / p[k].i.bytes;

		dt_table_cell(t, "%s", p[k].name);
		dt_table_cell(t, "%s", dt_format_count(p[k].i.flops, f, sizeof(f)));
		dt_table_cell(t, "%s", dt_format_size((uint64_t)p[k].i.bytes, b, sizeof(b)));
		dt_table_cell(t, "%.4g", x);
		dt_table_cell(t, "%s", x < ridge ? "memory" : "compute");
		dt_table_cell(t, "%.1f%%", 100 * fmin(1, x / ridge));
	}
	dt_table_print(t, out);
	dt_table_free(t);
}

int dt_roofline_print(const struct dt_roofline *q, bool json, FILE *out, struct dt_err *err)
{
	const struct dt_device d = q->device;
	const double ridge = d.peak_flops / d.mem_bw;
	const struct dt_config *c = q->config;
	static const struct phase of_text[PHASES] = {{.name = "train"},
						     {.name = "prefill"},
						     {.name = "decode, 1 sequence"},
						     {.name = "decode, 32 sequences"},
						     {.name = "decode, 256 sequences"}},
				  of_images[PHASES] = {{.name = "train"},
						       {.name = "classify, 1 image"},
						       {.name = "classify, 32 images"},
						       {.name = "classify, 256 images"}};
	struct phase p[PHASES];
	int n;

	memcpy(p, dt_config_is_image(c) ? of_images : of_text, sizeof(p));
	n = intensities(q, p, err);
	if (n < 0 || json)
		return n < 0 ? n : print_json(q, p, n, ridge, out, err);
	fprintf(out,
		"%s: %.4g TFLOP/s over %.4g TB/s is a ridge point of %.4g FLOP/B; operations below it are "
		"memory-bound\n",
		d.name, d.peak_flops / 1e12, d.mem_bw / 1e12, ridge);
	if (!strncmp(d.name, "A100", 4))
		fprintf(out, "(some handbooks print 0.156 for A100: 312 TFLOP/s over 2 TB/s is 156, a "
			     "thousand times that)\n");
	if (dt_config_is_image(c))
		fprintf(out, "%s, trained on %lld image%s of %lld x %lld pixels\n\n", c->name,
			(long long)q->microbatch, q->microbatch == 1 ? "" : "s", (long long)c->image_size,
			(long long)c->image_size);
	else
		fprintf(out, "%s, trained on %lld x %lld tokens; prompt or context of %lld tokens\n\n",
			c->name, (long long)q->microbatch, (long long)q->seq, (long long)q->seq);
	print_table(p, n, ridge, out);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
