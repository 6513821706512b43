/*
 * Messages of protocol buffers (protobuf.dev, "Encoding"), written field by field: event files, ONNX models.
 * A message begins as {0}. Out of memory sets failed, and what follows does nothing.
 */
#ifndef DT_BASE_PROTOBUF_H
#define DT_BASE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dt_pb {
	unsigned char *p; /* malloc'd */
	size_t n, cap;
	bool failed;
};

void dt_pb_int(struct dt_pb *m, int field, int64_t v);
void dt_pb_double(struct dt_pb *m, int field, double v);
void dt_pb_float(struct dt_pb *m, int field, float v);
void dt_pb_bytes(struct dt_pb *m, int field, const void *p, size_t n);
void dt_pb_text(struct dt_pb *m, int field, const char *s);
/* inner becomes a field and is released. */
void dt_pb_message(struct dt_pb *m, int field, struct dt_pb *inner);
/* What is a field, or several, already. */
void dt_pb_raw(struct dt_pb *m, const void *p, size_t n);
/* The key and length of a field of n bytes that follow elsewhere. */
void dt_pb_begin(struct dt_pb *m, int field, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
