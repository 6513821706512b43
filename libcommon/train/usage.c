#include "train/trainer.h"

#include "base/progress.h"
#include "plan/nvml.h"

#include <math.h>
#include <string.h>

enum { PROCESSORS, LINKS, RECEIVED, SENT, MEMORY, POWER, CARD };

/* Values of the whole node (RECEIVED to POWER) are reported by its first rank. */
static const struct usage_row rows[USAGE_VALUES + 1] = {
	{"processors_busy", "dt_train_rank_processors_busy",
	 "CPU cores that a rank kept busy: CPU time over elapsed time."},
	{"link_bytes_per_s", "dt_train_rank_link_bytes_per_second",
	 "Bytes per second that a rank sent to others, counted as bus bandwidth."},
	{"network_received_bytes_per_s", "dt_train_network_received_bytes_per_second",
	 "Bytes per second received by the network interfaces of a rank's machine."},
	{"network_sent_bytes_per_s", "dt_train_network_sent_bytes_per_second",
	 "Bytes per second sent by the network interfaces of a rank's machine."},
	{"memory_bytes_per_s", "dt_train_memory_bytes_per_second",
	 "Bytes per second between memory and CPUs of a rank's machine."},
	{"power_w", "dt_train_power_watts", "Power of a rank's machine, CPUs and memory (RAPL)."},
	{"card_busy", "dt_train_card_busy_ratio", "Fraction of time in which a rank's GPU ran kernels."},
	{"card_memory_busy", "dt_train_card_memory_busy_ratio",
	 "Fraction of time in which a rank's GPU read or wrote its memory."},
	{"card_memory_bytes", "dt_train_card_memory_bytes", "Memory in use on a rank's GPU."},
	{"card_power_w", "dt_train_card_power_watts", "Power of a rank's GPU."},
	{"card_received_bytes_per_s", "dt_train_card_received_bytes_per_second",
	 "Bytes per second that a rank's GPU received over PCIe."},
	{"card_sent_bytes_per_s", "dt_train_card_sent_bytes_per_second",
	 "Bytes per second that a rank's GPU sent over PCIe."},
	{0},
};

const struct usage_row *usage_row(int i)
{
	return i < USAGE_VALUES ? &rows[i] : NULL;
}

static bool speaks_for_machine(const struct trainer *t)
{
	return t->info.local_rank == 0;
}

int usage_open(struct trainer *t, struct dt_err *err)
{
	struct usage *u = &t->details.usage;
	struct dt_err why = {0};
	char memory[160];
	int rc = dt_usage_open(&u->counters, "", memory, sizeof(memory), err);

	if (rc < 0)
		return rc;
	if (*memory)
		dt_log_msg(&t->root_log, "--details: memory bandwidth is not measured: %s", memory);
	if (!dt_dev_is_host(t->dev) && dt_nvml_open(t->dev->index, &u->card, &why) < 0)
		dt_log_msg(&t->root_log, "--details: GPU utilization is not measured: %s", why.msg);
	dt_usage_read(u->counters, &u->last);
	u->at = dt_now();
	u->sent = dt_world_sent(t->world);
	return 0;
}

void usage_read(struct trainer *t, double ret[USAGE_VALUES])
{
	struct usage *u = &t->details.usage;
	struct dt_usage_now now, was = u->last;
	double at = dt_now(), sent = dt_world_sent(t->world), s = at - u->at;

	for (int i = 0; i < USAGE_VALUES; i++)
		ret[i] = NAN;
	dt_usage_read(u->counters, &now);
	ret[PROCESSORS] = (now.processor_s - was.processor_s) / s;
	ret[LINKS] = (sent - u->sent) / s;
	if (speaks_for_machine(t)) {
		ret[RECEIVED] = (now.received - was.received) / s;
		ret[SENT] = (now.sent - was.sent) / s;
		ret[MEMORY] = (now.memory_bytes - was.memory_bytes) / s;
		ret[POWER] = (now.energy_j - was.energy_j) / s;
	}
	if (u->card) {
		struct dt_nvml_now c;

		dt_nvml_read(u->card, &c);
		memcpy(&ret[CARD],
		       (double[]){c.busy, c.memory_busy, c.memory_bytes, c.power_w, c.received, c.sent},
		       6 * sizeof(double));
	}
	u->last = now;
	u->at = at;
	u->sent = sent;
}

void usage_release(struct trainer *t)
{
	struct usage *u = &t->details.usage;

	dt_usage_close(u->counters);
	dt_nvml_close(u->card);
	*u = (struct usage){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
