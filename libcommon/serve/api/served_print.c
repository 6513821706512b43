/* Prints what loading a model has cost and what a step computes. */
#include "serve/api/served.h"

#include "base/log.h"
#include "base/units.h"
#include "plan/inferplan.h"
#include "plan/listing.h"

#include <stdio.h>

/* What is kept of sequences: keys and values, states, or both. */
static void tell_cache(const struct dt_served *s, char *ret, size_t n)
{
	const struct dt_config *c = dt_infer_config(s->model);
	const uint64_t states = dt_infer_states(c, &s->cut.layout, s->cut.at, s->seqs);
	char size[2][32];
	size_t at = 0;

	if (!states || dt_config_attends(c))
		at = (size_t)snprintf(ret, n, "%s of KV cache for %lld tokens",
				      dt_format_size(s->memory.cache - states, size[0], sizeof(size[0])),
				      (long long)s->cache_tokens);
	if (states && at < n)
		snprintf(ret + at, n - at, "%s%s of states for %lld sequences", at ? ", " : "",
			 dt_format_size(states, size[1], sizeof(size[1])), (long long)s->seqs);
}

void dt_served_log(const struct dt_served *s, const struct dt_served_params *p)
{
	struct dt_infer_disk_facts disk;
	char text[2][32], line[300], cache[100];

	tell_cache(s, cache, sizeof(cache));
	dt_log_msg(p->log, "loaded '%s' in %.1f s: %s of weights, %s, %s of workspace", p->ckpt, s->seconds,
		   dt_format_size(s->memory.weights, text[0], sizeof(text[0])), cache,
		   dt_format_size(s->memory.work + s->logits_bytes, text[1], sizeof(text[1])));
	if (dt_infer_staged(s->model))
		dt_log_msg(p->log, "messages between ranks are copied through host memory, which is slow: %s",
			   dt_infer_staged(s->model));
	if (dt_infer_disk_told(s->model, &disk))
		dt_log_msg(p->log, "%s%s%s",
			   dt_weights_disk_text(&disk.plan, disk.bw, true, line, sizeof(line)),
			   disk.how[0] ? "; " : "", disk.how);
}

int dt_served_end(struct dt_served *s, const struct dt_served_params *p)
{
	int rc = dt_served_close(s);

	if (rc < 0)
		dt_log_msg(p->log, "'%s' is incomplete: writing failed", p->trace);
	return rc;
}

int dt_served_print_program(const struct dt_served_params *p, FILE *f, struct dt_err *err)
{
	const struct dt_format_info *w = dt_format_info(p->weights >= 0 ? (enum dt_format)p->weights
							: p->fp32	? DT_FMT_F32
									: DT_FMT_BF16);
	const struct dt_layout layout =
		p->layout.dp ? p->layout : (struct dt_layout){.dp = 1, .tp = 1, .pp = 1, .cp = 1, .ep = 1};
	struct dt_memory_plan plan = {0};
	struct dt_config c;
	struct dt_work_serving prompt = {.config = &c,
					 .compute = p->fp32 ? DT_F32 : DT_BF16,
					 .tp = layout.tp,
					 .rows = p->tokens,
					 .outputs = p->seqs,
					 .weight_bits = 8.0 * w->bytes / w->block,
					 .cache_bits = 8.0 * dt_dtype_size(p->cache)};
	const struct dt_serving serving = {.config = &c,
					   .compute = prompt.compute,
					   .rows = p->tokens,
					   .outputs = p->seqs,
					   .layout = layout};
	struct dt_work_serving decoding;
	int rc = dt_config_load(p->ckpt, &c, err);

	if (rc == 0)
		rc = dt_config_servable(&c, err);
	if (rc == 0)
		rc = dt_serving_check(&c, &layout, err);
	decoding = prompt;
	decoding.rows = p->seqs;
	decoding.context = p->len ? p->len : c.max_seq;
	if (rc == 0)
		rc = dt_memory_plan_serving(&serving, decoding.context, &plan, err);
	if (rc == 0) {
		rc = dt_listing_print_serving(&plan, &prompt, &decoding, f, err);
		dt_memory_plan_release(&plan);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
