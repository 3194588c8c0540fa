package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/export/llamacpp"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
)

// checkpoint provides a merged model's numbers in float32: the base's plus the adapter's update, added in float64. It
// does not round to the base's type, so that the file's own type is the only rounding. It keeps one adapted tensor in
// memory, and of others only the requested elements.
type checkpoint struct {
	ctx     context.Context
	s       *session.Session
	updates map[string]adapter.Merger
	cpu     *kernel.CPU

	over      *quant.Config // see Options.Trained
	trained   map[string]bool
	quantiser quant.Quantiser

	name string // name of the tensor in memory
	held []float32

	base    *llamacpp.Plan // plan of the file without the adapter; nil = there is none, or it has a file of its own
	names   []string       // names read since the list was cleared
	adapted string         // adapted layer that was read last; "" = none since it was cleared
}

// bare returns the same model without the adapter.
func (c *checkpoint) bare() *checkpoint {
	return &checkpoint{ctx: c.ctx, s: c.s, cpu: c.cpu, over: c.over, trained: c.trained}
}

// openCheckpoint opens a model, with an adapter if one is named, and lists the tensors that its network reads.
func openCheckpoint(ctx context.Context, o Options, env session.Env) (c *checkpoint, names []string, err error) {
	s, err := session.Open(ctx, session.Options{Model: o.Model, Device: "cpu"}, env)
	if err != nil {
		return nil, nil, err
	}
	c = &checkpoint{ctx: ctx, s: s, cpu: kernel.NewCPU(s.Workers)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	net, _, err := s.Net.Declared()
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(s.Base.Check(net), s.Base.CheckTied(ctx), ownLayout(s)); err != nil {
		return nil, nil, err
	}
	if o.Adapter != "" {
		if err := s.UseAdapter(o.Adapter); err != nil {
			return nil, nil, err
		}
		if c.updates, err = s.Mergers(); err != nil {
			return nil, nil, fmt.Errorf("adapter %s: %w", o.Adapter, err)
		}
		if o.Trained != nil {
			if c.trained, err = quantisedBy(s, *o.Trained); err != nil {
				return nil, nil, err
			}
			c.over = o.Trained
		}
	}
	for _, w := range net.Weights() {
		if w.Name != "" {
			names = append(names, w.Name)
		}
	}
	if s.Net.UntiedHead() {
		names = append(names, adapter.HeadWeight)
	}
	return c, names, nil
}

// ownLayout returns an error for a folder whose tensor names only this program can map.
func ownLayout(s *session.Session) error {
	if s.Base.Config.ExpertLayers {
		return fmt.Errorf("%s has a linear layer for each expert's matrix, as Unsloth quantises gpt_oss, which other "+
			"programs do not read: "+
			"give the release that it was made from (openai/gpt-oss-20b) as --model, which the adapter fits as well",
			s.Base.Name)
	}
	return nil
}

// Shape returns the shape of a tensor, or nil if it does not exist.
func (c *checkpoint) Shape(name string) []int {
	t, ok := c.s.Base.Tensors().Tensor(baseName(c.s, name))
	if !ok {
		return nil
	}
	return t.Shape
}

// Floats reads elements [from, from+len(dst)) of a tensor.
func (c *checkpoint) Floats(name string, from int, dst []float32) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	layer := strings.TrimSuffix(name, ".weight")
	update, adapted := c.updates[layer]
	if adapted {
		c.adapted = layer
	}
	if n := len(c.names); n == 0 || c.names[n-1] != name {
		c.names = append(c.names, name)
	}
	trained := c.trained[name] && c.s.Base.Tensors().Config(name) == nil
	if !adapted && !trained {
		return c.read(name, from, dst)
	}
	if c.name != name {
		t, _ := c.s.Base.Tensors().Tensor(baseName(c.s, name))
		c.name, c.held = "", make([]float32, t.Len())
		if err := c.read(name, 0, c.held); err != nil {
			return err
		}
		if trained {
			if err := c.asTrained(t); err != nil {
				return err
			}
		}
		width := max(1, t.Shape[len(t.Shape)-1])
		if adapted {
			c.cpu.Range(t.Len()/width, 16, func(from, to int) { update(c.held[from*width:to*width], from) })()
		}
		if at := notFinite(c.held); at >= 0 {
			return fmt.Errorf(
				"with the adapter, tensor %s has %v at element %d of %v: its numbers are too large for the type", name,
				c.held[at], at, t.Shape)
		}
		c.name = name
	}
	copy(dst, c.held[from:])
	return nil
}

// asTrained quantises and dequantises the matrix in memory, which yields the numbers used in training.
func (c *checkpoint) asTrained(t weights.Tensor) error {
	if err := c.quantiser.Reset(t.Shape[0], t.Shape[1], *c.over); err != nil {
		return err
	}
	if err := c.quantiser.Add(c.held); err != nil {
		return err
	}
	p, err := c.quantiser.Finish()
	if err == nil {
		p.DequantiseRange(c.held, 0, len(c.held))
	}
	return err
}

// read reads numbers of the base; quantised ones are dequantised.
func (c *checkpoint) read(name string, from int, dst []float32) error {
	base := baseName(c.s, name)
	t, ok := c.s.Base.Tensors().Tensor(base)
	if !ok {
		return fmt.Errorf("the checkpoint has no tensor %q", name)
	}
	if err := c.s.Base.Tensors().Float32s(base, from, dst); err != nil {
		return err
	}
	if at := notFinite(dst); at >= 0 {
		return fmt.Errorf("the base model's tensor %s has %v at element %d of %v: get the model again", name, dst[at],
			from+at, t.Shape)
	}
	return nil
}

// notFinite returns the index of the first number that is not finite, or -1.
func notFinite(x []float32) int {
	for i, v := range x {
		if math.Float32bits(v)&0x7f800000 == 0x7f800000 {
			return i
		}
	}
	return -1
}

// title returns the last part of a model's name.
func title(model string) string {
	model = strings.TrimPrefix(model, session.EmbeddedPrefix)
	if model == "." || model == ".." {
		if whole, err := filepath.Abs(model); err == nil {
			model = whole
		}
	}
	return filepath.Base(filepath.Clean(model))
}

// licence returns the licence in the front matter of a model's README.md, or "".
func licence(folder fs.FS) string {
	text, err := regular.ReadFS(folder, "README.md")
	head, ok := strings.CutPrefix(strings.ReplaceAll(string(text), "\r\n", "\n"), "---\n")
	if err != nil || !ok {
		return ""
	}
	head, _, _ = strings.Cut(head, "\n---")
	for _, line := range strings.Split(head, "\n") {
		if value, ok := strings.CutPrefix(line, "license:"); ok && len(value) < 64 {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}
