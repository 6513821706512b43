#include "kernels/cpu/isa.h"
#include "kernels/cpu/cpu.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct dt_isa isa;
static pthread_once_t once = PTHREAD_ONCE_INIT;
bool dt_prefetch_near;

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUEST_PERMISSION 0x1023 /* ARCH_REQ_XCOMP_PERM of asm/prctl.h */
#define TILE_DATA	   18	  /* the XCR0 component that needs permission; 17: tile configuration */

/* Intel SDM, volume 1, 13.3 and 18.2; Documentation/arch/x86/xstate.rst of Linux. */
static bool may_use_tiles(void)
{
	const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25, all = bf16 | tile | int8;
	unsigned a, b, c, d, xcr0, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return false;
	__asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(high) : "c"(0));
	if ((xcr0 >> (TILE_DATA - 1) & 3) != 3)
		return false;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & all) != all)
		return false;
	return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* Zen 5 and later: AMD's family 26 on. */
static bool is_zen5(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx)
		return false;
	return __get_cpuid(1, &a, &b, &c, &d) && (a >> 8 & 15) + (a >> 20 & 255) >= 26;
}

static void determine(void)
{
	static const struct {
		unsigned bits;
		const char *name;
	} names[] = {
		{dnnl_cpu_isa_avx512_core_amx, "avx512_amx"},
		{dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
		{dnnl_cpu_isa_avx512_core_vnni, "avx512_vnni"},
		{dnnl_cpu_isa_avx512_core, "avx512"},
		{dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
		{dnnl_cpu_isa_avx2, "avx2"},
		{dnnl_cpu_isa_avx, "avx"},
		{dnnl_cpu_isa_sse41, "sse41"},
	};
	const char *amx = getenv("DT_AMX"), *name = "generic";
	unsigned has = dnnl_get_effective_cpu_isa();

	if ((has & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx) {
		isa.amx_onednn = may_use_tiles();
		if (isa.amx_onednn)
			isa.amx = DT_AMX_TILES;
		else
			has = dnnl_cpu_isa_avx512_core_bf16;
	}
	for (size_t i = sizeof names / sizeof *names; i-- > 0;)
		if ((has & names[i].bits) == names[i].bits)
			name = names[i].name;
	isa.avx2 = (has & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2;
	isa.avx2_vnni = (has & dnnl_cpu_isa_avx2_vnni) == dnnl_cpu_isa_avx2_vnni;
	isa.avx512 = (has & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
	isa.vnni = (has & dnnl_cpu_isa_avx512_core_vnni) == dnnl_cpu_isa_avx512_core_vnni;
	isa.bf16 = (has & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
	dt_prefetch_near = is_zen5();
	if (isa.avx2 && amx && !strcmp(amx, "plain"))
		isa.amx = DT_AMX_PLAIN;
	snprintf(isa.name, sizeof isa.name, "%s%s", name, isa.amx == DT_AMX_PLAIN ? "+amx_plain" : "");
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static void determine(void)
{
	isa.dotprod = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
	snprintf(isa.name, sizeof isa.name, "neon%s", isa.dotprod ? "+dotprod" : "");
}
#else
static void determine(void)
{
	snprintf(isa.name, sizeof isa.name, "generic");
}
#endif

const struct dt_isa *dt_isa(void)
{
	pthread_once(&once, determine);
	return &isa;
}
/* SPDX-License-Identifier: Apache-2.0 */
