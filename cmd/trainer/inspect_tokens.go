package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/internal/regular"
)

// tokensJSON is the output of inspect tokens --json.
type tokensJSON struct {
	IDs     []int32  `json:"ids"`
	Pieces  []string `json:"pieces"`  // tokens as the vocabulary spells them
	Offsets [][2]int `json:"offsets"` // half-open ranges of code points
}

func newInspectTokens(c *console) *cobra.Command {
	var dir, file string
	var special, asJSON bool
	cmd := &cobra.Command{
		Use:   "tokens --tokenizer DIR --text-file FILE",
		Short: "Print the tokens of a text: ids, pieces and offsets",
		Example: `  trainer inspect tokens --tokenizer embedded:stories260K --text-file story.txt
  echo "Once upon a time" | trainer inspect tokens --tokenizer embedded:stories260K --text-file -`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" || file == "" {
				return usage(
					errors.New("name a tokenizer and a text: --tokenizer DIR --text-file FILE (- is standard input)"))
			}
			text, err := readText(c, file)
			if err != nil {
				return usage(err)
			}
			tok, _, err := openTokenizer(cmd.Context(), dir, environment(c, 0))
			if err != nil {
				return err
			}
			e := tok.Encode(text, special)
			w := bufio.NewWriter(c.out)
			if asJSON {
				answer := tokensJSON{e.IDs, e.Tokens, e.Offsets}
				if len(e.IDs) == 0 {
					answer = tokensJSON{[]int32{}, []string{}, [][2]int{}}
				}
				enc := json.NewEncoder(w) // not indented: one line per number would make long texts unreadable
				enc.SetEscapeHTML(false)
				if err := enc.Encode(answer); err != nil {
					return fmt.Errorf("write JSON: %w", err)
				}
				return w.Flush()
			}
			for i, id := range e.IDs {
				fmt.Fprintf(w, "%6d  %6d  %-16q  %d-%d\n", i, id, e.Tokens[i], e.Offsets[i][0], e.Offsets[i][1])
			}
			return w.Flush()
		},
	}
	pathVar(cmd, &dir, "tokenizer", "", "model `DIR` with a tokenizer, hub name, or embedded:NAME")
	pathVar(cmd, &file, "text-file", "", "`FILE` with the text; - reads standard input")
	c.downloadFlag(cmd)
	cmd.Flags().BoolVar(&special, "add-special-tokens", false,
		"add the special tokens that the tokenizer puts around a text")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// readText reads a whole file, or standard input for "-". It must be UTF-8.
func readText(c *console, file string) (string, error) {
	var data []byte
	var err error
	if file == "-" {
		data, err = io.ReadAll(c.in)
	} else {
		if err = regular.CheckPath(file); err == nil {
			data, err = os.ReadFile(file)
		}
	}
	if err != nil {
		return "", fmt.Errorf("read text: %w", err)
	}
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return "", fmt.Errorf("read text: %s is not UTF-8: byte %d is 0x%02x", file, i, data[i])
		}
		i += n
	}
	return string(data), nil
}
