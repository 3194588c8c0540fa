//go:build gpu

package bench

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// leaving compiles without some passes.
type leaving struct {
	graph.Machine
	passes []string
}

func (l leaving) Compile(b *graph.Builder, outputs ...*graph.Value) (*graph.Plan, error) {
	b.Without(l.passes...)
	return l.Machine.Compile(b, outputs...)
}

// decodeForms are the passes that a decode step is timed without.
var decodeForms = []struct {
	name    string
	without []string
}{
	{"none", []string{"fuse rotations and caches", "share rows", "begin early", "begin early at joins"}},
	{"caches", []string{"share rows", "begin early", "begin early at joins"}},
	{"shared", []string{"fuse rotations and caches", "begin early", "begin early at joins"}},
	{"caches+shared", []string{"begin early", "begin early at joins"}},
	{"early", []string{"fuse rotations and caches", "share rows", "begin early at joins"}},
	{"early+joins", []string{"fuse rotations and caches", "share rows"}},
	{"caches+early", []string{"share rows", "begin early at joins"}},
	{"caches+shared+early", []string{"begin early at joins"}},
	{"all", nil},
}

// TestGPUDecodeForms: every way to make a decode step gives the same bits, and how long each takes. TRAINER_DECODE
// names the model's shape, the storage (bf16 or nf4), the tokens that a sequence holds and the forms, such as
// tinyllama-1.1b,nf4,512,none,all.
func TestGPUDecodeForms(t *testing.T) {
	gputest.Need(t)
	shape, storages, held, names := "smollm2-135m", []string{"bf16", "nf4"}, 130, []string(nil)
	if asked := strings.Split(os.Getenv("TRAINER_DECODE"), ","); len(asked) >= 2 {
		shape, storages, held, names = asked[0], asked[1:2], 512, asked[2:]
	}
	cfg, err := Shape(shape)
	if err != nil {
		t.Fatal(err)
	}
	build, err := families.For(cfg)
	if err != nil {
		t.Fatal(err)
	}
	on, err := session.OpenMachine("cuda", "bf16", session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { err = errors.Join(err, on.Close()) }()
	ctx, random := context.Background(), newRandomWeights()
	sizes := []int{1, 8, 40, 200}
	for _, storage := range storages {
		nw := session.Network{Config: cfg, Build: build, Float: kernel.F32}
		if storage == "nf4" {
			q := quant.Default()
			nw.Scheme = &q
		}
		first := map[int][]float32{}
		for _, f := range decodeForms {
			if len(names) > 0 && !slices.Contains(names, f.name) {
				continue
			}
			rounds, err := infer.NewRounds(nw, leaving{on, f.without}, slices.Max(sizes), held+1, func(p *session.Program, m graph.Store) error {
				return p.Net.Load(ctx, random, m, on.Workers())
			})
			if err != nil {
				t.Errorf("%s, %s: %v", storage, f.name, err)
				continue
			}
			for slot := range slices.Max(sizes) {
				ids := make([]int32, held)
				for i := range ids {
					ids[i] = int32((slot*7919 + i*31) % cfg.VocabSize)
				}
				if err := rounds.Read(ctx, slot, ids); err != nil {
					t.Fatal(err)
				}
			}
			for _, n := range sizes {
				var got []float32
				if err := rounds.Logits(n, held, func(_ int, row []float32) error { got = append(got, row...); return nil }); err != nil {
					t.Fatalf("%s, %s: %v", storage, f.name, err)
				}
				if first[n] == nil {
					first[n] = slices.Clone(got)
				} else if !slices.Equal(got, first[n]) {
					t.Errorf("%s, %s, %d sequences: logits differ from those of the first form", storage, f.name, n)
				}
				if !slices.Equal(got[:cfg.VocabSize], first[sizes[0]][:cfg.VocabSize]) {
					t.Errorf("%s, %s: the first of %d sequences has other logits than alone", storage, f.name, n)
				}
				const steps = 60
				times := make([]float64, 0, steps)
				for step := range steps + 10 {
					began := time.Now()
					if err := rounds.Next(n, held); err != nil {
						t.Fatal(err)
					}
					if step >= 10 {
						times = append(times, ms(time.Since(began)))
					}
				}
				slices.Sort(times)
				began := time.Now()
				if err := rounds.Again(n, steps); err != nil {
					t.Fatal(err)
				}
				device, whole := ms(time.Since(began))/steps, times[steps/2]
				t.Logf("%s %s %-20s %3d sequences: %.3f ms a round, %.3f of them on the device, %.0f tokens/s", shape, storage, f.name, n, whole, device, 1e3*float64(n)/whole)
			}
			if err := rounds.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
