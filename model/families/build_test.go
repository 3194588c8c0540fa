package families_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
)

// network is a family's network under construction in a test.
type network struct {
	*nn.Net
	trained  *adapter.Trained
	hidden   *nn.Value // [M,C]
	head     *nn.Value // [V,C]
	in       nn.Batch
	config   model.Config
	rows, ts int
}

// build applies the family of a configuration to rows sequences of ts tokens.
func build(t testing.TB, c model.Config, rows, ts int, o nn.Options, method *adapter.Method, lora adapter.Config) *network {
	t.Helper()
	w := &network{trained: &adapter.Trained{}, config: c, rows: rows, ts: ts}
	if method != nil {
		o.Wrap = method.Wrapper(w.trained, lora)
	}
	w.Net = nn.New(o)
	i32 := func(n int) kernel.Type { return kernel.T(kernel.I32, n) }
	cu := w.Batch("cu", i32(rows+1))
	w.in = nn.Batch{IDs: w.Batch("ids", i32(rows*ts)), Positions: w.Batch("positions", i32(rows*ts)), CuQ: cu, CuK: cu, MaxLen: ts}
	f, err := families.For(c)
	if err != nil {
		t.Fatal(err)
	}
	w.hidden = f(w.Net, c, w.in)
	name := "lm_head.weight"
	if c.TieEmbeddings {
		name = "model.embed_tokens.weight"
	}
	w.head = w.Head(name, c.VocabSize, c.HiddenSize)
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	return w
}

// loss is the mean over the labelled places.
func (w *network) loss() *nn.Value {
	labels, scale := w.Batch("labels", kernel.T(kernel.I32, w.rows*w.ts)), w.Batch("scale", kernel.T(w.Float(), 1))
	return w.Apply(kernel.LinearCrossEntropy{Chunk: 16, Grad: true}, w.hidden, w.head, labels, scale)
}

// running is a network with memory, its weights read from a file.
type running struct {
	t      testing.TB
	memory *graph.Memory
	run    *graph.Run
}

func (w *network) start(t testing.TB, from *weights.File, outputs ...*nn.Value) *running {
	t.Helper()
	return w.startFrom(t, reader{from}, outputs...)
}

