/* Configurations of image classifiers. */
#include "model/config.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH_MAX (1 << 20)

int dt_config_blocks(const struct dt_config *c, int64_t ret[DT_STAGES_MAX])
{
	const char *s = c->blocks;
	int n = 0;

	while (*s) {
		char *end;
		long v = *s >= '0' && *s <= '9' ? strtol(s, &end, 10) : 0;

		if (v < 1 || v > WIDTH_MAX || n == DT_STAGES_MAX || (*end && (*end != '-' || !end[1])))
			return -EINVAL;
		ret[n++] = v;
		s = *end ? end + 1 : end;
	}
	return n;
}

static bool is(const struct dt_config *c, const char *family)
{
	return !strcmp(c->family, family);
}

void dt_config_complete_image(struct dt_config *c)
{
	int64_t blocks[DT_STAGES_MAX] = {0};
	int n = dt_config_blocks(c, blocks);

	c->max_seq = 1;
	c->bos = c->eos = -1;
	if (is(c, "vit")) {
		c->kv_heads = c->heads;
		c->head_dim = c->heads > 0 ? c->hidden / c->heads : 0;
		return;
	}
	c->hidden = c->ffn = c->heads = c->kv_heads = c->head_dim = 1;
	if (is(c, "resnet9"))
		n = 3;
	c->layers = n;
	for (int i = 0; i < n && is(c, "resnet"); i++)
		c->layers += blocks[i] - 1;
}

/* How many times the network halves height and width before its last layer. */
static int halvings(const struct dt_config *c, int n)
{
	return is(c, "mlp")	   ? 0
	       : is(c, "policy")   ? 0
	       : is(c, "vit")	   ? 0
	       : is(c, "cnn")	   ? n
	       : is(c, "airbench") ? n
	       : is(c, "resnet9")  ? 3
				   : n - 1 + (c->stem == DT_STEM_IMAGENET);
}

/* Checks the sizes of an image transformer. */
static int check_transformer(const struct dt_config *c, struct dt_err *err)
{
	if (c->hidden < 1 || c->hidden > WIDTH_MAX || c->ffn < 1 || c->ffn > WIDTH_MAX || c->heads < 1 ||
	    c->hidden % c->heads || c->kv_heads != c->heads || c->head_dim * c->heads != c->hidden)
		return dt_err_set(err, -EINVAL,
				  "impossible model: %lld heads over %lld columns, an MLP of width %lld",
				  (long long)c->heads, (long long)c->hidden, (long long)c->ffn);
	if (c->patch < 1 || c->image_size % c->patch)
		return dt_err_set(
			err, -EINVAL,
			"'%s' cuts images into patches of %lld pixels, which do not divide a side of %lld",
			c->name, (long long)c->patch, (long long)c->image_size);
	if (c->norm != DT_NORM_LAYER || c->pos != DT_POS_LEARNED || c->gated || !c->out_bias ||
	    !c->mlp_bias || c->window || c->experts || c->qk_norm)
		return dt_err_set(err, -ENOTSUP,
				  "'%s' is an image transformer of a kind that is not supported", c->name);
	return 0;
}

int dt_config_check_image(const struct dt_config *c, struct dt_err *err)
{
	int64_t blocks[DT_STAGES_MAX] = {0};
	int n = dt_config_blocks(c, blocks);

	if (is(c, "policy") && (c->image_size != 1 || c->channels < 1 || c->channels > WIDTH_MAX))
		return dt_err_set(err, -EINVAL, "impossible policy: it observes %lld numbers",
				  (long long)c->channels);
	if (!is(c, "policy") &&
	    (c->image_size < 1 || c->image_size > 4096 || (c->channels != 1 && c->channels != 3)))
		return dt_err_set(err, -EINVAL,
				  "impossible model: images of %lld pixels a side, %lld channels",
				  (long long)c->image_size, (long long)c->channels);
	if (c->vocab < 1 || c->vocab > 1 << 20)
		return dt_err_set(err, -EINVAL, "impossible model: %lld classes", (long long)c->vocab);
	if (!(c->norm_eps > 0) || !(c->norm_eps < 1))
		return dt_err_set(err, -EINVAL, "impossible model: the norm's epsilon is %g", c->norm_eps);
	if (n < 0 || (is(c, "resnet") && (n < 1 || n > 4)) || (is(c, "airbench") && n < 1) || c->layers < 1 ||
	    c->layers > 4096)
		return dt_err_set(err, -EINVAL, "impossible model: its blocks are '%s'", c->blocks);
	if (is(c, "vit"))
		return check_transformer(c, err);
	if ((c->image_size - is(c, "airbench")) >> halvings(c, n) < 1)
		return dt_err_set(err, -EINVAL,
				  "'%s' halves its images %d times; a side of %lld pixels is too small",
				  c->name, halvings(c, n), (long long)c->image_size);
	return 0;
}

/* Parses layer widths: "784-512-10", at least two. */
static int widths(const char *name, const char *s, struct dt_config *c, struct dt_err *err)
{
	int64_t w, pixels = 0;
	size_t len = 0;
	int n = 0;

	for (const char *p = s;; p += len + 1, n++) {
		char text[24];
		int rc;

		len = strcspn(p, "-");
		snprintf(text, sizeof(text), "%.*s", len < sizeof(text) ? (int)len : 0, p);
		if ((rc = dt_parse_int(text, 1, WIDTH_MAX, &w, err)) < 0)
			return dt_err_prefix(err, "'%.60s'", name), rc;
		if (!n)
			pixels = w;
		if (!p[len])
			break;
		if (n &&
		    (size_t)snprintf(c->blocks + strlen(c->blocks), sizeof(c->blocks) - strlen(c->blocks),
				     "%s%lld", n > 1 ? "-" : "", (long long)w) >= sizeof(c->blocks) - 1)
			n = DT_STAGES_MAX;
	}
	if (n == 0)
		return dt_err_set(err, -EINVAL,
				  "'%.60s': a perceptron has at least two widths, as in mlp:784-512-10",
				  name);
	if (n < 2 || n > DT_STAGES_MAX || strlen(c->blocks) > sizeof(c->blocks) - 2)
		return dt_err_set(err, -EINVAL, "'%.60s': a perceptron has 1 to %d hidden layers", name,
				  DT_STAGES_MAX);
	c->vocab = w;
	c->channels =
		pixels % 3 == 0 && lround(sqrt((double)pixels / 3)) * lround(sqrt((double)pixels / 3)) * 3 ==
					   pixels
			? 3
			: 1;
	c->image_size = lround(sqrt((double)(pixels / c->channels)));
	if (c->image_size * c->image_size * c->channels != pixels)
		return dt_err_set(err, -EINVAL, "'%.60s': %lld is not the number of pixels of a square image",
				  name, (long long)pixels);
	return 1;
}

int dt_config_perceptron(const char *name, struct dt_config *ret, struct dt_err *err)
{
	struct dt_config c = {.family = "mlp", .norm_eps = 1e-5};
	int rc;

	if (strncmp(name, "mlp:", 4))
		return 0;
	snprintf(c.name, sizeof(c.name), "%s", name);
	rc = widths(name, name + 4, &c, err);
	if (rc < 0)
		return rc;
	dt_config_complete_image(&c);
	rc = dt_config_check(&c, err);
	if (rc < 0)
		return rc;
	*ret = c;
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
