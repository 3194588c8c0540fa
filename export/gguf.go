package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/export/llamacpp"
	"github.com/tierlora/tierlora/internal/rescue"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
)

// pieceNumbers is about how many numbers of a tensor are in memory at a time.
const pieceNumbers = 1 << 22

// ggufModel writes a whole model, with an adapter in its weights where one is named.
func ggufModel(ctx context.Context, o Options, env session.Env) (r Report, err error) {
	c, names, err := openCheckpoint(ctx, o, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.s.Close()) }()
	plan, err := c.plan(o, names)
	if err != nil {
		return r, err
	}
	return writeGGUF(ctx, o.Out, plan, o, env, c)
}

// plan says what the file of a model holds. Where an adapter becomes part of it, the checkpoint's base is the same file
// without it.
func (c *checkpoint) plan(o Options, names []string) (*llamacpp.Plan, error) {
	sources, err := chat.FindFor(c.s.Base.Folder, o.Adapter)
	if err != nil {
		return nil, err
	}
	config := c.s.Base.Config
	config.TieEmbeddings = config.TieEmbeddings && !c.s.Net.UntiedHead()
	model := llamacpp.Model{Name: title(o.Model), Licence: licence(c.s.Base.Folder), Config: config,
		Tokenizer: c.s.Base.Tokenizer, Chat: sources, Source: c, Tensors: names}
	if err := c.pool(&model); err != nil {
		return nil, err
	}
	plan, err := llamacpp.Make(model)
	if err == nil && c.updates != nil {
		model.Source = c.bare()
		c.base, err = llamacpp.Make(model)
	}
	if err == nil && c.over != nil && c.s.Base.Tensors().Quantised() == 0 {
		plan.Notes = append(plan.Notes, "the adapter is added to the weights as they were "+trainedText(*c.over)+
			"; --base original adds it to the model's own")
	}
	return plan, err
}

// pool says how a model without a vocabulary head makes vectors of texts. It refuses a classification head, for which
// llama.cpp has no place.
func (c *checkpoint) pool(m *llamacpp.Model) error {
	switch task := c.s.Net.BaseTask; {
	case task.Type == "":
		return nil
	case task.HasScores():
		return fmt.Errorf("the model has a classification head of %d scores, and llama.cpp has none for model_type "+
			"%s: "+
			"trainer serve --model %s answers /v1/classify, and transformers and vLLM load the folder", task.Labels,
			m.Config.ModelType, c.s.Base.Name)
	}
	pooling, err := adapter.ReadPooling(c.s.Base.Dir)
	if err != nil {
		return err
	}
	m.Config.TieEmbeddings = true // llama.cpp takes the embeddings in place of the head that is not there
	m.Pooling = llamacpp.PoolMean
	if pooling.Last {
		m.Pooling = llamacpp.PoolLast
	}
	return nil
}

// writeGGUF writes the file of a plan.
func writeGGUF(ctx context.Context, path string, plan *llamacpp.Plan, o Options, env session.Env,
	c *checkpoint) (Report, error) {
	stored, err := plan.Store(o.DType)
	if err != nil {
		return Report{}, err
	}
	h := gguf.Header{KVs: plan.KVs, Tensors: stored}
	w := &quantiser{workers: c.s.On.Workers(), errors: map[gguf.Type]*squares{}, keeping: keeping{c: c, base: c.base,
		types: map[string]place{}, lost: map[string]*layerCounts{}, other: map[string]*layerCounts{}}}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return Report{}, err
	}
	err = unfinished(path, func(dir string) error {
		return gguf.Write(ctx, path, dir, h, o.Overwrite, func(i int, out io.Writer) error {
			if err := w.tensor(ctx, i, plan.Tensors[i], stored[i], out); err != nil {
				return fmt.Errorf("tensor %s: %w", stored[i].Name, err)
			}
			return c.s.Base.Weights.Unchanged()
		})
	})
	if errors.Is(err, gguf.ErrExists) {
		return Report{}, errors.New("it is there already; --overwrite replaces a file")
	}
	if err != nil {
		return Report{}, err
	}
	r := Report{Tensors: len(stored), Notes: plan.Notes}
	rounding, notes := w.keeping.report()
	r.Rounding, r.Notes = rounding, append(r.Notes, notes...)
	if c.base != nil {
		drift, notes, err := c.drift(ctx, o, env, &w.keeping)
		if r.Drift, r.Notes = drift, append(r.Notes, notes...); err != nil { // the file is whole
			r.Notes = append(r.Notes, "the logits are not compared: "+err.Error())
		}
	}
	r.Bytes, err = h.Size()
	for _, t := range stored {
		at := slices.IndexFunc(r.Types, func(s StoredTensor) bool { return s.Type == t.Type.String() })
		if at < 0 {
			at = len(r.Types)
			r.Types = append(r.Types, StoredTensor{Type: t.Type.String(), Error: w.errors[t.Type].share()})
		}
		r.Types[at].Tensors++
		r.Types[at].Bytes += t.Bytes()
	}
	slices.SortFunc(r.Types, func(a, b StoredTensor) int { return int(min(1, max(-1, b.Bytes-a.Bytes))) })
	return r, err
}

