package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// DecodeOptions describe a benchmark of generation: a model known only by its sizes, random weights and tokens.
type DecodeOptions struct {
	Measure
	Shape        string
	Slots        []int // numbers of concurrent sequences, one line of the report each
	Length       int   // tokens that each sequence has already
	Quantization *quant.Config
	Device       string
	Precision    string
}

// DecodeReport has the times of generation.
type DecodeReport struct {
	Device    string `json:"device"`
	Precision string `json:"precision"`
	Shape     string `json:"shape"`
	Weights   string `json:"weights"` // how the weights are stored
	Length    int    `json:"length"`
	Held      int64  `json:"held_bytes"`
	// Bytes of weights that each round reads at least, in addition to the cache.
	Read     int64           `json:"read_bytes"`
	Cache    int64           `json:"cache_bytes_a_sequence"`
	Ceilings graph.Ceilings  `json:"ceilings"`
	Prompt   float64         `json:"prompt_tokens_per_s"` // throughput of one prompt of Length tokens
	Rounds   []DecodeRound   `json:"rounds"`
	Calls    [][]ProfileLine `json:"calls"` // calls of each of Rounds, run one after the other
}

// DecodeRound is a round that generates one token for each of some sequences.
type DecodeRound struct {
	Slots   int     `json:"slots"`
	Ms      float64 `json:"ms"` // median, including reading the logits and choosing the likeliest tokens
	Fastest float64 `json:"fastest_ms"`
	Slowest float64 `json:"slowest_ms"`
	Tokens  float64 `json:"tokens_per_s"` // throughput of all sequences
	Least   float64 `json:"bound_ms"`     // time to read weights and caches once, at the rate of a copy
	Percent float64 `json:"percent_of_bound"`
}

// Decode times generation.
func Decode(ctx context.Context, o DecodeOptions, env session.Env) (r DecodeReport, err error) {
	cfg, err := Shape(o.Shape)
	if err != nil {
		return r, err
	}
	build, err := families.For(cfg)
	if err != nil {
		return r, err
	}
	maxLen := o.Length + 1
	if maxLen > cfg.MaxPositions {
		return r, fmt.Errorf("bench: %d tokens and one more are above the %d positions of %s", o.Length, cfg.MaxPositions, o.Shape)
	}
	on, err := session.OpenMachine(o.Device, o.Precision, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	nw := session.Network{Config: cfg, Build: build, Float: kernel.F32, Scheme: o.Quantization}
	random := newRandomWeights()
	rounds, err := infer.NewRounds(nw, on, slices.Max(o.Slots), maxLen, func(p *session.Program, m graph.Store) error {
		return p.Net.Load(ctx, random, m, on.Workers())
	})
	if err != nil {
		return r, err
	}
	r = DecodeReport{Device: on.Name(), Precision: on.Precision().String(), Shape: o.Shape, Weights: "as numbers", Length: o.Length, Held: rounds.Bytes().Total()}
	if o.Quantization != nil {
		r.Weights = o.Quantization.Type
	}
	r.Read, r.Cache = readBytes(cfg, rounds.Bytes(), on), rounds.Bytes().State["kv cache"]/int64(slices.Max(o.Slots))
	profiles := make([]*profiler, len(o.Slots))
	if err := o.rounds(ctx, rounds, &r, profiles); err != nil {
		return r, errors.Join(err, rounds.Close())
	}
	if err := rounds.Close(); err != nil { // frees memory for the ceilings
		return r, err
	}
	if r.Ceilings, err = graph.Measure(on); err != nil {
		return r, err
	}
	for i := range r.Rounds {
		round := &r.Rounds[i]
		round.Least = 1e3 * float64(r.Read+int64(round.Slots)*r.Cache) / r.Ceilings.Copy
		round.Percent = 100 * round.Least / round.Ms
		r.Calls = append(r.Calls, profiles[i].sum(r.Ceilings, func(t graph.CallTime) string { return t.Line() }))
	}
	return r, nil
}

// rounds times prompts and rounds.
func (o DecodeOptions) rounds(ctx context.Context, rounds *infer.Rounds, r *DecodeReport, profiles []*profiler) error {
	ids := make([]int32, o.Length)
	var times []time.Duration
	for i := range slices.Max(o.Slots) + 1 {
		began := time.Now()
		if err := rounds.Read(ctx, i%slices.Max(o.Slots), ids); err != nil {
			return err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	r.Prompt = float64(o.Length) / times[len(times)/2].Seconds()
	for i, n := range o.Slots {
		times := make([]float64, 0, o.Steps)
		for step := range o.Warmup + o.Steps {
			if err := ctx.Err(); err != nil {
				return err
			}
			began := time.Now()
			if err := rounds.Next(n, o.Length); err != nil {
				return err
			}
			if step >= o.Warmup {
				times = append(times, ms(time.Since(began)))
			}
		}
		slices.Sort(times)
		round := DecodeRound{Slots: n, Ms: times[len(times)/2], Fastest: times[0], Slowest: times[len(times)-1]}
		round.Tokens = 1e3 * float64(n) / round.Ms
		r.Rounds = append(r.Rounds, round)
		profiles[i] = newProfiler()
		if o.StepsAlone {
			continue
		}
		for range profileRounds {
			profiles[i].begin()
			if err := rounds.TimeCalls(n, profiles[i].see); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBytes returns the bytes of the weights that a round reads: all except the table of embeddings, unless it is also
// the head, and the tables of rotary angles, because a round only reads rows of these. It counts all experts, because
// many sequences together read all.
func readBytes(cfg model.Config, held graph.Bytes, on graph.Machine) int64 {
	n := held.Frozen
	if !cfg.TieEmbeddings {
		n -= int64(cfg.VocabSize) * int64(cfg.HiddenSize) * int64(on.Precision().Stored(kernel.ComputeType).Size())
	}
	return n
}
