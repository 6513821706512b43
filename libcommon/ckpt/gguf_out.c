#include "ckpt/gguf_out.h"

#include <string.h>

#define NKV_AT 16 /* bytes before the number of keys */

void gguf_out_begin(struct gguf_out *g, FILE *f, uint64_t ntensor)
{
	uint32_t version = 3;

	*g = (struct gguf_out){.f = f};
	fwrite("GGUF", 1, 4, f);
	fwrite(&version, 4, 1, f);
	fwrite(&ntensor, 8, 1, f);
	fwrite(&g->nkv, 8, 1, f);
}

void gguf_out_patch(const struct gguf_out *g, char *head)
{
	memcpy(head + NKV_AT, &g->nkv, 8);
}

void gguf_out_text(struct gguf_out *g, const char *s, size_t n)
{
	uint64_t len = n;

	fwrite(&len, 8, 1, g->f);
	fwrite(s, 1, n, g->f);
}

static void put_key(struct gguf_out *g, const char *key, enum dt_gguf_type type)
{
	uint32_t t = type;

	gguf_out_text(g, key, strlen(key));
	fwrite(&t, 4, 1, g->f);
	g->nkv++;
}

void gguf_out_str(struct gguf_out *g, const char *key, const char *s, size_t n)
{
	put_key(g, key, DT_GGUF_STRING);
	gguf_out_text(g, s, n);
}

void gguf_out_u32(struct gguf_out *g, const char *key, int64_t v)
{
	uint32_t u = (uint32_t)v;

	put_key(g, key, DT_GGUF_U32);
	fwrite(&u, 4, 1, g->f);
}

void gguf_out_bool(struct gguf_out *g, const char *key, bool v)
{
	put_key(g, key, DT_GGUF_BOOL);
	fputc(v, g->f);
}

void gguf_out_f32(struct gguf_out *g, const char *key, double v)
{
	float x = (float)v;

	put_key(g, key, DT_GGUF_F32);
	fwrite(&x, 4, 1, g->f);
}

void gguf_out_array(struct gguf_out *g, const char *key, enum dt_gguf_type type, uint64_t n)
{
	uint32_t t = type;

	put_key(g, key, DT_GGUF_ARRAY);
	fwrite(&t, 4, 1, g->f);
	fwrite(&n, 8, 1, g->f);
}

void gguf_out_tensor(struct gguf_out *g, const char *name, int ndim, const int64_t *shape,
		     enum dt_format format, uint64_t at)
{
	uint32_t n = (uint32_t)ndim, type = (uint32_t)dt_format_info(format)->gguf;

	gguf_out_text(g, name, strlen(name));
	fwrite(&n, 4, 1, g->f);
	for (int d = ndim - 1; d >= 0; d--)
		fwrite(&shape[d], 8, 1, g->f);
	fwrite(&type, 4, 1, g->f);
	fwrite(&at, 8, 1, g->f);
}
