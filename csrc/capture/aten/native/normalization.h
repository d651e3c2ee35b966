// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The trnsim authors
#pragma once

#include "capture/aten/special.h"

namespace trnsim::capture {

SpecialOps normalization_ops();

}  // namespace trnsim::capture
