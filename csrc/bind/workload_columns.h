// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A Workload as columns: {"records": {"signature": array, ...}, "signatures": {"text": list}, ...,
// "facts": {"role": ..., ...}}. Numbers are numpy arrays, one a field of the struct; texts are
// lists of str; lists of lists are offsets and values. Enums are their codes, whose
// names workload_enum_names() gives.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "workload/workload.h"

namespace trnsim::bind {

pybind11::dict workload_to_columns(const workload::Workload& workload);
// Checks what it reads: throws workload Error on a missing column, other lengths or a bad index.
std::shared_ptr<workload::Workload> workload_from_columns(const pybind11::dict& tables);
// {"kind": ["op", ...], ...}: the names behind the codes of "<table>.<column>".
pybind11::dict workload_enum_names();

}  // namespace trnsim::bind
