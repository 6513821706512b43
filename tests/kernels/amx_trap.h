/*
 * AMX instructions on a processor that has none: it refuses them by SIGILL, whose handler decodes them and
 * calls kernels/cpu/amx_plain.c. So the object code is run as it is, its encodings, shapes and addresses
 * included.
 */
#ifndef DT_TESTS_KERNELS_AMX_TRAP_H
#define DT_TESTS_KERNELS_AMX_TRAP_H

void amx_trap_begin(void); /* not for several threads */
int amx_trap_end(void);	   /* how many instructions there were */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
