// Databench is our side of scripts/bench/data.py: it prepares a data file as a run does, up to the packed sequences of
// the first epoch, and prints what that took as JSON. With -deal it goes on as a run's loop does, and times the
// batches: those of a set whose tokens are ready, or with -stream of rows that are tokenised on the way.
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
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
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
	batches := flag.Int("deal", 0, "`BATCHES` to make after that, as the loop does")
	size := flag.Int("batch-size", 1, "packed sequences of a batch")
	flag.BoolVar(&cfg.Streaming, "stream", false, "tokenise rows as batches are made")
	profile := flag.String("cpuprofile", "", "`FILE` for a profile")
	shown := flag.Bool("progress", false, "print progress")
	flag.Parse()
	cfg.Packing, cfg.Seed = true, 42
	if *shown {
		cfg.Progress = func(p dataset.Progress) {
			fmt.Fprintf(os.Stderr, "\r%s %d rows, %.2f GB, %.1f MB/s, left %v   ", p.Doing, p.Rows,
				float64(p.Bytes)/1e9, p.PerSecond()/1e6, p.Left().Round(time.Second))
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
	begin, used := time.Now(), cpuSeconds()
	set, report, err := dataset.Load(context.Background(), cfg, tok)
	if err != nil {
		return err
	}
	loaded := time.Since(begin)
	loader, err := set.TrainLoader(*size)
	if err != nil {
		return err
	}
	defer loader.Close()
	sequences := loader.Batches(0)
	total := time.Since(begin)
	fmt.Fprintln(os.Stderr, report)
	from, spent := begin, used // rows of a stream are read ahead: what that takes is a part of it
	if !cfg.Streaming {
		from, spent = time.Now(), cpuSeconds()
	}
	made, err := deal(loader, *batches, from, spent)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"deal": made, "seconds": total.Seconds(), "load_seconds": loaded.Seconds(), "rows": report.Kept,
		"tokens":  report.TotalTokens,
		"trained": report.TrainedTokens, "cut": report.CutTokens, "sequences": sequences, "peak": peak(),
	})
}
