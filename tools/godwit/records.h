/* SPDX-License-Identifier: Linux-OpenIB OR MIT */
/*
 * Records of a dump, field by field, for machines (JSON) and for people.
 */
#ifndef GODWIT_RECORDS_H
#define GODWIT_RECORDS_H

#include <infiniband/migrate.h>
#include <jansson.h>
#include <stdio.h>

/* The name of a type of records: "QP". */
const char *record_kind_name(unsigned int type);
/* {"type": "QP", "handle": 3, field: value, ...} */
json_t *record_json(const struct rxe_migr_rec *rec);
/* One line. all: every field; else those that a person looks for first. */
void record_print(FILE *f, const struct rxe_migr_rec *rec, bool all);
/* The same line for a record of an image, whose fields have the same names. */
void record_print_saved(FILE *f, json_t *record, bool all);

#endif /* GODWIT_RECORDS_H */
