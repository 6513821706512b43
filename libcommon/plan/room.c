#include "plan/room.h"
#include "base/units.h"
#include "plan/again.h"
#include "plan/memory.h"
#include "plan/offtime.h"

uint64_t dt_room_budget(const struct dt_room *room)
{
	return (uint64_t)((double)room->device * (1 - room->margin / 100));
}

const char *dt_room_dir(const struct dt_room *room, const struct dt_fit_query *q)
{
	return q->serve ? room->weights_dir : q->run.offload.what ? q->run.offload.dir : NULL;
}

static int machine_ranks(const struct dt_room *room, const struct dt_fit_query *q)
{
	int world = dt_layout_world(&q->run.layout);

	return world < (int)room->node ? world : (int)room->node;
}

/* Whether the disk has space for the files of all ranks of a machine. */
static bool disk_fits(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f)
{
	uint64_t each = dt_fit_worst(f)->place_bytes[DT_PLACE_DISK];

	return !dt_room_dir(room, q) || room->disk_free >= each * (uint64_t)machine_ranks(room, q);
}

/* Peak bytes of device memory that a rank needs. */
static uint64_t needed(const struct dt_fit_query *q, const struct dt_fit *f)
{
	const uint64_t peak = dt_fit_worst(f)->peak_bytes, reform = dt_fit_reform_bytes(q, f->account);

	return peak > reform ? peak : reform;
}

bool dt_room_fits(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f)
{
	return (room->device == 0 || needed(q, f) <= dt_room_budget(room)) && disk_fits(room, q, f);
}

/* Replaces --recompute auto by the plan's choice, the same for all layers. */
static int take_choice(struct dt_run *r)
{
	struct dt_memory_plan plan;
	int rc = r->recompute.fit ? dt_memory_plan(r, (struct dt_coords){0}, &plan, NULL) : 0;

	if (rc < 0 || !r->recompute.fit)
		return rc;
	r->recompute = plan.recompute;
	r->recompute.steps = (plan.recompute.steps + plan.recompute.layers - 1) / plan.recompute.layers;
	r->recompute.layers = 1;
	r->offload.stay = plan.stay;
	dt_memory_plan_release(&plan);
	return 0;
}

/* Predicts the step time of ranks on CPUs like this one. False: nothing is offloaded, or it is unknown. */
static bool offload_time(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f,
			 struct dt_step_time *ret)
{
	struct dt_run r = q->run;
	struct dt_cluster c;
	int rc;

	if (q->serve || f->account != DT_ACCOUNT_DT || q->run.on_card ||
	    !dt_fit_worst(f)->place_bytes[DT_PLACE_DISK])
		return false;
	rc = dt_again_machine(&r, &c, NULL);
	if (rc == 0) {
		dt_cluster_this_machine(&c);
		rc = dt_cluster_arrange(&c, dt_layout_world(&r.layout), machine_ranks(room, q),
					DT_TOPO_FAT_TREE, 0, 1, 16, NULL);
	}
	if (!r.global_batch && !r.accumulation)
		r.accumulation = 2 * r.layout.pp;
	if (rc == 0 && (rc = dt_run_settle(&r, NULL)) == 0 && (rc = take_choice(&r)) == 0)
		rc = dt_step_time(&c, &r, &dt_stack_dt, ret, NULL);
	dt_cluster_release(&c);
	return rc == 0;
}

static void print_disk(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f,
		       FILE *out)
{
	const struct dt_weights_disk *w = &dt_fit_worst(f)->disk;
	char size[24], text[300];
	struct dt_step_time t;

	if (q->serve && q->weights_memory && !w->host) /* the bandwidth of a GPU's link is unknown */
		fprintf(out, "\n%s\n",
			dt_weights_disk_text(w, dt_offload_bw(&q->run, machine_ranks(room, q)), false, text,
					     sizeof(text)));

	if (offload_time(room, q, f, &t))
		fprintf(out, "%s\n",
			dt_offload_text(&q->run, &t, machine_ranks(room, q), text, sizeof(text)));
	if (dt_room_dir(room, q) && dt_fit_worst(f)->place_bytes[DT_PLACE_DISK])
		fprintf(out, "%s: %s free, %s for the ranks of one machine\n", dt_room_dir(room, q),
			dt_format_size(room->disk_free, size, sizeof(size)),
			disk_fits(room, q, f) ? "enough" : "not enough");
}

void dt_room_print(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f,
		   const struct dt_solve *s, bool why, FILE *out)
{
	uint64_t peak = needed(q, f), may = dt_room_budget(room), reform = dt_fit_reform_bytes(q, f->account);
	char mem[24], diff[24];

	print_disk(room, q, f, out);
	if (reform)
		fprintf(out, "%s: %s, %s\n",
			q->run.on_card ? "after the loss of a rank" : "while ranks re-form after a loss",
			dt_format_size(reform, mem, sizeof(mem)),
			q->run.on_card ? "the layout of one rank less" : "weights and states of two layouts");
	if (room->device == 0)
		return;
	putc('\n', out);
	if (s->what)
		dt_solve_print(s, why, out);
	dt_format_size(room->device, mem, sizeof(mem));
	dt_format_size(peak <= may ? may - peak : peak - may, diff, sizeof(diff));
	fprintf(out, "%s %s with %g%% kept free: %s %s\n", peak <= may ? "fits" : "does not fit", mem,
		room->margin, diff, peak <= may ? "of headroom" : "too much");
}

void dt_room_json(const struct dt_room *room, const struct dt_fit_query *q, const struct dt_fit *f,
		  const struct dt_solve *s, json_t *o)
{
	uint64_t peak = needed(q, f), may = dt_room_budget(room), reform = dt_fit_reform_bytes(q, f->account);
	struct dt_step_time t;

	if (room->device) {
		json_object_set_new(o, "gpu_mem_bytes", json_integer((json_int_t)room->device));
		json_object_set_new(o, "margin_percent", json_real(room->margin));
		json_object_set_new(o, "fits", json_boolean(peak <= may));
		json_object_set_new(o, "headroom_bytes", json_integer((json_int_t)may - (json_int_t)peak));
	}
	if (reform)
		json_object_set_new(o, "reform_bytes", json_integer((json_int_t)reform));
	if (dt_room_dir(room, q)) {
		json_object_set_new(o, "disk_free_bytes", json_integer((json_int_t)room->disk_free));
		json_object_set_new(o, "disk_fits", json_boolean(disk_fits(room, q, f)));
	}
	if (q->serve && q->weights_memory) {
		const struct dt_weights_disk *w = &dt_fit_worst(f)->disk;
		const double bw = dt_offload_bw(&q->run, machine_ranks(room, q));

		json_object_set_new(o, "weights_read_bytes", json_real(dt_weights_disk_read(w, 1)));
		json_object_set_new(o, "weights_slots", json_integer((json_int_t)w->slots));
		if (dt_weights_disk_read(w, 1) > 0 && !w->host)
			json_object_set_new(o, "weights_tokens_per_s",
					    json_real(dt_weights_disk_steps(w, 1, bw)));
	}
	if (offload_time(room, q, f, &t)) {
		json_object_set_new(o, "offload_exposed_s", json_real(t.offload_exposed));
		json_object_set_new(o, "offload_read_bytes", json_integer((json_int_t)t.offload_read));
		json_object_set_new(o, "offload_written_bytes", json_integer((json_int_t)t.offload_written));
		json_object_set_new(o, "step_s", json_real(t.step));
	}
	if (s->what)
		json_object_set_new(o, "solve", dt_solve_json(s));
}
/* SPDX-License-Identifier: Apache-2.0 */
