package main

import (
	"bufio"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/train/objective"
)

// pageRows is how many rows a page shows where -n is not given: a person reads more there than in a terminal.
const pageRows = 20

// usualTokenCost is that of a model with a hidden size of 2,048, by which the batches of a step are made even for the report.
const usualTokenCost = 6 * 2048

func newInspectData(c *console) *cobra.Command {
	var o configOptions
	var count, first int
	var asJSON bool
	var page string
	cmd := &cobra.Command{
		Use:   "data FILE [-n 5]",
		Short: "Show rows as the model sees them: each token, whose message it is, and whether it is trained",
		Long: `Show rows as the model sees them: each token, whose message it is, and whether it is trained.

A terminal shows the text with trained tokens underlined; a pipe, or a terminal with NO_COLOR, gets a line for each
token. --html writes a page that needs no network.`,
		Example: `  trainer inspect data --config cpu_stories_quick.yaml
  trainer inspect data run.yaml --html rows.html
  trainer inspect data run.yaml --rows 2 --json`,
		Args: o.argument,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || first < 0 {
				return usage(fmt.Errorf("-n %d --first %d: show at least one row, from row 0 on", count, first))
			}
			if cmd.Flags().Changed("html") {
				if asJSON {
					return usage(fmt.Errorf("--html and --json: give one of them"))
				}
				if err := checkPage(page, pageMark); err != nil {
					return usage(fmt.Errorf("--html %s: %w", words.ShellQuote(page), err))
				}
				if !cmd.Flags().Changed("rows") {
					count = pageRows
				}
			}
			loaded, err := o.load(c)
			if err != nil {
				return err
			}
			env := environment(c, 0)
			tok, folder, err := openTokenizer(cmd.Context(), loaded.Spec.BaseModel, env)
			if err != nil {
				return err
			}
			set, report, err := openData(cmd.Context(), loaded.Spec, tok, folder, env)
			if err != nil {
				return err
			}
			if loader, err := set.TrainLoader(loaded.Spec.Training.BatchSize); err == nil { // what is wrong with it, training says
				if ranks, err := loaded.Spec.RanksAsked(); err == nil {
					loader.Even(ranks*loaded.Spec.Training.GradientAccumulationSteps, usualTokenCost)
				}
				loader.ChooseBudgets(loader.Batches(0), dataset.MaxBudgets)
				report.Batches = loader.Report()
			}
			rows := set.Train.Len() + set.Val.Len()
			if first >= rows {
				return usage(fmt.Errorf("--first %d: there are %d rows", first, rows))
			}
			shown, err := set.Look(cmd.Context(), first, count, tok)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return writeJSON(c.out, shown)
			case page != "":
				return c.writePage(page, dataPage{Title: o.config, Model: loaded.Spec.BaseModel, Report: report, Rows: shown, First: first, All: rows})
			}
			w := bufio.NewWriter(coloured(c.out))
			fmt.Fprintln(w, plainText(report.String()))
			of := loaded.Spec.Training.Objective
			if err := objective.CheckRows(of, objective.Config{}, report); err != nil {
				fmt.Fprintf(w, "training refuses these rows: %s\n", plainText(err.Error()))
			}
			showRows(w, shown, mayColour(c.out))
			return w.Flush()
		},
	}
	o.register(cmd)
	c.downloadFlag(cmd)
	cmd.Flags().IntVarP(&count, "rows", "n", 5, fmt.Sprintf("rows to show; %d with --html", pageRows))
	cmd.Flags().IntVar(&first, "first", 0, "first row to show; validation rows come after the training rows")
	pathVar(cmd, &page, "html", "", "write the rows as a page, `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
