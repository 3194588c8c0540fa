// Plantable makes the tables of docs/GPU.md, docs/SHARDING.md and docs/CONTEXT.md: for each release of releases.json.gz
// and each card the longest sequence that a QLoRA run trains, and the layout that the planner chooses for it; with
// -sharding the same for several cards that hold a slice of the base model each, with -context for several that share
// the tokens of each sequence. It reads configurations alone and needs no GPU.
//
//	go run ./scripts/plantable [-only NAME] [-optimizer NAME] [-update docs/GPU.md]
//	go run ./scripts/plantable -sharding [-only NAME] [-update docs/SHARDING.md]
//	go run ./scripts/plantable -context [-update docs/CONTEXT.md]
package main

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/train"
)

// packedReleases are facts of the releases' config.json, packed by gzip.
//
//go:embed releases.json.gz
var packedReleases []byte

// readReleases returns the releases of releases.json.gz.
func readReleases() (all []release, err error) {
	z, err := gzip.NewReader(bytes.NewReader(packedReleases))
	if err == nil {
		err = json.NewDecoder(z).Decode(&all)
	}
	if err != nil {
		return nil, fmt.Errorf("releases.json.gz: %w", err)
	}
	return all, nil
}

// release is a line of releases.json.gz; File, from the root of the repository, stands for Config.
type release struct {
	Name   string
	Source string
	Config json.RawMessage
	File   string
}

// column is a card of a table.
type column struct{ gigabytes, chip string }

// cards are the columns: one of each size that people have.
var cards = []column{{"8", "4060"}, {"12", "3060"}, {"16", "4080"}, {"24", "4090"}, {"48", "l40s"}, {"80", "h100"}}

// optimizer is that of the runs.
var optimizer = train.DefaultSpec().Training.Optimizer

// longest is the most tokens that are tried.
const longest = 1 << 17

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "plantable:", err)
		os.Exit(1)
	}
}

func run() error {
	update := flag.String("update", "", "replace the table in this `FILE` instead of printing it")
	only := flag.String("only", "",
		"releases whose name has this `PART`; with -update the rows of others stay as they are")
	sharding := flag.Bool("sharding", false, "plan for several cards that hold the base model in slices")
	context := flag.Bool("context", false, "plan for several cards that share each sequence")
	flag.StringVar(&optimizer, "optimizer", optimizer, "plan with this training.optimizer")
	flag.Parse()
	all, err := readReleases()
	if err != nil {
		return err
	}
	switch {
	case *sharding:
		return shardingTable(all, *only, *update)
	case *context:
		return contextTable(all, *update)
	}
	old, err := oldRows(*update)
	if err != nil {
		return err
	}
	rows := make([]string, len(all))
	problems := make([]error, len(all))
	turn := make(chan int)
	done := make(chan struct{})
	for range min(runtime.NumCPU(), 4) {
		go func() {
			for i := range turn {
				rows[i], problems[i] = all[i].row()
				fmt.Fprint(os.Stderr, rows[i])
			}
			done <- struct{}{}
		}()
	}
	for i, r := range all {
		if strings.Contains(r.Name, *only) {
			turn <- i
		} else {
			rows[i] = old[r.Name]
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
		if problems[i] != nil { // a family that this program does not have
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

// oldRows are the lines of a table by the release they are of.
func oldRows(file string) (map[string]string, error) {
	rows := map[string]string{}
	if file == "" {
		return rows, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, table, _ := strings.Cut(string(text), begin)
	table, _, _ = strings.Cut(table, end)
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			rows[strings.TrimSpace(cells[1])] = line
		}
	}
	return rows, nil
}

// row is a release's line of the table.
func (r release) row() (string, error) {
	of, done, err := r.search(1, []string{"all-linear"})
	if err != nil {
		return "", err
	}
	defer done()
	line := ""
	for _, c := range cards {
		cell, err := of.cell(c.chip)
		if err != nil {
			return "", fmt.Errorf("%s GB: %w", c.gigabytes, err)
		}
		line += cell
	}
	size, err := sizes(of.config)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("| %s | %s |%s\n", r.Name, size, line), nil
}

// cell is the longest sequence on a card, as the table has it.
func (s *search) cell(chip string) (string, error) {
	tokens, mark, err := s.on(chip)
	if err != nil || tokens == 0 {
		return " – |", err
	}
	return fmt.Sprintf(" %d %s |", tokens, mark), nil
}

// raw is the release's config.json.
func (r release) raw() ([]byte, error) {
	if r.File != "" {
		return os.ReadFile(filepath.FromSlash(r.File))
	}
	return r.Config, nil
}

// search opens the release's configuration in a folder of its own, until done.
func (r release) search(devices int, targets []string) (of *search, done func(), err error) {
	raw, err := r.raw()
	if err != nil {
		return nil, nil, err
	}
	config, err := families.ParseConfig(raw)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "plantable")
	if err != nil {
		return nil, nil, err
	}
	done = func() { os.RemoveAll(dir) } //nolint:errcheck // a temporary folder
	err = errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600),
		os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokenizer), 0o600))
	if err == nil {
		of, err = newSearch(dir, config, devices, targets)
	}
	if err != nil {
		done()
	}
	return of, done, err
}

// lengths are those tried: eight to each doubling, whole multiples of 512.
func lengths(most int) []int {
	var all []int
	for n, by := 512, 512; n <= most; n += by {
		if n == 16*by {
			by *= 2
		}
		all = append(all, n)
	}
	return all
}

func billions(n int64) string {
	if n < 9995e5 {
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
