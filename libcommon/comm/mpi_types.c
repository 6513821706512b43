/*
 * MPI errors, element types and reductions. bf16 and f16 are user-defined types: two operands are added in
 * f32 and rounded to nearest even.
 */
#include "comm/internal.h"

#include <errno.h>

int dt_comm_mpi_error(struct dt_err *err, int rc, const char *what)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int n = 0;

	MPI_Error_string(rc, text, &n);
	return dt_err_set(err, -EIO, "%s: %s", what, text);
}

static MPI_Datatype half_type[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
static MPI_Op half_op[2][3]; /* [f16][sum, max, min] */

#define HALF_OP(name, T, OP)                                                                                 \
	static void name(void *in, void *inout, int *n, MPI_Datatype *type)                                  \
	{                                                                                                    \
		const void *src[2] = {in, inout};                                                            \
                                                                                                             \
		(void)type;                                                                                  \
		dt_comm_reduce_many(inout, src, 2, (size_t)*n, T, OP);                                       \
	}

HALF_OP(bf16_sum, DT_BF16, DT_SUM)
HALF_OP(bf16_max, DT_BF16, DT_MAX)
HALF_OP(bf16_min, DT_BF16, DT_MIN)
HALF_OP(f16_sum, DT_F16, DT_SUM)
HALF_OP(f16_max, DT_F16, DT_MAX)
HALF_OP(f16_min, DT_F16, DT_MIN)

int dt_comm_mpi_types_init(struct dt_err *err)
{
	static MPI_User_function *const fn[2][3] = {{bf16_sum, bf16_max, bf16_min},
						    {f16_sum, f16_max, f16_min}};

	for (int i = 0; i < 2; i++) {
		int rc = MPI_Type_contiguous(2, MPI_BYTE, &half_type[i]);

		if (!rc)
			rc = MPI_Type_commit(&half_type[i]);
		for (int k = 0; k < 3 && !rc; k++)
			rc = MPI_Op_create(fn[i][k], 1, &half_op[i][k]);
		if (rc)
			return dt_comm_mpi_error(err, rc, "cannot define 16-bit types");
	}
	return 0;
}

void dt_comm_mpi_types_release(void)
{
	for (int i = 0; i < 2; i++) {
		if (half_type[i] == MPI_DATATYPE_NULL)
			continue;
		MPI_Type_free(&half_type[i]);
		for (int k = 0; k < 3; k++)
			MPI_Op_free(&half_op[i][k]);
	}
}

MPI_Datatype dt_comm_mpi_type(enum dt_dtype t)
{
	switch (t) {
	case DT_F32:
		return MPI_FLOAT;
	case DT_BF16:
		return half_type[0];
	case DT_F16:
		return half_type[1];
	case DT_F64:
		return MPI_DOUBLE;
	case DT_I32:
		return MPI_INT32_T;
	case DT_I64:
		return MPI_INT64_T;
	case DT_U16:
		return MPI_UINT16_T;
	case DT_I8:
		return MPI_INT8_T;
	default:
		return MPI_UINT8_T;
	}
}

MPI_Op dt_comm_mpi_op(enum dt_dtype t, enum dt_redop op)
{
	int k = op == DT_MAX ? 1 : op == DT_MIN ? 2 : 0;

	if (t == DT_BF16 || t == DT_F16)
		return half_op[t == DT_F16][k];
	return k == 1 ? MPI_MAX : k == 2 ? MPI_MIN : MPI_SUM;
}
/* SPDX-License-Identifier: Apache-2.0 */
