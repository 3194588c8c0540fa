// Plantable makes the table of docs/MEMORY.md: for each release of releases.json and each card the longest sequence that a QLoRA
// run trains, and the layout that the planner chooses for it. It reads configurations alone and needs no GPU; build it with the tag
// gpu.
//
//	go run -tags gpu ./scripts/plantable [-only NAME] [-update docs/MEMORY.md]
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
)

// releases are facts of the releases' config.json.
//
//go:embed releases.json
var releases []byte

// release is a line of releases.json; File, from the root of the repository, stands for Config.
type release struct {
	Name   string
	Source string
	Config json.RawMessage
	File   string
}

// cards are the columns: one of each size that people have.
var cards = []struct{ gigabytes, chip string }{{"8", "4060"}, {"12", "3060"}, {"16", "4080"}, {"24", "4090"}, {"48", "l40s"}, {"80", "h100"}}

const (
	step    = 512     // lengths are whole multiples of it
	longest = 1 << 17 // and not above this
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "plantable:", err)
		os.Exit(1)
	}
}

func run() error {
	update := flag.String("update", "", "replace the table in this `FILE` instead of printing it")
	only := flag.String("only", "", "releases whose name has this `PART`")
	flag.Parse()
	if !graph.GPUBuilt {
		return errors.New("build with -tags gpu (make kernels first): plans for GPUs need it")
	}
	var all []release
	if err := json.Unmarshal(releases, &all); err != nil {
		return fmt.Errorf("releases.json: %w", err)
	}
	rows := make([]string, len(all))
	problems := make([]error, len(all))
	turn := make(chan int)
	done := make(chan struct{})
	for range min(runtime.NumCPU(), 4) {
		go func() {
			for i := range turn {
				rows[i], problems[i] = all[i].row()
			}
			done <- struct{}{}
		}()
	}
	for i, r := range all {
		if strings.Contains(r.Name, *only) {
			turn <- i
		}
	}
	close(turn)
	for range min(runtime.NumCPU(), 4) {
		<-done
	}
	var b strings.Builder
	b.WriteString("| Release | Parameters |")
	for _, c := range cards {
		fmt.Fprintf(&b, " %s GB |", c.gigabytes)
	}
	b.WriteString("\n|---|---:|" + strings.Repeat("---:|", len(cards)) + "\n")
	for i, r := range all {
		if problems[i] != nil {
			fmt.Fprintf(os.Stderr, "left out: %s: %v\n", r.Name, problems[i])
			continue
		}
		b.WriteString(rows[i])
	}
	if *update == "" {
		fmt.Print(b.String())
		return nil
	}
	return replaceTable(*update, b.String())
}

// row is a release's line of the table.
func (r release) row() (string, error) {
	raw := []byte(r.Config)
	if r.File != "" {
		var err error
		if raw, err = os.ReadFile(filepath.FromSlash(r.File)); err != nil {
			return "", err
		}
	}
	config, err := families.ParseConfig(raw)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "plantable")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600), os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokenizer), 0o600)); err != nil {
		return "", err
	}
	line, fits, parameters := "", 0, int64(0)
	for _, c := range cards {
		cell := "–"
		var report train.PlanReport
		if fits, report, err = longestOn(dir, config, c.chip, fits); err != nil {
			return "", fmt.Errorf("%s GB: %w", c.gigabytes, err)
		}
		if fits > 0 {
			cell, parameters = fmt.Sprintf("%d %s", fits, layout(report, config)), report.Parameters-report.TrainedParameters
		}
		line += " " + cell + " |"
	}
	return fmt.Sprintf("| %s | %s |%s\n", r.Name, billions(parameters), line), nil
}

// longestOn is the longest sequence that fits on a card, at least as long as one known to fit; 0 for none.
func longestOn(dir string, config model.Config, chip string, known int) (int, train.PlanReport, error) {
	plan := func(tokens int) (train.PlanReport, bool, error) {
		r, err := planFor(dir, chip, tokens)
		if errors.Is(err, session.ErrDoesNotFit) {
			return r, false, nil
		}
		return r, err == nil, err
	}
	low, high := known/step, min(config.MaxPositions, longest)/step
	var best train.PlanReport
	for low < high || low > 0 && best.Model == "" {
		try := (low + high + 1) / 2
		r, ok, err := plan(try * step)
		switch {
		case err != nil:
			return 0, r, err
		case ok:
			low, best = try, r
		default:
			high = try - 1
		}
	}
	return low * step, best, nil
}

// planFor plans a QLoRA run of rank 16 on all linear layers, one sequence of that many tokens a step.
func planFor(dir, chip string, tokens int) (train.PlanReport, error) {
	data := filepath.Join(dir, fmt.Sprintf("%d.jsonl", tokens))
	ids := "[0" + strings.Repeat(",0", tokens-1) + "]"
	if err := os.WriteFile(data, []byte(`{"input_ids":`+ids+`,"labels":`+ids+"}\n"), 0o600); err != nil {
		return train.PlanReport{}, err
	}
	s := train.DefaultSpec()
	stored := quant.Default()
	s.BaseModel, s.Adapter, s.Quantization, s.Device = dir, "qlora", &stored, "cuda"
	s.LoRA.R, s.LoRA.Alpha, s.LoRA.TargetModules = 16, 16, []string{"all-linear"}
	s.Dataset.Path, s.Dataset.Format, s.Dataset.MaxLength, s.Dataset.CacheDir = data, "tokenized", tokens, ""
	s.Training.MaxSteps = 1
	of, err := graph.FindChip(chip)
	if err != nil {
		return train.PlanReport{}, err
	}
	return train.PlanFor(context.Background(), s, train.Env{}, of)
}

// layout is a mark for how the step is laid out.
func layout(r train.PlanReport, c model.Config) string {
	mark := map[string]string{"none": "n", "selective": "s", "full": "f", "offload": "o"}[r.Checkpointing]
	for _, n := range r.Notes {
		if strings.Contains(n, "rows at a time") {
			mark += "r"
		}
	}
	return mark
}

func billions(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.0f M", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f B", float64(n)/1e9)
}

// The table stands between these lines.
const begin, end = "<!-- plantable: begin -->\n", "<!-- plantable: end -->\n"

func replaceTable(file, table string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(text, []byte(begin))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s: the lines around the table are not there", file)
	}
	return os.WriteFile(file, []byte(string(head)+begin+table+end+string(tail)), 0o644)
}

// tokenizer stands for the release's: the rows are tokens already.
const tokenizer = `{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{"a":0,"<s>":1,"</s>":2,"<pad>":3},"merges":[]}}`
