/* The kinds of operations: for messages, step lists and whoever chooses an algorithm. */
#ifndef DT_COMM_OP_H
#define DT_COMM_OP_H

#include <stdbool.h>

enum dt_comm_op_kind {
	DT_COMM_NONE, /* computing */
	DT_COMM_ALL_REDUCE,
	DT_COMM_REDUCE_SCATTER,
	DT_COMM_ALL_GATHER,
	DT_COMM_BROADCAST,
	DT_COMM_ALL_TO_ALL,
	DT_COMM_BARRIER,
	DT_COMM_GATHER,
	DT_COMM_REDUCE,
	DT_COMM_SCATTER,
	DT_COMM_SEND,
	DT_COMM_RECV,
	DT_COMM_START_UP,
	DT_COMM_FINISH,
};
const char *dt_comm_op_name(enum dt_comm_op_kind k);

static inline bool dt_comm_op_reduces(enum dt_comm_op_kind k)
{
	return k == DT_COMM_ALL_REDUCE || k == DT_COMM_REDUCE || k == DT_COMM_REDUCE_SCATTER;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
