/* Writes adapters in llama.cpp's format: a GGUF file with one alpha for all. */
#include "ckpt/adapter_write.h"

#include "base/tmpfile.h"
#include "ckpt/gguf_out.h"
#include "model/family.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Converts all linears to the same alpha; the ratio of scales goes into b. */
static void same_alpha(struct adapter_writer *w, double alpha)
{
	for (int i = 0; i < w->n; i++) {
		struct adapter_linear *l = &w->l[i];
		float f = (float)(l->scale * (double)l->rank / alpha);

		for (int64_t k = 0; k < l->rank * l->out && f != 1; k++)
			l->b[k] *= f;
	}
}

static void gguf_head(const struct adapter_writer *w, struct gguf_out *g, FILE *f, double alpha)
{
	const char *arch = dt_family_find(w->c->family)->arch;
	uint64_t at = 0;

	gguf_out_begin(g, f, (uint64_t)(2 * w->n));
	gguf_out_str(g, "general.type", "adapter", strlen("adapter"));
	gguf_out_str(g, "general.architecture", arch, strlen(arch));
	gguf_out_str(g, "general.name", w->c->name, strlen(w->c->name));
	gguf_out_str(g, "adapter.type", "lora", strlen("lora"));
	gguf_out_f32(g, "adapter.lora.alpha", alpha);
	for (int i = 0; i < 2 * w->n; i++) {
		const struct adapter_linear *l = &w->l[i / 2];
		int64_t shape[2] = {i % 2 ? l->out : l->rank, i % 2 ? l->rank : l->in};
		char name[ADAPTER_NAME + 32];

		snprintf(name, sizeof(name), "%s.weight.lora_%c", l->name, i % 2 ? 'b' : 'a');
		gguf_out_tensor(g, name, 2, shape, DT_FMT_F32, at);
		at += gguf_align_up((uint64_t)(shape[0] * shape[1]) * sizeof(float));
	}
}

int adapter_write_gguf(struct adapter_writer *w, const char *path, struct dt_err *err)
{
	double alpha = w->l[0].scale * (double)w->l[0].rank;
	struct gguf_out g;
	struct dt_tmpfile f;
	char *head = NULL;
	size_t n = 0;
	FILE *mem;
	int rc;

	if (!dt_family_find(w->c->family)->arch)
		return dt_err_set(err, -ENOTSUP, "writing family '%s' as GGUF is not supported",
				  w->c->family);
	same_alpha(w, alpha);
	mem = open_memstream(&head, &n);
	if (!mem)
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	gguf_head(w, &g, mem, alpha);
	while (ftell(mem) % GGUF_ALIGN)
		fputc(0, mem);
	if (fclose(mem) != 0) {
		free(head);
		return dt_err_sys(err, -ENOMEM, "cannot write '%s'", path);
	}
	gguf_out_patch(&g, head);
	rc = dt_tmpfile_open(&f, path, err);
	if (rc == 0) {
		fwrite(head, 1, n, f.f);
		for (int i = 0; i < w->n; i++)
			adapter_put_linear(&w->l[i], f.f, GGUF_ALIGN);
		rc = dt_tmpfile_commit(&f, err);
	}
	free(head);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
