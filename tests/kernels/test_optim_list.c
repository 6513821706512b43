/* Lists of parts that take a step by one call: the formulas, and the bits of part after part. */
#include "group.h"
#include "optim_ref.h"

/* More than a launch takes; elements of all, with what lies between them. */
enum { MANY = 113, ROOM = 40000 };

/* Buffers that parts lie in, and the parts: of one element, of none, aligned and not, large and small. */
struct list {
	struct dt_tensor copy, p, g, s[2];
	struct dt_optim_part part[MANY];
	struct dt_optim_parts parts;
};

static struct dt_tensor at(struct dt_tensor of, int64_t first, int64_t n)
{
	return dt_t1((char *)of.data + first * dt_dtype_size(of.dtype), of.dtype, n);
}

static int64_t size_of(int i)
{
	return i % 11 == 4		 ? 1
	       : i == 7 || i == MANY - 1 ? 0
	       : i == 30		 ? 9001
	       : i == 70		 ? 2048
					 : 1 + i * 7919 % 300;
}

/* State k of n elements: behind them in the buffer what of others there is; *byte: of 8-bit blocks, where. */
static struct dt_tensor state_at(const struct list *l, enum dt_optim_kind kind, int k, int64_t first,
				 int64_t n, int64_t *byte)
{
	const struct dt_optim_state *s = &dt_optim_rule(kind)->state[k];
	const int64_t bytes = dt_optim_state_bytes(s, 1, n), was = *byte;

	if (s->shape == DT_STATE_EACH)
		return at(l->s[k], first, n);
	if (s->shape != DT_STATE_BLOCKS)
		return DT_NONE;
	*byte += (bytes + 3) / 4 * 4;
	return dt_t1((char *)l->s[k].data + was, DT_U8, bytes);
}

static void make_list(struct list *l, const struct dt_optim *o, enum dt_dtype gtype)
{
	const bool direction = dt_optim_rule(o->kind)->flags & DT_OPTIM_DIRECTION;
	int64_t first = 0, byte[2] = {0, 0};

	l->copy = random_tensor(DT_BF16, 1, ROOM, 1, 1);
	l->p = random_tensor(DT_F32, 1, ROOM, 2, 1);
	l->g = random_tensor(direction ? DT_F32 : gtype, 1, ROOM, 3, 1);
	for (int k = 0; k < 2; k++) {
		l->s[k] = tensor(DT_F32, 1, ROOM);
		memset(l->s[k].data, 0, bytes_of(l->s[k]));
	}
	for (int i = 0; i < MANY; i++) {
		const int64_t n = size_of(i);

		first = i % 3 ? first + i % 4 : (first + 7) / 8 * 8;
		l->part[i] =
			(struct dt_optim_part){.copy = direction || i == 30 ? DT_NONE : at(l->copy, first, n),
					       .p = at(l->p, first, n),
					       .g = at(l->g, first, n),
					       .s1 = state_at(l, o->kind, 0, first, n, &byte[0]),
					       .s2 = state_at(l, o->kind, 1, first, n, &byte[1]),
					       .lr = 0.01f + 0.0001f * (float)i,
					       .weight_decay = i % 2 ? 0 : 0.1f,
					       .trust = 0.3f + 0.001f * (float)i};
		first += n;
	}
	assert_in_range(first, ROOM / 2, ROOM);
	l->parts = (struct dt_optim_parts){MANY, l->part};
}

static void free_list(struct list *l)
{
	free_all(l->copy.data, l->p.data, l->g.data, l->s[0].data, l->s[1].data);
}

/* What the formulas make of p and (a direction) g of the parts, over the whole buffers. */
static void ref_list(const struct list *l, struct dt_optim o, double *p, double *g)
{
	for (int i = 0; i < MANY; i++) {
		const struct dt_optim_part *q = &l->part[i];
		const int64_t first = (float *)q->p.data - (float *)l->p.data;

		o.lr = q->lr;
		o.weight_decay = q->weight_decay;
		o.trust = q->trust;
		for (int64_t j = first; j < first + dt_numel(q->p); j++) {
			double s[2] = {0, 0};

			ref_step(&o, &p[j], &g[j], &s[0], &s[1]);
		}
	}
}

/* The formulas' values in the parts, the bits of part after part, and what lies between them as it was. */
static void list(enum dt_optim_kind kind, enum dt_dtype gtype)
{
	struct dt_optim o = {kind, 0, 0.9f, 0.95f, 1e-8f, 0, 0.5f, 1, 0};
	struct list many, alone;
	double *p, *g;

	make_list(&many, &o, gtype);
	make_list(&alone, &o, gtype);
	p = values(many.p);
	g = values(many.g);
	ref_list(&many, o, p, g);
	assert_int_equal(dev->ops->optim_steps(dev, &o, &many.parts), 0);
	check_close("p", many.p, p, 1e-6, 1e-6);
	check_close("g", many.g, g, 2e-5, 2e-6);
	for (int i = 0; i < MANY; i++) {
		const struct dt_optim_part *q = &alone.part[i];

		o.lr = q->lr;
		o.weight_decay = q->weight_decay;
		o.trust = q->trust;
		assert_int_equal(dev->ops->optim_step(dev, &o, q->copy, q->p, q->g, q->s1, q->s2), 0);
	}
	check_same_bits("copy", many.copy, alone.copy);
	check_same_bits("p", many.p, alone.p);
	check_same_bits("g", many.g, alone.g);
	check_same_bits("s1", many.s[0], alone.s[0]);
	check_same_bits("s2", many.s[1], alone.s[1]);
	free_list(&many);
	free_list(&alone);
	free_all(p, g);
}

static void test_lists(void **state)
{
	for (int k = 0; k < DT_OPTIM_N; k++)
		if (!(dt_optim_rule((enum dt_optim_kind)k)->flags & DT_OPTIM_FACTORED))
			list((enum dt_optim_kind)k, k % 2 ? DT_F32 : DT_BF16);
}

/* One part that is wrong, or none there: nothing changes. */
static void test_lists_refused(void **state)
{
	struct dt_optim o = {DT_OPTIM_ADAMW, 0, 0.9f, 0.99f, 1e-8f, 0, 1, 1, 0};
	struct dt_tensor was;
	struct list l;

	make_list(&l, &o, DT_F32);
	was = copy_of(l.p);
	l.part[MANY - 2].s2 = DT_NONE;
	assert_int_equal(dev->ops->optim_steps(dev, &o, &l.parts), -EINVAL);
	l.part[MANY - 2].s2 = l.part[MANY - 2].s1;
	l.part[3].p.ld = dt_numel(l.part[3].p) + 1;
	assert_int_equal(dev->ops->optim_steps(dev, &o, &l.parts), -EINVAL);
	l.part[3].p.ld = 0;
	l.parts.n = -1;
	assert_int_equal(dev->ops->optim_steps(dev, &o, &l.parts), -EINVAL);
	l.parts.n = 0;
	assert_int_equal(dev->ops->optim_steps(dev, &o, &l.parts), 0);
	l.parts = (struct dt_optim_parts){1, &l.part[7]};
	assert_int_equal(dev->ops->optim_steps(dev, &o, &l.parts), 0);
	check_same_bits("p", l.p, was);
	free_list(&l);
	free(was.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists),
					   cmocka_unit_test(test_lists_refused)};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
