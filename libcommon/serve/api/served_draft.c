/* What drafts: a draft model, or the model's own module for a further token. */
#include "serve/api/served_engine.h"

#include <errno.h>

size_t served_hidden_bytes(const struct dt_served *s, const struct dt_served_params *p)
{
	return (size_t)dt_infer_config(s->model)->hidden * (p->fp32 ? sizeof(float) : sizeof(uint16_t));
}

int served_check_module(const struct dt_served *s, const struct dt_served_params *p, struct dt_err *err)
{
	const char *what = p->world		     ? "several ranks"
			   : p->named		     ? "--role"
			   : !dt_dev_is_host(s->dev) ? "a GPU"
						     : NULL;

	return p->mtp && what ? dt_err_set(err, -ENOTSUP, "--mtp cannot be combined with %s", what) : 0;
}

/* Opens the draft model, which must have the same vocabulary and gets a cache of the same blocks. */
static int open_other(struct dt_served *s, const struct dt_served_params *p,
		      const struct dt_infer_params *like, struct dt_err *err)
{
	struct dt_infer_params ip = *like;
	struct dt_source *src;
	int64_t vocab = dt_source_config(s->src)->vocab;
	int rc = dt_source_open(p->draft_model, DT_SOURCE_AUTO, NULL, &src, err);

	if (rc < 0)
		return rc;
	ip.weights = -1;
	if (dt_source_config(src)->vocab != vocab)
		rc = dt_err_set(err, -EINVAL, "vocabulary sizes differ: '%s' has %lld tokens, '%s' has %lld",
				p->draft_model, (long long)dt_source_config(src)->vocab, p->ckpt,
				(long long)vocab);
	else if (dt_source_config(src)->ssm_heads)
		rc = dt_err_set(err, -ENOTSUP, "'%s' has layers of Mamba-2, which cannot draft",
				p->draft_model);
	else
		rc = dt_infer_open(&s->drafter, s->dev, src, &ip, err);
	dt_source_close(src);
	return rc;
}

int served_open_drafter(struct dt_served *s, const struct dt_served_params *p, struct dt_source *module,
			const struct dt_infer_params *like, struct dt_err *err)
{
	return module ? dt_infer_open(&s->drafter, s->dev, module, like, err) : open_other(s, p, like, err);
}

void served_add_module(struct dt_served *s, const struct dt_served_params *p)
{
	const struct dt_infer_memory more = dt_infer_bytes(s->drafter);

	s->memory.weights += more.weights;
	s->memory.cache += more.cache;
	s->memory.work += more.work + 2 * (uint64_t)p->tokens * served_hidden_bytes(s, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
