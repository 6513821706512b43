/* What the algorithms do, and the frames that they need. */
#include "rl/control.h"

#include <errno.h>

const struct dt_control_rule dt_control_rules[DT_CONTROL_N] = {
	[DT_CONTROL_A2C] = {.waits = true},
	[DT_CONTROL_A3C] = {.gradients = true},
	[DT_CONTROL_IMPALA] = {.vtrace = true},
	[DT_CONTROL_DQN] = {.values = true, .mixer = DT_MIX_NONE},
	[DT_CONTROL_VDN] = {.values = true, .mixer = DT_MIX_SUM},
	[DT_CONTROL_QMIX] = {.values = true, .mixer = DT_MIX_NET},
};

int dt_control_check_frames(const struct dt_control *o, int64_t done, struct dt_err *err)
{
	const struct dt_control_values *v = &o->values;
	const int64_t unroll = (int64_t)o->env.n / o->actors * o->steps, left = o->frames - done,
		      /* unrolls per actor: all, and those from the first one learned from */
		all = (left + unroll - 1) / unroll, learnt = all - (v->begin + unroll - 1) / unroll + 1;

	if (!dt_control_rules[o->kind].values || left <= 0 ||
	    (v->begin <= left && v->ratio * (double)(learnt * unroll) >= v->batch))
		return 0;
	return dt_err_set(err, -EINVAL,
			  "--frames %lld end before the first update: the replay buffer%s needs %lld steps "
			  "(--warm-up), and an update of --batch %d needs %.6g more (--replay-ratio)",
			  (long long)o->frames, done ? " starts empty and" : "", (long long)v->begin,
			  v->batch, v->batch / v->ratio);
}
/* SPDX-License-Identifier: Apache-2.0 */