// squares are sums over the numbers of a type: of their squares, and of the squares of what storing changed.
type squares struct{ numbers, errors float64 }

func (s *squares) share() float64 {
	if s == nil || s.numbers == 0 {
		return 0
	}
	return math.Sqrt(s.errors / s.numbers)
}

// quantiser stores tensors piece by piece.
type quantiser struct {
	workers int
	errors  map[gguf.Type]*squares
	keeping keeping
}

// tensor writes the bytes of tensor i.
func (q *quantiser) tensor(ctx context.Context, i int, from llamacpp.Tensor, to gguf.Tensor, out io.Writer) error {
	width := to.Shape[0]
	rows := to.Len() / width
	step := min(rows, max(1, pieceNumbers/width))
	x := make([]float32, step*width)
	rowBytes := width / to.Type.Block() * to.Type.BlockBytes()
	y := make([]byte, step*rowBytes)
	for row := 0; row < rows; row += step {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(step, rows-row)
		q.keeping.c.adapted, q.keeping.c.names = "", q.keeping.c.names[:0]
		if err := from.Rows(row, x[:n*width]); err != nil {
			return err
		}
		if err := q.keeping.rows(i, row, n, from, to, x); err != nil {
			return err
		}
		if err := q.piece(to, x[:n*width], y[:n*rowBytes], n); err != nil {
			return err
		}
		if _, err := out.Write(y[:n*rowBytes]); err != nil {
			return err
		}
	}
	return nil
}

// piece stores n rows, and measures what it changed.
func (q *quantiser) piece(to gguf.Tensor, x []float32, y []byte, n int) error {
	width, bytes := len(x)/n, len(y)/n
	parts := min(n, 64) // the same whatever the workers: sums are in one order
	sums := make([]squares, parts)
	next := make(chan int, parts)
	for i := range parts {
		next <- i
	}
	close(next)
	var wait sync.WaitGroup
	for range max(1, q.workers) {
		wait.Add(1)
		rescue.Go(func() {
			defer wait.Done()
			back := make([]float32, width)
			for i := range next {
				for r := i * n / parts; r < (i+1)*n/parts; r++ {
					row, stored := x[r*width:(r+1)*width], y[r*bytes:(r+1)*bytes]
					to.Type.Quantise(row, stored)
					to.Type.Dequantise(stored, back)
					for k, v := range row {
						d := float64(back[k]) - float64(v)
						sums[i].numbers += float64(v) * float64(v)
						sums[i].errors += d * d
					}
				}
			}
		})
	}
	wait.Wait()
	s := q.errors[to.Type]
	if s == nil {
		s = &squares{}
		q.errors[to.Type] = s
	}
	for _, part := range sums {
		s.numbers += part.numbers
		s.errors += part.errors
	}
	if math.IsNaN(s.errors) || math.IsInf(s.errors, 0) {
		return fmt.Errorf("numbers of it are too large for %v, which holds up to 65504: choose bf16 or f32", to.Type)
	}
	return nil
}
