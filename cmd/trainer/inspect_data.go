package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
)

// Escape sequences of a terminal.
const (
	colourTrained = "\x1b[32m" // green
	colourMasked  = "\x1b[2m"  // faint
	colourOff     = "\x1b[0m"
)

type rowJSON struct {
	Where   string          `json:"where"`
	Split   string          `json:"split"` // train or val
	Trained int             `json:"trained_tokens"`
	Tokens  []dataset.Token `json:"tokens"`
}

func newInspectData(c *console) *cobra.Command {
	var o configOptions
	var count, first int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "data FILE [-n 5]",
		Short: "Show rows as the model sees them: each token, and whether it is trained",
		Example: `  trainer inspect data --config cpu_stories_quick.yaml
  trainer inspect data run.yaml --rows 2 --json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || first < 0 {
				return usage(fmt.Errorf("-n %d --first %d: show at least one row, from row 0 on", count, first))
			}
			config, err := o.load(c)
			if err != nil {
				return err
			}
			tok, folder, err := openTokenizer(cmd.Context(), config.Spec.BaseModel, environment(c, 0))
			if err != nil {
				return err
			}
			set, report, err := openData(cmd.Context(), config.Spec, tok, folder, c.reading())
			if err != nil {
				return err
			}
			rows := set.Train.Len() + set.Val.Len()
			if first >= rows {
				return usage(fmt.Errorf("--first %d: there are %d rows", first, rows))
			}
			var shown []rowJSON
			for i := first; i < min(first+count, rows); i++ {
				row, tokens, err := set.Inspect(i, tok)
				if err != nil {
					return err
				}
				split := "train"
				if i >= set.Train.Len() {
					split = "val"
				}
				shown = append(shown, rowJSON{row.Where(), split, row.Trained(), tokens})
			}
			if asJSON {
				return writeJSON(c.out, shown)
			}
			w := bufio.NewWriter(c.out)
			fmt.Fprintln(w, report)
			for _, r := range shown {
				fmt.Fprintf(w, "\n%s (%s): %d tokens, %d trained\n", r.Where, r.Split, len(r.Tokens), r.Trained)
				if mayColour(c.out) {
					colourRow(w, r)
				} else {
					plainRow(w, r)
				}
			}
			return w.Flush()
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().IntVarP(&count, "rows", "n", 5, "rows to show")
	cmd.Flags().IntVar(&first, "first", 0, "first row to show; validation rows come after the training rows")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// plainRow writes a token a line.
func plainRow(w io.Writer, r rowJSON) {
	for i, t := range r.Tokens {
		mark := "masked"
		if t.Trained {
			mark = "trained"
		}
		fmt.Fprintf(w, "%6d  %6d  %-16s  %s\n", i, t.ID, strconv.Quote(t.Piece), mark)
	}
}

// colourRow writes the tokens one after the other, trained ones green, masked ones faint, with a bar between.
func colourRow(w io.Writer, r rowJSON) {
	for _, t := range r.Tokens {
		colour := colourMasked
		if t.Trained {
			colour = colourTrained
		}
		piece := strings.Trim(strconv.Quote(t.Piece), `"`) // a piece must not steer the terminal
		fmt.Fprintf(w, "%s%s%s|", colour, piece, colourOff)
	}
	fmt.Fprintln(w)
}
