package main

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// isText refuses what is no UTF-8.
func isText(what, text string) error {
	for i, r := range text {
		if _, n := utf8.DecodeRuneInString(text[i:]); r != utf8.RuneError || n > 1 {
			continue
		}
		if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
			return fmt.Errorf("%s is not UTF-8: it begins as UTF-16 does, which PowerShell and Notepad write; save it as UTF-8", what)
		}
		return fmt.Errorf("%s is not UTF-8: byte %d is 0x%02x", what, i+1, text[i])
	}
	return nil
}

// wordMeant says by which flag a command takes the word that it was given without one.
func wordMeant(cmd *cobra.Command, word string) string {
	has := func(flag string) bool { return cmd.Flags().Lookup(flag) != nil }
	_, err := os.Stat(word)
	switch {
	case has("prompt") && err != nil:
		return "; write a text as --prompt TEXT"
	case has("adapter") && has("model"):
		return "; name an adapter by --adapter DIR, a model by --model DIR"
	case has("model"):
		return "; name a model by --model DIR"
	}
	return ""
}
