/* Writer of GGUF's head, version 3: keys with values, counted, and the list of tensors. */
#ifndef DT_CKPT_GGUF_OUT_H
#define DT_CKPT_GGUF_OUT_H

#include "kernels/quant_formats.h"
#include "model/gguf.h"

#include <stdio.h>

#define GGUF_ALIGN 32

struct gguf_out {
	FILE *f;
	uint64_t nkv; /* keys so far */
};

/* Begins a head of ntensor tensors; the number of keys is 0 until gguf_out_patch. */
void gguf_out_begin(struct gguf_out *g, FILE *f, uint64_t ntensor);
/* Puts the number of keys into a head that begins at head. */
void gguf_out_patch(const struct gguf_out *g, char *head);

void gguf_out_str(struct gguf_out *g, const char *key, const char *s, size_t n);
void gguf_out_u32(struct gguf_out *g, const char *key, int64_t v);
void gguf_out_bool(struct gguf_out *g, const char *key, bool v);
void gguf_out_f32(struct gguf_out *g, const char *key, double v);
/* The head of an array, whose n elements follow: texts by gguf_out_text, numbers as their bytes. */
void gguf_out_array(struct gguf_out *g, const char *key, enum dt_gguf_type type, uint64_t n);
void gguf_out_text(struct gguf_out *g, const char *s, size_t n);

/* One entry of the list of tensors; shape outermost first; at: offset of the data, by GGUF_ALIGN. */
void gguf_out_tensor(struct gguf_out *g, const char *name, int ndim, const int64_t *shape,
		     enum dt_format format, uint64_t at);

static inline uint64_t gguf_align_up(uint64_t n)
{
	return (n + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
}

#endif
