package families_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

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
func build(t testing.TB, c model.Config, rows, ts int, o nn.Options, method *adapter.Method,
	lora adapter.Config) *network {
	t.Helper()
	w := &network{trained: &adapter.Trained{}, config: c, rows: rows, ts: ts}
	if method != nil {
		o.Wrap, o.WrapExperts = method.Wrapper(w.trained, lora), method.ExpertWrapper(w.trained, lora)
		o.WrapParameter, o.ExpertParameters = method.ParameterWrapper(w.trained, lora), lora.FusedExperts()
		o.WrapRouter = method.RouterWrapper(w.trained, lora)
	}
	w.Net = nn.New(o)
	i32 := func(n int) kernel.Type { return kernel.T(kernel.I32, n) }
	cu := w.Batch("cu", i32(rows+1))
	w.in = nn.Batch{IDs: w.Batch("ids", i32(rows*ts)), Positions: w.Batch("positions", i32(rows*ts)), CuQ: cu, CuK: cu,
		Real: w.Batch("real", i32(rows*ts)), MaxLen: ts}
	f, err := families.For(c)
	if err != nil {
		t.Fatal(err)
	}
	w.hidden = f(w.Net, c, w.in)
	w.head = w.Head(c.HeadName(), c.VocabSize, c.HiddenSize)
	if err := w.Err(); err != nil {
		t.Fatal(err)
	}
	return w
}

// logits are the hidden states times the head, soft-capped where the model has a cap: [M,V].
func (w *network) logits() *nn.Value {
	y := w.Apply(kernel.MatMul{TransB: true}, w.hidden, w.head) // [M,C] [V,C]ᵀ -> [M,V]
	if w.config.LogitCap > 0 {
		y = w.Apply(kernel.SoftCap{Cap: w.config.LogitCap}, y)
	}
	return y
}

// loss is the mean over the labelled places.
func (w *network) loss() *nn.Value {
	labels, scale := w.Batch("labels", kernel.T(kernel.I32, w.rows*w.ts)), w.Batch("scale", kernel.T(w.Float(), 1))
	k := kernel.LinearCrossEntropy{Chunk: 16, Grad: true, Cap: w.config.LogitCap}
	if w.head.Trained() {
		k.Head = kernel.HeadTrained
	}
	return w.Apply(k, w.hidden, w.head, labels, scale)
}

// running is a network with memory, its weights read from a file.
type running struct {
	t      testing.TB
	memory *graph.Memory
	run    *graph.Run
}

