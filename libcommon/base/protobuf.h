/*
 * Protocol buffers messages (protobuf.dev, "Encoding"), written field by field: event files, ONNX models. A
 * message starts as {0}. When memory runs out, `failed` is set and later calls do nothing.
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
/* Adds inner as a field and releases it. */
void dt_pb_message(struct dt_pb *m, int field, struct dt_pb *inner);
/* Appends bytes that already encode one or more fields. */
void dt_pb_raw(struct dt_pb *m, const void *p, size_t n);
/* Writes the key and length of an n-byte field whose contents are written elsewhere. */
void dt_pb_begin(struct dt_pb *m, int field, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
