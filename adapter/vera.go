package adapter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
)

// VeRA is the section vera of a run's configuration.
type VeRA struct {
	Layers `yaml:",inline"`
	// R is the rank of the random matrices that all layers share. 0 stands for 256. A higher rank costs memory and time,
	// and one trained number for each layer.
	R int `yaml:"r,omitempty" range:"[0,4096]" resume:"compared"`
	// DInitial is what the trained factors of the rank begin with. 0 stands for 0.1.
	DInitial float64 `yaml:"d_initial,omitempty" range:"[0,inf)" resume:"fixed"`
	// ProjectionPRNGKey is the key of the random matrices: with the same key they are PEFT's, number by number.
	ProjectionPRNGKey int64 `yaml:"projection_prng_key,omitempty" range:"[0,4294967295]" resume:"fixed"`
	// Dropout is the probability with which inputs of the update are zeroed during training.
	Dropout float64 `yaml:"dropout,omitempty" range:"[0,1)" resume:"steers"`

	noScale `yaml:"-"`
}

const (
	veraSuffixB = ".vera_lambda_b"
	veraSuffixD = ".vera_lambda_d"
	veraA       = "base_model.vera_A"
	veraB       = "base_model.vera_B"
)

func veraSection(s Sections) Config { return s.VeRA.layersConfig() }

func (s VeRA) layersConfig() Config {
	c := s.config(s, Targets{AllLinear}, cmp.Or(s.R, 256), 1)
	c.Dropout = s.Dropout
	return c
}

// first is what the factors of the rank begin with.
func (s VeRA) first() float64 { return cmp.Or(s.DInitial, 0.1) }

func (VeRA) section() string { return "vera" }

func (s VeRA) summary(c Config) string {
	return fmt.Sprintf("r %d, on %v", c.R, []string(c.TargetModules))
}

func (s VeRA) standalone() []error { return s.targetProblems("vera") }

// projections are the random matrices of VeRA, A [R,In] and B [Out,R] for the largest layer; others use their first
// columns and rows.
type projections struct{ a, b Param }

// newProjections draws the matrices of a key as PEFT does: uniform with the variance 2/In and 2/R, from torch's generator.
func newProjections(key int64, r, in, out int) *projections {
	twister := newTwister(uint32(key))
	draw := func(rows, cols int) Param {
		bound := math.Sqrt(3) * (math.Sqrt2 / math.Sqrt(float64(cols)))
		p := Param{Shape: []int{rows, cols}, Data: make([]float32, rows*cols)}
		from, to := float32(-bound), float32(bound)
		for i := range p.Data {
			p.Data[i] = float32(float64(float64(twister.float32())*float64(to-from)) + float64(from))
		}
		return p
	}
	return &projections{draw(r, in), draw(out, r)}
}

// projectionsOf returns the matrices of a configuration: the file's that it was read from, or those of its key.
func (c Config) projectionsOf(sizes *layerSizes) *projections {
	if c.projections != nil {
		return c.projections
	}
	return newProjections(settingsOf[VeRA](c).ProjectionPRNGKey, c.R, sizes.in, sizes.out)
}

// wrapVeRA adds b (B (d (A x))) to a layer: A and B are random, frozen and shared by all layers, the factors b [Out] and d
// [R] are trained (Kopiczko et al., "VeRA", 2024).
func wrapVeRA(t *Trained, c Config, n *nn.Net, path string, base nn.Linear) nn.Linear {
	in, out := base.Size()
	if p := c.projections; p != nil && (in > p.a.Shape[1] || out > p.b.Shape[0]) {
		n.Fail(fmt.Errorf("%s has %d inputs and %d outputs, the adapter's vera_A and vera_B are for %d and %d", path, in, out,
			p.a.Shape[1], p.b.Shape[0]))
		return base
	}
	return &vera{
		wrapped: wrapped{n, base}, dropout: newDropout(n, c),
		a: nn.Constant(n, fmt.Sprintf("vera_A of %d inputs", in), func(dst []float64) {
			p := c.projectionsOf(&t.sizes)
			for i := range dst {
				dst[i] = float64(p.a.Data[i/in*p.a.Shape[1]+i%in])
			}
		}, c.R, in),
		b: nn.Constant(n, fmt.Sprintf("vera_B of %d outputs", out), func(dst []float64) {
			p := c.projectionsOf(&t.sizes)
			for i := range dst {
				dst[i] = float64(p.b.Data[i])
			}
		}, out, c.R),
		lambdaB: t.param(n, path+veraSuffixB, out), lambdaD: t.param(n, path+veraSuffixD, c.R),
	}
}

// vera is a linear layer with VeRA's update.
type vera struct {
	wrapped
	a, b, lambdaB, lambdaD *nn.Value
	dropout                dropout
}

func (l *vera) Apply(x *nn.Value) *nn.Value {
	dropped := l.dropout.of(l.n, x)
	low := l.n.Shared(dropped, "times "+l.a.Name, func() *nn.Value { // [M,In] -> [M,R], of all layers that read x
		return l.n.Apply(kernel.MatMul{TransB: true}, dropped, l.a)
	})
	high := l.n.Apply(kernel.MatMul{TransB: true}, scaleColumns(l.n, low, l.lambdaD), l.b)
	return l.n.Add(l.base.Apply(x), scaleColumns(l.n, high, l.lambdaB))
}

// initVeRA starts with b of zero and d of a constant: the model computes at first what it did before.
func initVeRA(c Config, f Fresh) error {
	if _, err := tensorOf(f.Layer, veraSuffixB, f.Tensors); err != nil {
		return err
	}
	d, err := tensorOf(f.Layer, veraSuffixD, f.Tensors)
	for i := range d.Data {
		d.Data[i] = float32(settingsOf[VeRA](c).first())
	}
	return err
}

