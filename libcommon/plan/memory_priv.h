/* Shared by memory*.c, away.c and choose.c alone. */
#ifndef DT_PLAN_MEMORY_PRIV_H
#define DT_PLAN_MEMORY_PRIV_H

#include "plan/memory.h"
#include "plan/place.h"

struct dt_plan_builder {
	struct dt_memory_plan *plan;
	const struct dt_run *r;
	int cap;
	struct dt_item *item; /* what is placed */
	enum dt_mem_cat *cat; /* of every item */
	enum dt_place *place; /* likewise */
	int nitem, item_cap;
	int *item_of;			/* [plan.n] item of a buffer */
	uint64_t *inner;		/* [plan.n] where in it */
	int *value_item[DT_MAX_CHUNKS]; /* by value: its item; -1: it has no memory */
	int peak_time;
	int end; /* time of the update, behind all steps */
	bool failed;
};

/* A new item of no bytes; its number. */
int dt_plan_item(struct dt_plan_builder *b, enum dt_mem_cat cat, int first, int last);
/* Appends a buffer that lies in an item at `inner`; name, bytes are worked out here. NULL: out of memory. */
struct dt_buf *dt_plan_put(struct dt_plan_builder *b, struct dt_buf d, const char *name, int item,
			   uint64_t inner);

/* A buffer of the rank as a whole, with an item of its own; NULL where numel is 0. */
struct dt_buf *dt_plan_flat(struct dt_plan_builder *b, enum dt_buf_id id, enum dt_mem_cat cat,
			    enum dt_dtype dtype, int64_t numel, enum dt_phase first, enum dt_phase last,
			    int which, const char *name, const char *formula);
/* The same for a buffer that is not on the device: in host memory or a file. */
void dt_plan_elsewhere(struct dt_plan_builder *b, enum dt_place place, enum dt_buf_id id, enum dt_mem_cat cat,
		       int64_t bytes, const char *name, const char *formula);
/*
 * A buffer that the CPU works on, from phase `first` on: in the arena, or with a CUDA device in host memory.
 */
void dt_plan_on_host(struct dt_plan_builder *b, enum dt_buf_id id, enum dt_mem_cat cat, enum dt_dtype dtype,
		     int64_t numel, enum dt_phase first, const char *name, const char *formula);
/* Pinned host memory for transfers between a CUDA device and a file; none if there are no such transfers. */
void dt_plan_pinned(struct dt_plan_builder *b, int64_t bytes);
/* memory_run.c: what a run of training holds beside the values of its program. */
void dt_plan_run_buffers(struct dt_plan_builder *b, struct dt_coords at);
/* memory_data.c: of these, the input of a step. */
void dt_plan_data_buffers(struct dt_plan_builder *b, struct dt_coords at);

/* memory_scratch.c: what the device takes for its operations, where the run says what it depends on. */
void dt_plan_scratch(struct dt_plan_builder *b, struct dt_coords at);

/* away.c: the plan's list of values that leave memory; -ENOMEM. The entry of one, NULL. */
int dt_plan_find_away(struct dt_plan_builder *b);
const struct dt_away *dt_plan_away(const struct dt_memory_plan *plan, int v);

/* memory_time.c: fills the plan's bytes by phase and category, and over the step; -ENOMEM. */
int plan_account(struct dt_plan_builder *b);

/* Items and buffers of the values of all chunks. */
int dt_plan_values(struct dt_plan_builder *b, struct dt_err *err);
/* Offsets of values, once items have theirs. */
void dt_plan_value_offsets(struct dt_plan_builder *b);

/* The plan of exactly this run. */
int dt_plan_exactly(const struct dt_run *r, struct dt_coords at, struct dt_memory_plan *ret,
		    struct dt_err *err);
/* choose.c: fills what --recompute auto leaves to the plan. -ENOSPC where nothing fits. */
int dt_plan_choose(struct dt_run *r, struct dt_coords at, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
