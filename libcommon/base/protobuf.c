#include "base/protobuf.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

void dt_pb_raw(struct dt_pb *m, const void *from, size_t n)
{
	if (m->n + n > m->cap) {
		size_t cap = 2 * (m->n + n) + 64;
		unsigned char *grown = realloc(m->p, cap);

		m->failed |= !grown;
		if (!grown)
			return;
		m->p = grown;
		m->cap = cap;
	}
	if (n)
		memcpy(m->p + m->n, from, n);
	m->n += n;
}

static void varint(struct dt_pb *m, uint64_t v)
{
	unsigned char b[10];
	size_t n = 0;

	do {
		b[n] = (unsigned char)((v & 127) | (v > 127 ? 128 : 0));
		v >>= 7;
	} while (b[n++] & 128);
	dt_pb_raw(m, b, n);
}

static void key(struct dt_pb *m, int field, int type)
{
	varint(m, (uint64_t)field << 3 | (uint64_t)type);
}

void dt_pb_int(struct dt_pb *m, int field, int64_t v)
{
	key(m, field, VARINT);
	varint(m, (uint64_t)v);
}

void dt_pb_double(struct dt_pb *m, int field, double v)
{
	key(m, field, FIXED64);
	dt_pb_raw(m, &v, sizeof(v)); /* little-endian, like the machines we support */
}

void dt_pb_float(struct dt_pb *m, int field, float v)
{
	key(m, field, FIXED32);
	dt_pb_raw(m, &v, sizeof(v));
}

void dt_pb_begin(struct dt_pb *m, int field, size_t n)
{
	key(m, field, BYTES);
	varint(m, n);
}

void dt_pb_bytes(struct dt_pb *m, int field, const void *p, size_t n)
{
	dt_pb_begin(m, field, n);
	dt_pb_raw(m, p, n);
}

void dt_pb_text(struct dt_pb *m, int field, const char *s)
{
	dt_pb_bytes(m, field, s, strlen(s));
}

void dt_pb_message(struct dt_pb *m, int field, struct dt_pb *inner)
{
	m->failed |= inner->failed;
	dt_pb_bytes(m, field, inner->p, inner->n);
	free(inner->p);
	*inner = (struct dt_pb){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
