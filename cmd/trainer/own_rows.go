package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/export"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/replay"
)

// How much of a run's rows is compared: this many rows unless --own-rows sets another number, each truncated to this
// many tokens, and in all as many tokens as this many floating-point operations allow, within bounds.
const (
	defaultOwnRows  = 16
	longestOwnRow   = 1024
	leastOwnTokens  = 256
	mostOwnTokens   = 4096
	ownRowsOperates = 1e13
)

// checkFlags holds the flags that select the texts on which merged weights are compared with base and adapter.
type checkFlags struct {
	text string // a file; "" = DefaultCheck, none = no comparison
	rows int    // rows of the adapter's run
}

func (f *checkFlags) register(cmd *cobra.Command) {
	pathVar(cmd, &f.text, "check-text", "",
		"text `FILE` to compare logits on, instead of a few built-in sentences; none = no comparison at all")
	cmd.Flags().IntVar(&f.rows, "own-rows", defaultOwnRows,
		"compare on at most `N` held-out rows of the adapter's run; 0 = none")
}

// texts returns the texts of --check-text; nil = DefaultCheck, empty = none.
func (f *checkFlags) texts() ([]string, error) {
	if f.rows < 0 {
		return nil, fmt.Errorf("--own-rows %d: want 0 or more", f.rows)
	}
	switch f.text {
	case "":
		return nil, nil
	case "none":
		f.rows = 0
		return []string{}, nil
	}
	raw, err := regular.ReadFile(f.text)
	if err != nil {
		return nil, fmt.Errorf("--check-text: %w", err)
	}
	if len(raw) > 1<<20 {
		return nil, fmt.Errorf("--check-text %s has %d bytes; at most 1 MiB is read", f.text, len(raw))
	}
	return []string{string(raw)}, nil
}

// ownRows reads rows that an adapter's run held out, or trained on if it held out none. A problem is reported in the
// result in place of rows.
func (f *checkFlags) ownRows(ctx context.Context, env session.Env, model, adapter string) export.OwnRows {
	if f.rows == 0 {
		return export.OwnRows{}
	}
	missing := func(format string, args ...any) export.OwnRows {
		return export.OwnRows{Missing: fmt.Sprintf(format, args...)}
	}
	run, folder, ok, err := runConfig(adapter)
	switch {
	case err != nil:
		return missing("%v", err)
	case !ok:
		return missing("%s has no %s that names the data it was trained on", adapter, train.ConfigFile)
	case run.Spec.Dataset.Streaming:
		return missing("the run streamed its data (dataset.streaming)")
	}
	env.Log = nil // the run's log describes the data
	s, err := session.Open(ctx, session.Options{Model: model, Device: "cpu"}, env)
	if err != nil {
		return missing("%v", err)
	}
	defer s.Close() //nolint:errcheck // it was only read
	set, _, err := s.LoadData(ctx, run.Spec.Dataset, run.Spec.Seed)
	if errors.Is(err, fs.ErrNotExist) {
		return missing("the data that the run trained on is not there any more (%v); a relative path starts at the "+
			"working folder", err)
	}
	if err != nil {
		return missing("%v", err)
	}
	was, err := replay.ReadManifest(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return missing("%v", err)
	}
	if loader, err := set.TrainLoader(run.Spec.Training.BatchSize); err == nil && was.Data != "" &&
		loader.State().Data != was.Data {
		return missing(
			"the data has changed since the run: its tokens and labels have another hash than %s has (data_sha256)",
			replay.ManifestFile)
	}
	rows, which := set.Val, "validation rows"
	if rows.Len() == 0 {
		rows, which = set.Train, "training rows (the run held none out)"
	}
	return pickRows(s, rows, f.rows, run.Spec.Dataset.Title()+", "+which)
}

// pickRows returns at most n rows, evenly spread.
func pickRows(s *session.Session, rows dataset.Rows, n int, title string) export.OwnRows {
	own := export.OwnRows{Data: title}
	var numbers float64
	for _, name := range s.Base.Tensors().Names() {
		t, _ := s.Base.Tensors().Tensor(name)
		numbers += float64(t.Len())
	}
	budget := max(leastOwnTokens, min(mostOwnTokens, int(ownRowsOperates/(2*max(1, numbers)))))
	n = min(n, rows.Len())
	for i := range n {
		row := rows.Row(i * rows.Len() / n)
		keep := min(len(row.IDs), longestOwnRow, s.Base.Config.MaxPositions, budget)
		trained := 0
		for k := 1; k < keep; k++ {
			if row.Labels[k] != dataset.Ignore {
				trained++
			}
		}
		if trained == 0 {
			continue
		}
		own.IDs, own.Labels = append(own.IDs, row.IDs[:keep]), append(own.Labels, row.Labels[:keep])
		if budget -= keep; budget < 2 {
			break
		}
	}
	if len(own.IDs) == 0 {
		own.Missing = "no row of " + title + " has a trained token within its first " +
			fmt.Sprint(longestOwnRow) + " tokens"
	}
	return own
}
