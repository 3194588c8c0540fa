package main

import "github.com/tierlora/tierlora/internal/safetext"

// plainText writes control characters out, all but line breaks and tabs: names of files may hold what steers a terminal.
func plainText(s string) string { return safetext.Plain(s) }