func (w *network) start(t testing.TB, from *weights.Set, outputs ...*nn.Value) *running {
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
	if positions, err := m.Tensor("positions"); err == nil { // a model whose layers use no positions has none
		for i := range positions.I32() {
			positions.I32()[i] = int32(i % w.ts)
		}
	}
	if real, err := m.Tensor("real"); err == nil {
		for i := range real.I32() {
			real.I32()[i] = 1
		}
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
	params := trained.List()
	if err := saved.Read(params); err != nil {
		r.t.Fatal(err)
	}
	if err := trained.Restore(r.memory, params); err != nil {
		r.t.Fatal(err)
	}
}

type reader struct{ f *weights.Set }

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

// openWeights opens a checkpoint's file, its tensors named as in the network of c.
func openWeights(t testing.TB, path string, c model.Config) *weights.Set {
	t.Helper()
	f, err := weights.OpenFS(fstest.MapFS{weights.SingleFile: {Data: readFile(t, path)}}, ".")
	if err == nil {
		err = families.Rename(c, f)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// referenceModel is a small model whose numbers transformers made.
type referenceModel struct {
	folder  string // under internal/golden/testdata
	name    string
	weights string // the name of its weights' file
}

// folders of reference models, and how many each has.
// Mixtures of experts are in experts_test.go: adapters of their experts are stacked.
var folders = map[string]int{"autumn_families": 4, "dialects": 2, "families": 14, "first_families": 3, "gemma": 11,
	"gemma4": 2, "gemma4_experts": 1,
	"gemma4_unified": 2, "hybrids": 2, "idefics3_text": 2, "interleaved": 5, "linear_attention": 3, "llama_like": 11,
	"ministral3": 6, "more_dialects": 4, "more_families": 4, "phi": 9, "short_conv": 1, "state_space": 2}

// models are all reference models, in order.
func models(t testing.TB) (all []referenceModel) {
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		m := map[string]string{}
		golden.JSON(t, golden.Path(t, filepath.Join(folder, "models.json")), &m)
		if len(m) != folders[folder] {
			t.Fatalf("%s: %d reference models, want %d", folder, len(m), folders[folder])
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			all = append(all, referenceModel{folder, name, m[name]})
		}
	}
	return all
}

func (m referenceModel) path(t testing.TB, ending string) string {
	return golden.Path(t, filepath.Join(m.folder, m.name+ending))
}

func (m referenceModel) config(t testing.TB) model.Config {
	return loadConfig(t, m.path(t, ".config.json"))
}

func (m referenceModel) open(t testing.TB) *weights.Set {
	return openWeights(t, golden.Path(t, filepath.Join(m.folder, m.weights+".safetensors")), m.config(t))
}

// TestWeightsHaveTheCheckpointsNames compares what the networks ask for with what transformers saves.
func TestWeightsHaveTheCheckpointsNames(t *testing.T) {
	nf4 := quant.Default()
	for _, m := range models(t) {
		for what, o := range map[string]nn.Options{"floats": {}, "nf4": {Scheme: &nf4}} {
			w := build(t, m.config(t), 1, 4, o, nil, adapter.Config{})
			var want []weights.Spec
			for _, x := range w.Weights() {
				if x.Name != "" {
					want = append(want, weights.Spec{Name: x.Name, Shape: x.Shape})
				}
			}
			if err := weights.Check(m.open(t), want, families.Unused(m.config(t))...); err != nil {
				t.Errorf("%s, %s: %v", m.name, what, err)
			}
		}
	}
}

// TestEverythingPlans plans a training step of every reference model with every adapter method. Storages and kinds of
// target take turns, two of them with each method: every model has all storages and all kinds of target, and over the
// models every method has every pair of them. One method of each model is planned in float64 too.
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
	// by the names of a layer's linear layers in their order
	targets := map[string]func(c *adapter.Config, names []string){
		"names":      func(c *adapter.Config, names []string) { c.TargetModules = adapter.Targets{names[0], names[2]} },
		"all-linear": func(c *adapter.Config, _ []string) { c.TargetModules = adapter.Targets{adapter.AllLinear} },
		"expression": func(c *adapter.Config, names []string) {
			c.TargetModules = adapter.Targets{`model\.((language|text)_model\.)?layers\.1\.(.*\.)?(` + names[1] + "|" +
				names[len(names)/2] + "|" + names[len(names)-1] + ")"}
		},
		"rank pattern": func(c *adapter.Config, names []string) {
			c.TargetModules, c.RankPattern = adapter.Targets{adapter.AllLinear}, map[string]int{names[len(names)-2]: 5,
				`.*\.1\..*` + names[0]: 1}
		},
		"alpha pattern": func(c *adapter.Config, names []string) {
			c.TargetModules, c.AlphaPattern = adapter.Targets{adapter.AllLinear}, map[string]float64{names[1]: 1}
		},
		"rslora and dropout": func(c *adapter.Config, names []string) {
			c.TargetModules, c.Dropout = adapter.Targets{names[0], names[2]}, 0.1
			c.Own = adapter.LoRASettings{UseRSLoRA: true}
		},
	}
	schemeNames, targetNames := slices.Sorted(maps.Keys(schemes)), slices.Sorted(maps.Keys(targets))
	if len(schemeNames) != 6 || len(targetNames) != 6 {
		t.Fatalf("%d storages and %d kinds of target take turns as six of each do", len(schemeNames), len(targetNames))
	}
	// how many linear layers are adapted
	named := func(paths []string, names ...string) (n int) {
		for _, path := range paths {
			if slices.Contains(names, lastName(path)) {
				n++
			}
		}
		return n
	}
	all := func(paths, _ []string) int { return len(paths) }
	two := func(paths, names []string) int { return named(paths, names[0], names[2]) }
	adapted := map[string]func(paths, names []string) int{
		"names": two, "all-linear": all, "expression": func(_, _ []string) int {
			return 3
		}, "rank pattern": all, "alpha pattern": all, "rslora and dropout": two,
	}
	covered, kinds := 0, map[string]bool{}
	for k, m := range models(t) {
		name, c := m.name, m.config(t)
		kinds[c.ModelType] = true
		paths, names := linears(t, c)
		for i, methodName := range slices.Sorted(maps.Keys(adapter.Methods)) {
			method := adapter.Methods[methodName]
			if method.Whole() { // it has no targets: TestEveryBaseWeightTrains
				continue
			}
			for turn := range 2 {
				schemeName := schemeNames[(k+i+3*turn)%len(schemeNames)]
				targetName := targetNames[(k/len(schemeNames)+i+3*turn)%len(targetNames)]
				floats := []kernel.DType{kernel.F32}
				if turn == 0 && i == k%len(adapter.Methods) {
					floats = append(floats, kernel.F64)
				}
				for _, float := range floats {
					what := strings.Join([]string{name, methodName, schemeName, targetName, fmt.Sprint(float)}, ", ")
					lora := adapter.Default()
					targets[targetName](&lora, names)
					w := build(t, c, 2, 8, nn.Options{Float: float, Scheme: schemes[schemeName]}, &method, lora)
					if err := w.trained.CheckTargets(lora, w.WeightNames()); err != nil {
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
					want := adapted[targetName](paths, names)
					each := tensorsOfLayer[methodName]
					if got := len(w.trained.Layers); got != want || len(grads) < each[0]*got ||
						len(grads) > each[1]*got {
						t.Errorf("%s: %d adapted layers and %d gradients, want %d layers", what, got, len(grads), want)
					}
					for i, g := range grads {
						v := w.trained.Params[i]
						if !g.Type.Equal(v.Type) {
							t.Errorf("%s: the gradient of %s is %v, the parameter %v", what, v.Name, g.Type, v.Type)
						}
						if methodName == "lora" || methodName == "dora" {
							checkRank(t, what, v, lora, names)
						}
					}
					covered++
				}
			}
		}
	}
	for family := range families.Table {
		if !kinds[family] && !expertFamilies[family] {
			t.Errorf("no reference model is of the family %s", family)
		}
	}
	t.Logf("%d combinations: %d models of %d families, %d adapter methods, %d storages, %d kinds of target",
		covered, len(models(t)), len(kinds), len(adapter.Methods), len(schemes), len(targets))
}

// tensorsOfLayer is the least and the largest number of trained tensors of an adapted layer by adapter method.
var tensorsOfLayer = map[string][2]int{"lora": {2, 2}, "dora": {3, 3}, "ia3": {1, 1}, "miss": {1, 1}, "vera": {2, 2},
	"lokr": {2, 3}, "oft": {1, 1}}

// linears are the paths of a model's linear layers in their order, and the names of those of the second layer.
func linears(t *testing.T, c model.Config) (paths, names []string) {
	t.Helper()
	build(t, c, 1, 4, nn.Options{Wrap: func(_ *nn.Net, path string, base nn.Linear) nn.Linear {
		paths = append(paths, path)
		if strings.Contains(path, ".layers.1.") {
			names = append(names, lastName(path))
		}
		return base
	}}, nil, adapter.Config{})
	if len(names) < 4 {
		t.Fatalf("linear layers %v", paths)
	}
	return paths, names
}

func lastName(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

func checkRank(t *testing.T, what string, v *nn.Value, lora adapter.Config, names []string) {
	t.Helper()
	want := lora.R
	switch {
	case lora.RankPattern == nil:
	case strings.Contains(v.Name, ".layers.1.") && strings.Contains(v.Name, "."+names[0]+"."):
		want = 1
	case strings.Contains(v.Name, "."+names[len(names)-2]+"."):
		want = 5
	}
	if len(v.Type.Shape) == 1 { // a magnitude for each row
		return
	}
	rank := v.Type.Shape[1]
	if strings.HasSuffix(v.Name, ".lora_A.weight") {
		rank = v.Type.Shape[0]
	}
	if rank != want {
		t.Errorf("%s: %s is %v, want rank %d", what, v.Name, v.Type, want)
	}
}