func (w *network) startFrom(t testing.TB, from nn.Reader, outputs ...*nn.Value) *running {
	t.Helper()
	cpu := kernel.NewCPU(2)
	p, err := w.Compile(2, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := graph.NewMemory(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range w.Weights() {
		if err := x.Fill(from, m); err != nil {
			t.Fatal(err)
		}
	}
	run, err := p.Bind(m, cpu)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t, m, run}
	for i := range w.rows * w.ts {
		r.ints("positions")[i] = int32(i % w.ts)
	}
	for i := range w.rows + 1 {
		r.ints("cu")[i] = int32(i * w.ts)
	}
	return r
}

func (r *running) tensor(name string) kernel.Tensor {
	r.t.Helper()
	x, err := r.memory.Tensor(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func (r *running) ints(name string) []int32 { return r.tensor(name).I32() }

func (r *running) load(dir string, trained *adapter.Trained) {
	r.t.Helper()
	saved, err := adapter.Open(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	defer saved.Close()
	var params []adapter.Param
	for _, v := range trained.Params {
		params = append(params, adapter.Param{Name: v.Name, Shape: v.Type.Shape, Data: r.tensor(v.Name).F32()})
	}
	if err := saved.Read(params); err != nil {
		r.t.Fatal(err)
	}
}

type reader struct{ f *weights.File }

func (r reader) Float32s(name string, from int, dst []float32) error {
	t, ok := r.f.Tensor(name)
	if !ok {
		return fmt.Errorf("no tensor %q", name)
	}
	return weights.Float32Range(t, from, from+len(dst), dst)
}

func loadConfig(t testing.TB, path string) model.Config {
	t.Helper()
	c, err := families.ParseConfig(readFile(t, path))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return c
}

func openWeights(t testing.TB, path string) *weights.File {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// models are the reference models: the name of each, and that of its weights' file.
func models(t testing.TB) map[string]string {
	m := map[string]string{}
	golden.JSON(t, golden.Path(t, "families/models.json"), &m)
	if len(m) < 12 {
		t.Fatalf("%d reference models", len(m))
	}
	return m
}

func path(t testing.TB, name string) string { return golden.Path(t, filepath.Join("families", name)) }

// TestWeightsHaveTheCheckpointsNames compares what the networks ask for with what transformers saves.
func TestWeightsHaveTheCheckpointsNames(t *testing.T) {
	nf4 := quant.Default()
	for name, file := range models(t) {
		for what, o := range map[string]nn.Options{"floats": {}, "nf4": {Scheme: &nf4}} {
			c := loadConfig(t, path(t, name+".config.json"))
			w := build(t, c, 1, 4, o, nil, adapter.Config{})
			var want []weights.Spec
			for _, x := range w.Weights() {
				if x.Name != "" {
					want = append(want, weights.Spec{Name: x.Name, Shape: x.Shape})
				}
			}
			if err := weights.Check(openWeights(t, path(t, file+".safetensors")), want); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestEverythingPlans plans a training step of every family with every adapter method, storage and kind of
// target.
func TestEverythingPlans(t *testing.T) {
	schemes := map[string]*quant.Config{"floats": nil}
	for _, name := range quant.Names() {
		plain := quant.Default()
		plain.Type, plain.Bits, plain.DoubleQuant = name, quant.Schemes[name].Bits(), false
		schemes[name] = &plain
		if quant.Schemes[name].Nests() {
			nested := plain
			nested.DoubleQuant = true
			schemes[name+" with nested scales"] = &nested
		}
	}
	targets := map[string]func(c *adapter.Config){
		"names":      func(c *adapter.Config) { c.TargetModules = adapter.Targets{"q_proj", "v_proj"} },
		"all-linear": func(c *adapter.Config) { c.TargetModules = adapter.Targets{adapter.AllLinear} },
		"expression": func(c *adapter.Config) {
			c.TargetModules = adapter.Targets{`model\.layers\.1\.(self_attn|mlp)\.(k|o|down)_proj`}
		},
		"rank pattern": func(c *adapter.Config) {
			c.TargetModules, c.RankPattern = adapter.Targets{adapter.AllLinear}, map[string]int{"up_proj": 5, `.*\.1\..*q_proj`: 1}
		},
		"alpha pattern": func(c *adapter.Config) {
			c.TargetModules, c.AlphaPattern = adapter.Targets{adapter.AllLinear}, map[string]float64{"o_proj": 1}
		},
		"rslora and dropout": func(c *adapter.Config) { c.UseRSLoRA, c.Dropout = true, 0.1 },
	}
	floats := map[string]kernel.DType{"f32": kernel.F32, "f64": kernel.F64}
	layers := map[string]int{"names": 4, "all-linear": 14, "expression": 3, "rank pattern": 14, "alpha pattern": 14, "rslora and dropout": 4}
	covered, kinds := 0, map[string]bool{}
	for name := range models(t) {
		c := loadConfig(t, path(t, name+".config.json"))
		kinds[c.ModelType] = true
		for methodName, method := range adapter.Methods {
			for schemeName, scheme := range schemes {
				for targetName, target := range targets {
					for floatName, float := range floats {
						what := strings.Join([]string{name, methodName, schemeName, targetName, floatName}, ", ")
						lora := adapter.Default()
						target(&lora)
						w := build(t, c, 2, 8, nn.Options{Float: float, Scheme: scheme}, &method, lora)
						if err := w.trained.CheckTargets(lora); err != nil {
							t.Errorf("%s: %v", what, err)
						}
						loss := w.loss()
						grads := w.Grad(loss, w.trained.Params...)
						p, err := w.Compile(2, append([]*nn.Value{loss}, grads...)...)
						if err != nil {
							t.Errorf("%s: %v", what, err)
							continue
						}
						if _, err := graph.Need(p); err != nil {
							t.Errorf("%s: %v", what, err)
						}
						if got := len(w.trained.Layers); got != layers[targetName] || len(grads) != 2*got {
							t.Errorf("%s: %d adapted layers and %d gradients, want %d layers", what, got, len(grads), layers[targetName])
						}
						for i, g := range grads {
							v := w.trained.Params[i]
							if !g.Type.Equal(v.Type) {
								t.Errorf("%s: the gradient of %s is %v, the parameter %v", what, v.Name, g.Type, v.Type)
							}
							checkRank(t, what, v, lora)
						}
						covered++
					}
				}
			}
		}
	}
	for family := range families.Table {
		if !kinds[family] {
			t.Errorf("no reference model is of the family %s", family)
		}
	}
	t.Logf("%d combinations: %d models of %d families, %d adapter methods, %d storages, %d kinds of target, %d float types",
		covered, len(models(t)), len(kinds), len(adapter.Methods), len(schemes), len(targets), len(floats))
}

func checkRank(t *testing.T, what string, v *nn.Value, lora adapter.Config) {
	t.Helper()
	want := lora.R
	switch {
	case lora.RankPattern == nil:
	case strings.Contains(v.Name, ".1.self_attn.q_proj."):
		want = 1
	case strings.Contains(v.Name, ".up_proj."):
		want = 5
	}
	rank := v.Type.Shape[1]
	if strings.HasSuffix(v.Name, ".lora_A.weight") {
		rank = v.Type.Shape[0]
	}
	if rank != want {
		t.Errorf("%s: %s is %v, want rank %d", what, v.Name, v.Type, want)
	}
}
