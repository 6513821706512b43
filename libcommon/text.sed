# Text as a C string, a line a literal. The caller adds the first and the last line.
s/[\\"?]/\\&/g
s/.*/"&\\n"/
# SPDX-License-Identifier: Apache-2.0
