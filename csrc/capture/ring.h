// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
//
// A causal attention whose sequence is divided over ranks: blocks of it above the diagonal are not
// asked for, and blocks below it run without a mask.
#pragma once

#include <cstdint>

namespace trnsim::capture {

int64_t record_count();  // of this recording so far; 0 without one
// Says of the attentions without a mask that were recorded from there on that they are blocks below
// the diagonal: the scalar below_diagonal of their signatures.
void mark_below_diagonal(int64_t first_record);

}  // namespace trnsim::capture
