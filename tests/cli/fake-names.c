/*
 * A fake name server for tests (LD_PRELOAD): the host pods.test has the IPv4 addresses that the file
 * $FAKE_NAMES lists, one per line. The file is read again at every lookup.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static lookup *real_lookup(void)
{
	static lookup *real;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	return real;
}

int getaddrinfo(const char *host, const char *port, const struct addrinfo *hint, struct addrinfo **ret)
{
	struct addrinfo **end = ret;
	char line[64];
	FILE *f;

	if (!host || strcmp(host, "pods.test"))
		return real_lookup()(host, port, hint, ret);
	*ret = NULL;
	f = fopen(getenv("FAKE_NAMES"), "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (real_lookup()(line, port, hint, end) == 0)
			end = &(*end)->ai_next; /* freeaddrinfo frees the joined lists as one */
	}
	if (f)
		fclose(f);
	return *ret ? 0 : EAI_NONAME;
}

int getaddrinfo_a(int mode, struct gaicb *list[], int n, struct sigevent *event)
{
	for (int i = 0; i < n; i++)
		list[i]->__return = getaddrinfo(list[i]->ar_name, list[i]->ar_service, list[i]->ar_request,
						&list[i]->ar_result);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
