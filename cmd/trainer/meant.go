package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// keyMeant is the path of the configuration key that a name stands for, here or in another program; "" = none.
func keyMeant(name string) string {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if k, rest := schema.find(plain); k != schema && rest == "" && k.kind != kindSection {
		return k.path
	}
	if own := ownPath(plain); own != "" {
		return own
	}
	if c := foreign[plain]; c.Say == "" && !strings.Contains(c.Key, "[]") {
		return c.Key
	}
	return ""
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
