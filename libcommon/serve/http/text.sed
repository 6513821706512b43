# A file of text as a C string, a line a literal.
s/[\\"]/\\&/g
s/.*/"&\\n"/
# SPDX-License-Identifier: Apache-2.0
