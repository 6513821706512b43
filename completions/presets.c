/* Prints the names of the model presets, one a line, for the completions. */
#include "base/tmpfile.h"
#include "model/config.h"

int main(void)
{
	for (int i = 0; dt_config_preset(i); i++)
		puts(dt_config_preset(i)->name);
	return dt_close_stdout(NULL) < 0;
}
