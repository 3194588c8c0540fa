// Databench is our side of scripts/bench/data.py: it prepares a data file as a run does, up to the packed sequences of
// the first epoch, and prints what that took as JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/dataset/chat"
	"github.com/tierlora/tierlora/dataset/tokenizer"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "databench:", err)
		os.Exit(1)
	}
}

func run() error {
	cfg := dataset.Default()
	flag.StringVar(&cfg.Path, "data", "", "data `FILE`")
	flag.StringVar(&cfg.Format, "format", "", "format of its rows")
	flag.StringVar(&cfg.TrainOn, "train-on", cfg.TrainOn, "what of a conversation is trained")
	flag.StringVar(&cfg.OnTruncated, "on-truncated", dataset.TruncatedKeep, "what becomes of longer rows")
	flag.StringVar(&cfg.CacheDir, "cache", "", "`FOLDER` of the token cache; empty = none")
	flag.IntVar(&cfg.MaxLength, "max-length", 1024, "tokens of a sequence")
	flag.IntVar(&cfg.Workers, "workers", 0, "rows at a time; 0 = one for each core")
	model := flag.String("tokenizer", "", "`FOLDER` with the tokenizer")
	profile := flag.String("cpuprofile", "", "`FILE` for a profile")
	shown := flag.Bool("progress", false, "print progress")
	flag.Parse()
	cfg.Packing, cfg.Seed = true, 42
	if *shown {
		cfg.Progress = func(p dataset.Progress) {
			fmt.Fprintf(os.Stderr, "\r%s %d rows, %.2f GB, %.1f MB/s, left %v   ", p.Doing, p.Rows, float64(p.Bytes)/1e9, p.PerSecond()/1e6, p.Left().Round(time.Second))
		}
	}
	cfg.Chat = func() (*chat.Sources, error) { return chat.Find(os.DirFS(*model)) }
	tok, err := tokenizer.Load(*model)
	if err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	begin := time.Now()
	set, report, err := dataset.Load(context.Background(), cfg, tok)
	if err != nil {
		return err
	}
	loaded := time.Since(begin)
	loader, err := set.TrainLoader(1)
	if err != nil {
		return err
	}
	sequences := loader.Batches(0)
	total := time.Since(begin)
	fmt.Fprintln(os.Stderr, report)
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"seconds": total.Seconds(), "load_seconds": loaded.Seconds(), "rows": report.Kept, "tokens": report.TotalTokens,
		"trained": report.TrainedTokens, "cut": report.CutTokens, "sequences": sequences, "peak": peak(),
	})
}
