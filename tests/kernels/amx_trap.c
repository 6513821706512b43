#include "amx_trap.h"

#include "kernels/cpu/amx.h"

#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>

static struct dt_amx_tiles tiles;
static struct sigaction before;
static int count;

/* VEX and ModRM fields of an instruction of map 0F38, Intel SDM volume 2, 2.1 and 2.3. */
struct instruction {
	int opcode, prefix; /* 0 none, 1 66, 2 F3, 3 F2 */
	int reg, rm, vvvv;
	bool memory;
	uint64_t address, stride;
	int length;
};

static uint64_t reg_of(const ucontext_t *u, int n)
{
	static const int at[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
				   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

	return (uint64_t)u->uc_mcontext.gregs[at[n]];
}

/* The operand in memory; with a SIB byte its index is the stride of tiles. p: the byte after ModRM. */
static const uint8_t *address_of(struct instruction *i, const ucontext_t *u, const uint8_t *p, int mod, int x,
				 int b)
{
	const int rm = i->rm & 7;
	bool no_base = mod == 0 && rm == 5;
	int32_t offset = 0;

	i->address = rm == 4 || no_base ? 0 : reg_of(u, i->rm);
	if (rm == 4) {
		const int index = (*p >> 3 & 7) | x << 3, base = (*p & 7) | b << 3;

		i->stride = index == 4 ? 0 : reg_of(u, index) << (*p >> 6);
		no_base = mod == 0 && (*p & 7) == 5;
		i->address = no_base ? 0 : reg_of(u, base);
		p++;
	}
	if (mod == 1) {
		offset = (int8_t)*p++;
	} else if (mod == 2 || no_base) {
		memcpy(&offset, p, 4);
		p += 4;
	}
	i->address += (uint64_t)(int64_t)offset;
	if (mod == 0 && rm == 5) /* beside the next instruction */
		i->address += (uint64_t)(uintptr_t)p;
	return p;
}

static bool decode(struct instruction *i, const ucontext_t *u)
{
	const uint8_t *p = (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP], *start = p;
	const int r = !(p[1] & 0x80), x = !(p[1] & 0x40), b = !(p[1] & 0x20), mod = p[4] >> 6;

	*i = (struct instruction){0};
	if (p[0] != 0xc4 || (p[1] & 31) != 2 || p[2] & 0x84) /* VEX.128.0F38.W0 */
		return false;
	i->prefix = p[2] & 3;
	i->vvvv = ~(p[2] >> 3) & 15;
	i->opcode = p[3];
	i->reg = (p[4] >> 3 & 7) | r << 3;
	i->rm = (p[4] & 7) | b << 3;
	i->memory = mod != 3;
	p = i->memory ? address_of(i, u, p + 5, mod, x, b) : p + 5;
	i->length = (int)(p - start);
	return true;
}

static int execute(const struct instruction *i)
{
	void *at = (void *)(uintptr_t)i->address;

	switch (i->opcode << 8 | i->prefix << 4 | i->memory) {
	case 0x4901:
		return dt_amx_configure(&tiles, at);
	case 0x4900: /* TILERELEASE */
		memset(&tiles, 0, sizeof tiles);
		return i->reg == 0 && i->rm == 0 ? 0 : -EINVAL;
	case 0x4930:
		return dt_amx_zero(&tiles, i->reg);
	case 0x4b31:
		return dt_amx_load(&tiles, i->reg, at, (int64_t)i->stride);
	case 0x4b21:
		return dt_amx_store(&tiles, i->reg, at, (int64_t)i->stride);
	case 0x5c20:
		return dt_amx_dot_bf16(&tiles, i->reg, i->rm, i->vvvv);
	case 0x5e10:
		return dt_amx_dot_us(&tiles, i->reg, i->rm, i->vvvv);
	case 0x5e20:
		return dt_amx_dot_su(&tiles, i->reg, i->rm, i->vvvv);
	case 0x5e30:
		return dt_amx_dot_ss(&tiles, i->reg, i->rm, i->vvvv);
	}
	return -EINVAL;
}

static void trap(int number, siginfo_t *info, void *context)
{
	static const char text[] = "an instruction that is no AMX, or whose tiles do not fit\n";
	ucontext_t *u = context;
	struct instruction i;

	if (!decode(&i, u) || execute(&i) < 0) {
		if (write(2, text, sizeof text - 1) < 0)
			_exit(1);
		abort();
	}
	u->uc_mcontext.gregs[REG_RIP] += i.length;
	count++;
}

void amx_trap_begin(void)
{
	struct sigaction a = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};

	memset(&tiles, 0, sizeof tiles);
	count = 0;
	sigaction(SIGILL, &a, &before);
}

int amx_trap_end(void)
{
	sigaction(SIGILL, &before, NULL);
	return count;
}
/* SPDX-License-Identifier: Apache-2.0 */