// mergeVeRA is W + diag(b) B diag(d) A, summed in float64 and rounded once.
func mergeVeRA(c Config, layer string, own []Param) (Merger, error) {
	b, err := tensorOf(layer, veraSuffixB, own)
	if err != nil {
		return nil, err
	}
	d, err := tensorOf(layer, veraSuffixD, own)
	if err != nil {
		return nil, err
	}
	in, err := c.width(layer)
	if err != nil {
		return nil, err
	}
	p := c.projectionsOf(c.sizes)
	rank, width := p.a.Shape[0], p.a.Shape[1]
	return func(w []float32, from int) {
		row := make([]float64, in)
		for ; len(w) >= in; w, from = w[in:], from+1 {
			clear(row)
			for r, x := range p.b.Data[from*rank:][:rank] {
				s := float64(x) * float64(d.Data[r])
				for i, a := range p.a.Data[r*width:][:in] {
					row[i] += float64(s * float64(a))
				}
			}
			for i, x := range row {
				w[i] = float32(float64(w[i]) + float64(b.Data[from])*x)
			}
		}
	}, nil
}

// veraCodec reads and writes what PEFT calls a VeraConfig.
var veraCodec = Codec{Type: "VERA", Parse: parseVeRA, Format: formatVeRA, Frozen: frozenVeRA, Opened: openedVeRA}

func parseVeRA(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	var own struct {
		DInitial   float64 `json:"d_initial"`
		Init       any     `json:"init_weights"`
		Key        int64   `json:"projection_prng_key"`
		R          int     `json:"r"`
		Projection any     `json:"save_projection"`
		Dropout    float64 `json:"vera_dropout"`
	}
	return parseMethod(raw, keys, &own, nil, func(l Layers, bad func(format string, args ...any)) Config {
		checkRank(own.R, bad)
		return VeRA{Layers: l, R: own.R, DInitial: own.DInitial, ProjectionPRNGKey: own.Key,
			Dropout: own.Dropout}.layersConfig()
	})
}

func formatVeRA(c Config, base string, layers []string) ([]byte, error) {
	own := settingsOf[VeRA](c)
	return formatMethod(c, base, layers, "VERA", map[string]any{
		"bias": "none", "d_initial": own.first(), "fan_in_fan_out": false, "init_weights": true, "layers_pattern": nil,
		"layers_to_transform": nil, "projection_prng_key": own.ProjectionPRNGKey, "r": c.R,
		"save_projection": len(frozenVeRA(c)) > 0, "vera_dropout": c.Dropout,
	})
}

// frozenVeRA returns the random matrices, which PEFT saves beside what is trained.
func frozenVeRA(c Config) []Param {
	if c.projections == nil && (c.sizes == nil || c.sizes.in == 0) {
		return nil
	}
	p := c.projectionsOf(c.sizes)
	a, b := p.a, p.b
	a.Name, b.Name = veraA, veraB
	return []Param{a, b}
}

// openedVeRA takes the random matrices of a folder that has them.
func openedVeRA(s *Saved) error {
	p := &projections{}
	for name, to := range map[string]*Param{veraA: &p.a, veraB: &p.b} {
		t, ok := s.file.Tensor(name)
		if !ok {
			return nil
		}
		if len(t.Shape) != 2 {
			return fmt.Errorf("%s has the shape %v: it must be a matrix", name, t.Shape)
		}
		*to = Param{name, t.Shape, make([]float32, t.Len())}
		if err := weights.Float32s(t, to.Data); err != nil {
			return fmt.Errorf("read adapter tensor %s: %w", name, err)
		}
		if i := slices.IndexFunc(to.Data, func(x float32) bool { return x-x != 0 }); i >= 0 {
			return fmt.Errorf("the adapter is broken: tensor %s is %v at %v", name, to.Data[i], place(i, to.Shape))
		}
	}
	if r := s.Config.R; p.a.Shape[0] != r || p.b.Shape[1] != r {
		return fmt.Errorf("%s and %s have the shapes %v and %v, the configuration has r %d", veraA, veraB, p.a.Shape,
			p.b.Shape, r)
	}
	s.Config.projections = p
	return nil
}

// CheckFrozen returns an error where a run with a configuration would train what was saved beside other frozen matrices.
func (s *Saved) CheckFrozen(c Config) error {
	p := s.Config.projections
	switch own := settingsOf[VeRA](c); {
	case p == nil && settingsOf[VeRA](s.Config).ProjectionPRNGKey != own.ProjectionPRNGKey:
		return fmt.Errorf("the adapter's random matrices are of key %d, this run's of %d: set vera.projection_prng_key "+
			"as the adapter has it", settingsOf[VeRA](s.Config).ProjectionPRNGKey, own.ProjectionPRNGKey)
	case p == nil:
		return nil
	default:
		made := newProjections(own.ProjectionPRNGKey, p.a.Shape[0], p.a.Shape[1], p.b.Shape[0])
		if !slices.Equal(made.a.Data, p.a.Data) || !slices.Equal(made.b.Data, p.b.Data) {
			return fmt.Errorf("the adapter's %s and %s are not those that vera.projection_prng_key %d makes: set the key "+
				"that they were made with; the adapter's file says %d", veraA, veraB, own.ProjectionPRNGKey,
				settingsOf[VeRA](s.Config).ProjectionPRNGKey)
		}
		return nil
	}
}
