/* Families of models: who builds the graph of a configuration. */
#ifndef DT_MODEL_FAMILY_H
#define DT_MODEL_FAMILY_H

#include "model/graph.h"

void dt_family_build(struct dt_builder *b);

#endif
