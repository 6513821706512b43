# The page as a C string, a line a literal.
s/[\\"?]/\\&/g
s/.*/"&\\n"/
1i const char dt_board_page_text[] =
$a ;
# SPDX-License-Identifier: Apache-2.0
