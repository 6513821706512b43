#include "train/init.h"

#include "ckpt/source.h"
#include "ckpt/tokenizer_file.h"
#include "data/tokenizer.h"
#include "train/trainer.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool any(const char *folder, const char *pattern)
{
	char path[4096];
	glob_t g;
	bool found;

	if (snprintf(path, sizeof(path), "%s/%s", folder, pattern) >= (int)sizeof(path))
		return false;
	found = glob(path, 0, NULL, &g) == 0;
	globfree(&g);
	return found;
}

static bool ends(const char *s, const char *with)
{
	size_t n = strlen(s), k = strlen(with);

	return n >= k && !strcmp(s + n - k, with);
}

bool init_holds_weights(const char *path, bool foreign)
{
	static const char *const inside[] = {"*.safetensors", "*.gguf", "manifest.json", "latest", "step-*"};
	const size_t n = foreign ? 2 : sizeof(inside) / sizeof(*inside);
	struct stat st;

	if (stat(path, &st) < 0) /* a preset, or a name that is refused later */
		return false;
	if (!S_ISDIR(st.st_mode))
		return !ends(path, ".json") || ends(path, ".index.json");
	for (size_t i = 0; i < n; i++)
		if (any(path, inside[i]))
			return true;
	return false;
}

int init_open(struct trainer *t, struct dt_err *err)
{
	const struct dt_run *r = &t->run;
	/* --resume has the weights, except frozen ones (LoRA) and those of a reference model. */
	bool elsewhere = r->save.resume && strcmp(r->save.resume, "auto") && !r->lora.rank &&
			 !dt_run_reference_weights(r);
	struct dt_config preset;
	int rc;

	if (r->init == DT_RUN_INIT_RANDOM || elsewhere)
		return 0;
	if (dt_config_find_preset(r->model, &preset) == 0 || !init_holds_weights(r->model, false)) {
		if (r->init == DT_RUN_INIT_WEIGHTS)
			return dt_err_set(err, -ENOENT, "--init weights: '%s' holds no weights", r->model);
		return 0;
	}
	rc = (r->mtp_layers ? dt_source_open_all : dt_source_open)(r->model, DT_SOURCE_AUTO, "none", &t->init,
								   err);
	if (rc == 0)
		rc = dt_source_at_size(&t->init, r->image.size, err);
	if (rc < 0)
		return rc;
	t->config = *dt_source_config(t->init);
	if (t->config.mtp_layers < r->mtp_layers)
		dt_log_msg(&t->root_log,
			   "'%s' has no module for a further token: it is initialised at random", r->model);
	return 1;
}

const char *init_base_key(const struct trainer *t)
{
	return t->config.lora.rank ? "base" : "reference";
}

#define DRAWN "drawn from seed "

bool init_is_drawn(const char *base)
{
	return !strncmp(base, DRAWN, strlen(DRAWN));
}

int init_name_base(struct trainer *t, struct dt_err *err)
{
	if (!t->config.lora.rank && !dt_run_reference_weights(&t->run))
		return 0;
	if (t->init)
		return dt_source_fingerprint(t->init, t->base, err);
	snprintf(t->base, sizeof(t->base), DRAWN "%llu", (unsigned long long)t->run.data.seed);
	return 0;
}

void init_close(struct trainer *t)
{
	if (t->init)
		dt_source_close(t->init);
	t->init = NULL;
}

void init_compare_tokens(struct trainer *t)
{
	struct dt_tokenizer *own = NULL, *data = NULL;
	struct dt_err err;
	char *text = NULL;
	size_t n = 0, a, b;
	int32_t id = 0, end;

	if (t->info.rank != 0 || !t->init || !t->source.info.tokenizer_text ||
	    dt_tokenizer_file_text(t->run.model, &text, &n, &err) < 0)
		return;
	if (dt_tokenizer_from_text(text, n, &own, &err) < 0 ||
	    dt_tokenizer_from_text(t->source.info.tokenizer_text, t->source.info.tokenizer_bytes, &data,
				   &err) < 0)
		goto out;
	end = dt_tokenizer_vocab(data);
	if (end > dt_tokenizer_vocab(own)) /* the data may have more, such as special tokens of a chat */
		end = dt_tokenizer_vocab(own);
	for (; id < end; id++) {
		const char *x = dt_tokenizer_piece(own, id, true, &a);
		const char *y = dt_tokenizer_piece(data, id, true, &b);

		if (x && y && (a != b || memcmp(x, y, a)))
			break;
	}
	if (id < end)
		dt_log_msg(&t->root_log,
			   "the tokenizer of the data is not that of '%s': they differ first at token %d",
			   t->run.model, id);
out:
	dt_tokenizer_close(own);
	dt_tokenizer_close(data);
	free(text);
}

/* The parameter's index in the source; -1: an adapter's, which is initialized at random. */
static int in_source(const struct trainer *t, const struct dt_local_param *lp)
{
	return dt_params_find(dt_source_params(t->init), t->table.p[lp->index].name);
}

/* Reads elements [first, first + n) of a parameter; the source reads whole rows. */
static int read_rows(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *out,
		     struct dt_err *err)
{
	const bool matrix = t->table.p[lp->index].ndim == 2;
	const int64_t cols = matrix ? lp->shape[1] : 1, row = first / cols,
		      end = (first + n + cols - 1) / cols;
	const int64_t off[2] = {lp->off[0] + row, matrix ? lp->off[1] : 0}, shape[2] = {end - row, cols};
	const bool whole = first % cols == 0 && n % cols == 0;
	float *rows = whole ? out : malloc((size_t)(shape[0] * cols) * sizeof(*rows));
	int rc;

	if (!rows)
		return dt_err_sys(err, -ENOMEM, "cannot read the weights of '%s'", t->run.model);
	rc = dt_source_read(t->init, in_source(t, lp), off, shape, DT_F32, rows, err);
	if (rc == 0 && !whole)
		memcpy(out, rows + (first - row * cols), (size_t)n * sizeof(*out));
	if (!whole)
		free(rows);
	return rc;
}

/* Elements [first, first + n) of the whitening filters made from training images; not sharded. */
static int whiten(struct trainer *t, const struct dt_param *p, int64_t first, int64_t n, float *out,
		  struct dt_err *err)
{
	const float *filters;
	const int rc = images_whiten(t, (int)p->kernel, &filters, err);

	if (rc == 0)
		memcpy(out, filters + first, (size_t)n * sizeof(*out));
	return rc;
}

/*
 * Whether a parameter belongs to a last layer that is initialised anew. Classes of a text read BERT's pooler,
 * which its files without classes have too; that of RoBERTa is not their linear.
 */
static bool is_new_head(const struct trainer *t, const char *name)
{
	const bool anew =
		dt_config_has_labels(&t->config) && !dt_config_has_labels(dt_source_config(t->init));

	if (t->run.image.new_head && (!strncmp(name, "fc.", 3) || !strncmp(name, "labels.", 7)))
		return true;
	return anew && !strncmp(name, "pooler.", 7) && strcmp(t->config.family, "bert");
}

int init_values(struct trainer *t, const struct dt_local_param *lp, int64_t first, int64_t n, float *out,
		struct dt_err *err)
{
	if (t->init && !is_new_head(t, t->table.p[lp->index].name) && in_source(t, lp) >= 0)
		return read_rows(t, lp, first, n, out, err);
	if (t->table.p[lp->index].init == DT_INIT_WHITEN && t->source.images.data)
		return whiten(t, &t->table.p[lp->index], first, n, out, err);
	dt_param_init(&t->table.p[lp->index], lp, t->run.data.seed, first, n, out);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
