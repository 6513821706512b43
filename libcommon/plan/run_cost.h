/*
 * What a run costs: device hours, money and energy, with what failures make it lose (Young 1974, Daly 2006).
 */
#ifndef DT_PLAN_RUN_COST_H
#define DT_PLAN_RUN_COST_H

struct dt_run_cost_query {
	double seconds; /* of the run where nothing fails */
	int devices;
	double price;	  /* of a device hour; 0: unknown */
	double power_w;	  /* of a device at most; 0: unknown */
	double mtbf_s;	  /* between failures of any device; 0: there are none */
	double save_s;	  /* a checkpoint */
	double restart_s; /* from a failure to the first step after it */
	double every_s;	  /* between checkpoints; 0: what loses the least */
};

struct dt_run_cost {
	double every_s, lost; /* the interval; the share of the time that is lost */
	double seconds, device_hours, money, energy_kwh; /* with what is lost; 0: unknown */
};

struct dt_run_cost dt_run_cost_of(const struct dt_run_cost_query *q);

/* Seconds between checkpoints that lose the least, for one that takes save and failures mtbf apart. */
double dt_checkpoint_interval(double save, double mtbf);
/*
 * The share of the time lost to saving every so many seconds, to work done again and to restarts, failures
 * being exponential: 1 - every / (mtbf exp(restart / mtbf) (exp((every + save) / mtbf) - 1)), Daly's eq. 20.
 */
double dt_checkpoint_lost(double save, double mtbf, double restart, double every);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
