//go:build gpu

package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/objective"
	"github.com/tierlora/tierlora/train/step"
)

// envLoad names a model folder for measurements of loading; scripts/bench/load.py makes them.
const envLoad = "TRAINER_LOAD"

// BenchmarkGPULoad times loading a folder: by the device, by the host, and the reading alone.
func BenchmarkGPULoad(b *testing.B) {
	dir := os.Getenv(envLoad)
	if dir == "" {
		b.Skipf("%s is not set: scripts/bench/load.py makes model folders", envLoad)
	}
	from, err := session.OpenBase(context.Background(), dir, session.Env{})
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // read only
	var bytes int64
	for _, name := range from.Weights.Names() {
		x, _ := from.Weights.Tensor(name)
		bytes += int64(len(x.Data))
	}
	scheme := quant.Default()
	lora := adapter.Default()
	lora.TargetModules = adapter.Targets{"q_proj", "k_proj", "v_proj", "o_proj"}
	for _, dequantised := range []bool{false, true} {
		nw := network(b, from, kernel.F32, &scheme, &lora)
		nw.Layout.Dequantised = dequantised
		for _, path := range []string{"read", "device", "host"} {
			b.Run(fmt.Sprintf("%s/dequantised=%v", path, dequantised), func(b *testing.B) {
				b.SetBytes(bytes)
				on := gputest.Open(b) // of this goroutine
				planned, err := step.Plan(nw, session.Shape{Tokens: 512, Sequences: 1, MaxLen: 512},
					train.Default().Step(objective.Of(objective.Default, objective.Config{})), step.Summing{}, on)
				if err != nil {
					b.Fatal(err)
				}
				m, err := on.NewStore(planned.Plan)
				if err != nil {
					b.Fatal(err)
				}
				defer m.Close() //nolint:errcheck // the time is what matters
				b.ResetTimer()
				for range b.N {
					switch path {
					case "read":
						err = planned.Net.Load(context.Background(), session.Reader(from.Weights), discard{m},
							on.Workers())
					case "device":
						err = planned.Net.Load(context.Background(), session.Reader(from.Weights), m, on.Workers())
					case "host":
						err = planned.Net.Load(context.Background(), session.Reader(from.Weights), onHost{m},
							on.Workers())
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// discard is a store that reads weights in pieces and drops them.
type discard struct{ graph.Store }

func (discard) Load(ctx context.Context, all []graph.WeightLoad, workers int) ([]error, error) {
	const piece = 1 << 20
	var next atomic.Int64
	done := make(chan error, workers)
	for range workers {
		go func() {
			buf := make([]byte, piece)
			for {
				k := int(next.Add(1) - 1)
				for _, f := range all {
					n := piece / f.DType.Size()
					if pieces := (f.Elems + n - 1) / n; k >= pieces {
						k -= pieces
						continue
					}
					if err := f.Read(buf[:min(n, f.Elems-k*n)*f.DType.Size()], k*n); err != nil {
						done <- err
						return
					}
					k = -1
					break
				}
				if k >= 0 {
					done <- io.EOF
					return
				}
			}
		}()
	}
	for range workers {
		if err := <-done; !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return make([]error, len(all)), nil
}
