/*
 * SentencePiece's tokenizer.model (sentencepiece_model.proto: a ModelProto of pieces, trainer_spec and
 * normalizer_spec). Only BPE models with byte fallback are converted to tokenizer.json: for others the ids
 * would differ from SentencePiece's, so they are refused with the reason.
 */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

struct field {
	uint64_t number, value; /* value: for WIRE_VARINT */
	int wire;
	const uint8_t *p; /* other wire types: n bytes */
	size_t n;
};

struct message {
	const uint8_t *p;
	size_t n;
};

static int varint(struct message *m, uint64_t *ret)
{
	uint64_t v = 0;

	for (int shift = 0; shift < 64 && m->n; shift += 7) {
		uint8_t b = *m->p++;

		m->n--;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG;
}

/* Reads the next field. Returns 1, 0 at the end, or -EBADMSG. */
static int next_field(struct message *m, struct field *f)
{
	uint64_t tag, n;

	if (!m->n)
		return 0;
	if (varint(m, &tag) < 0)
		return -EBADMSG;
	f->number = tag >> 3;
	f->wire = (int)(tag & 7);
	if (f->wire == WIRE_VARINT)
		return varint(m, &f->value) < 0 ? -EBADMSG : 1;
	n = f->wire == WIRE_64 ? 8 : 4;
	if (f->wire == WIRE_BYTES && varint(m, &n) < 0)
		return -EBADMSG;
	if ((f->wire != WIRE_64 && f->wire != WIRE_32 && f->wire != WIRE_BYTES) || n > m->n)
		return -EBADMSG;
	f->p = m->p;
	f->n = (size_t)n;
	m->p += n;
	m->n -= (size_t)n;
	return 1;
}

bool src_is_sentencepiece(const uint8_t *p, size_t n)
{
	struct message m = {p, n};
	struct field f;
	int rc, pieces = 0;

	while ((rc = next_field(&m, &f)) > 0) {
		if (f.wire != WIRE_BYTES || f.number < 1)
			return false;
		pieces += f.number == 1;
	}
	return rc == 0 && pieces > 0;
}

struct model { /* with the defaults of the proto */
	struct src_vocab v;
	uint64_t type, bytes, suffix; /* of trainer_spec */
	uint64_t dummy_prefix, one_space, escape;
	const char *name;
	size_t name_n, charsmap;
};

static int read_piece(struct message m, struct src_token *t)
{
	struct field f;
	int rc;

	*t = (struct src_token){.s = "", .type = SRC_TOKEN_NORMAL};
	while ((rc = next_field(&m, &f)) > 0) {
		float score;

		if (f.number == 1 && f.wire == WIRE_BYTES) {
			t->s = (const char *)f.p;
			t->n = f.n;
		} else if (f.number == 2 && f.wire == WIRE_32) {
			memcpy(&score, f.p, 4);
			t->score = (double)score;
		} else if (f.number == 3 && f.wire == WIRE_VARINT) {
			if (f.value < SRC_TOKEN_NORMAL || f.value > SRC_TOKEN_BYTE)
				return -EBADMSG;
			t->type = (int)f.value;
		}
	}
	return rc;
}

static int read_trainer(struct message m, struct model *q)
{
	struct field f;
	int rc;

	while ((rc = next_field(&m, &f)) > 0) {
		if (f.wire != WIRE_VARINT)
			continue;
		if (f.number == 3)
			q->type = f.value;
		else if (f.number == 24)
			q->suffix = f.value;
		else if (f.number == 35)
			q->bytes = f.value;
		else if (f.number == 41)
			q->v.bos = (int32_t)f.value;
	}
	return rc;
}

static int read_normalizer(struct message m, struct model *q)
{
	struct field f;
	int rc;

	while ((rc = next_field(&m, &f)) > 0) {
		if (f.number == 1 && f.wire == WIRE_BYTES) {
			q->name = (const char *)f.p;
			q->name_n = f.n;
		} else if (f.number == 2 && f.wire == WIRE_BYTES) {
			q->charsmap = f.n;
		} else if (f.number == 3 && f.wire == WIRE_VARINT) {
			q->dummy_prefix = f.value;
		} else if (f.number == 4 && f.wire == WIRE_VARINT) {
			q->one_space = f.value;
		} else if (f.number == 5 && f.wire == WIRE_VARINT) {
			q->escape = f.value;
		}
	}
	return rc;
}

static int read_model(struct message m, struct model *q)
{
	struct field f;
	int rc;

	while ((rc = next_field(&m, &f)) > 0) {
		struct message inner = {f.p, f.n};

		if (f.wire != WIRE_BYTES)
			return -EBADMSG;
		if (f.number == 1)
			rc = read_piece(inner, &q->v.t[q->v.n++]);
		else if (f.number == 2)
			rc = read_trainer(inner, q);
		else if (f.number == 3)
			rc = read_normalizer(inner, q);
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* Why a model's ids cannot be reproduced; NULL: they can. */
static const char *refusal(const struct model *q)
{
	static const char *const types[] = {"", "its model type is Unigram", NULL, "its model type is Word",
					    "its model type is Char"};

	if (q->type < 1 || q->type > 4 || types[q->type])
		return q->type < 5 ? types[q->type] : "its model type is not known";
	if (!q->bytes)
		return "it has no byte fallback";
	if (q->charsmap)
		return "its normalizer has a character map:";
	if (q->one_space)
		return "it removes extra whitespace";
	if (!q->escape || q->suffix)
		return "it does not mark whitespace before a word";
	return NULL;
}

int src_sentencepiece(struct dt_source *s, const uint8_t *p, size_t n, struct dt_err *err)
{
	struct model q = {
		.v.bos = 1, .v.add_bos = true, .type = 1, .dummy_prefix = 1, .one_space = 1, .escape = 1};
	struct message m = {p, n};
	const char *why;
	int rc, count = 0;
	struct field f;

	while (next_field(&m, &f) > 0)
		count += f.number == 1;
	q.v.t = calloc((size_t)count + 1, sizeof(*q.v.t));
	if (!q.v.t)
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", s->path);
	rc = read_model((struct message){p, n}, &q);
	if (rc < 0) {
		rc = dt_err_set(err, -EBADMSG, "'%s' is a damaged SentencePiece model", s->path);
	} else {
		why = refusal(&q);
		q.v.add_space = q.dummy_prefix;
		if (why)
			rc = src_vocab_note(s, why, q.charsmap ? q.name : NULL, q.name_n);
		else
			rc = src_vocab_sentencepiece(s, &q.v, err);
	}
	free(q.v.t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
