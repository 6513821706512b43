/* Prints names that completions offer, one a line: of model presets, or (presets devices) of devices. */
#include "base/tmpfile.h"
#include "model/config.h"
#include "plan/cluster.h"

#include <string.h>

int main(int argc, char **argv)
{
	bool devices = argc > 1 && !strcmp(argv[1], "devices");

	for (int i = 0; devices && dt_cluster_device_name(i); i++)
		puts(dt_cluster_device_name(i));
	for (int i = 0; !devices && dt_config_preset(i); i++)
		puts(dt_config_preset(i)->name);
	return dt_close_stdout(NULL) < 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
