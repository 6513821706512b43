/*
 * Advantages, and returns as targets of a value function, for one episode of n steps that terminates (V_n =
 * 0). For a language model a step is a token. adv and ret may be NULL.
 */
#ifndef DT_RL_RETURNS_H
#define DT_RL_RETURNS_H

struct dt_returns {
	double discount, lambda;
	double rho, c; /* V-trace: the largest ratios */
};

/*
 * Generalised advantages (Schulman et al. 2016), backwards: d_t = r_t + discount V_{t+1} - V_t;
 * adv_t = d_t + discount lambda adv_{t+1}; ret_t = adv_t + V_t.
 */
void dt_gae(const struct dt_returns *p, int n, const double *reward, const float *value, double *adv,
	    double *ret);

/*
 * V-trace (Espeholt et al. 2018), backwards, with ratio_t = pi / mu, rho_t = min(rho, ratio_t) and
 * c_t = lambda min(c, ratio_t): ret_t = V_t + rho_t (r_t + discount V_{t+1} - V_t)
 *                                     + discount c_t (ret_{t+1} - V_{t+1});
 * adv_t = r_t + discount ret_{t+1} - V_t, which the loss weighs by rho_t. Where all ratios and lambda are 1,
 * ret is the sum of discounted rewards.
 */
void dt_vtrace(const struct dt_returns *p, int n, const double *reward, const float *value,
	       const double *ratio, double *adv, double *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
