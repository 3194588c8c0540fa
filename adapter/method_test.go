package adapter

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// adapted are two layers with a method's adapter, and one that no name below targets.
func adapted(t *testing.T, m Method, c Config) *Trained {
	t.Helper()
	trained := &Trained{}
	n := nn.New(nn.Options{Wrap: m.Wrapper(trained, c)})
	n.In("layers.0", func() {
		for _, name := range []string{"q_proj", "v_proj", "up_proj"} {
			n.Linear(name, 6, 4, false).Apply(n.Batch("x", kernel.T(kernel.F32, 2, 6)))
		}
	})
	if err := n.Err(); err != nil {
		t.Fatal(err)
	}
	return trained
}

// TestStartIsTheSameForEver: a fresh adapter's numbers come of the seed and the tensor's name, so that a run can be
// repeated with another version.
func TestStartIsTheSameForEver(t *testing.T) {
	const name, seed, in = "layers.0.q_proj.lora_A.weight", 42, 6
	a, b := Param{name, []int{2, in}, make([]float32, 2*in)}, Param{"layers.0.q_proj.lora_B.weight", []int{4, 2}, make([]float32, 8)}
	if err := NewStart(Methods["lora"], Default(), seed).Fill(nil, nil, &Trained{Layers: []string{"layers.0.q_proj"}}, []Param{b, a}); err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256([]byte(name))
	pcg := rand.NewPCG(seed, binary.LittleEndian.Uint64(h[:]))
	for i, got := range a.Data {
		u := float64(pcg.Uint64()>>11) / (1 << 53)
		if want := float32((2*u - 1) * (1 / math.Sqrt(in))); got != want {
			t.Errorf("A[%d] = %v, want %v", i, got, want)
		}
	}
	if !slices.Equal(b.Data, make([]float32, 8)) {
		t.Errorf("B = %v, want zeros", b.Data)
	}
	if first := fmt.Sprint(a.Data[:2]); first != "[0.18704444 -0.38968408]" {
		t.Errorf("A begins with %s", first)
	}
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]bool{"lora": false, "qlora": true} {
		if m, quantised, err := Lookup(name); err != nil || quantised != want || m.PEFT.Type != "LORA" {
			t.Errorf("%s: quantised %v, %v", name, quantised, err)
		}
	}
	if _, _, err := Lookup("bitfit"); fmt.Sprint(err) != `adapter: "bitfit" is not one of `+strings.Join(Names(), ", ") {
		t.Errorf("%v", err)
	}
}

// TestLoRAPlusRates: B's learning rate is the ratio's multiple of A's.
func TestLoRAPlusRates(t *testing.T) {
	for ratio, want := range map[float64]string{0: "[1 1 1 1]", 1: "[1 1 1 1]", 16: "[1 16 1 16]"} {
		c := Default()
		c.Own = LoRASettings{LoRAPlusLRRatio: ratio}
		trained := adapted(t, Methods["lora"], c)
		if got := fmt.Sprint(trained.Rates); got != want || !strings.HasSuffix(trained.Params[1].Name, "lora_B.weight") {
			t.Errorf("ratio %v: %s for %s and so on, want %s", ratio, got, trained.Params[1].Name, want)
		}
		if problems := c.Validate(); problems != nil {
			t.Errorf("ratio %v: %v", ratio, problems)
		}
	}
	for _, ratio := range []float64{-0.5, math.NaN(), math.Inf(1)} {
		c := Default()
		c.Own = LoRASettings{LoRAPlusLRRatio: ratio}
		want := fmt.Sprintf("[lora.loraplus_lr_ratio: %v must be at least 0]", ratio)
		if got := fmt.Sprint(c.Validate()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	c := Default()
	c.Own = LoRASettings{LoRAPlusLRRatio: 16}
	files, err := Methods["lora"].Encode(c, "base", nil, nil)
	if err != nil || strings.Contains(string(files[ConfigFile]), "plus") { // PEFT would not read it
		t.Errorf("adapter_config.json holds the ratio: %s, %v", files[ConfigFile], err)
	}
}

// TestTargetsThatMatchNothing are told with what the model has.
func TestTargetsThatMatchNothing(t *testing.T) {
	for targets, want := range map[string]string{
		"qproj":              "lora.target_modules: [qproj] matches no linear layer of the model; it has q_proj, up_proj, v_proj",
		"q_proj vproj wproj": "lora.target_modules: vproj, wproj matches no linear layer of the model; it has q_proj, up_proj, v_proj",
		"lm_head":            "lora.target_modules: [lm_head] matches no linear layer of the model; it has q_proj, up_proj, v_proj; embeddings and the vocabulary's head are not adapted: leave them out",
		"q_proj model.embed_tokens": "lora.target_modules: model.embed_tokens matches no linear layer of the model; it has q_proj, up_proj, v_proj; " +
			"embeddings and the vocabulary's head are not adapted: leave them out",
		"q_proj v_proj": "",
	} {
		c := Default()
		c.TargetModules = strings.Fields(targets)
		err := adapted(t, Methods["lora"], c).CheckTargets(c, nil)
		if fmt.Sprint(err) != want && (err != nil || want != "") {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// writeGood writes a whole adapter of one layer, changed by edit.
func writeGood(t *testing.T, edit func([]Param)) (dir, name string) {
	t.Helper()
	params := goodParams()
	edit(params)
	c := Default()
	c.R, c.Alpha, c.TargetModules = 2, 4, Targets{"q_proj"}
	files, err := Methods["lora"].Encode(c, "org/base", []string{"l.q_proj"}, params)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, data := range files {
		write(t, dir, name, data)
	}
	return dir, peftPrefix + params[1].Name
}

// TestNumbersThatAreNotFinite are refused by the tensor and the first place, wherever an adapter is read.
func TestNumbersThatAreNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		dir, name := writeGood(t, func(p []Param) { p[1].Data[5], p[1].Data[7] = float32(bad), float32(bad) })
		want := fmt.Sprintf("the adapter is broken: tensor %s is %v at [2 1]; use a checkpoint from before its training went wrong", name, bad)
		if err := readAll(dir); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestWrongAdapterErrorIsShort: what the adapter was made for, and the first few of many names.
func TestWrongAdapterErrorIsShort(t *testing.T) {
	dir, _ := writeGood(t, func([]Param) {})
	saved, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	var params []Param
	for i := range 70 {
		params = append(params, Param{Name: fmt.Sprintf("layers.%02d.q_proj.lora_A.weight", i), Shape: []int{2, 3}, Data: make([]float32, 6)})
	}
	const want = `the adapter does not fit the model: it was made for "org/base" with rank 2 and has 2 tensors, here 70 are expected:
  70 missing:
    base_model.model.layers.00.q_proj.lora_A.weight
    base_model.model.layers.01.q_proj.lora_A.weight
    base_model.model.layers.02.q_proj.lora_A.weight
    base_model.model.layers.03.q_proj.lora_A.weight
    base_model.model.layers.04.q_proj.lora_A.weight
    and 65 more
  2 unexpected:
    base_model.model.l.q_proj.lora_A.weight
    base_model.model.l.q_proj.lora_B.weight`
	if err := saved.Read(params); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestMethodIsTheFolders: of methods that share a peft_type, a folder's flag chooses.
func TestMethodIsTheFolders(t *testing.T) {
	Methods["flagged"] = Method{PEFT: Codec{Type: "LORA", Flag: "fan_in_fan_out", Parse: func([]byte, map[string]json.RawMessage) (Config, string, error) {
		return Config{Shared: Shared{R: 7}}, "flagged", nil
	}}}
	t.Cleanup(func() { delete(Methods, "flagged") })
	for flag, want := range map[bool]int{false: 2, true: 7} {
		dir, _ := writeGood(t, func([]Param) {})
		raw, err := os.ReadFile(filepath.Join(dir, ConfigFile))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, ConfigFile, []byte(strings.Replace(string(raw), `"fan_in_fan_out": false`, fmt.Sprintf(`"fan_in_fan_out": %v`, flag), 1)))
		saved, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if saved.Config.R != want {
			t.Errorf("fan_in_fan_out %v is read with rank %d, want %d", flag, saved.Config.R, want)
		}
		saved.Close()
	}
}

func TestMergers(t *testing.T) {
	a := Param{"l.1.q.lora_A.weight", []int{1, 2}, []float32{1, 2}}
	b := Param{"l.1.q.lora_B.weight", []int{3, 1}, []float32{1, 0, -1}}
	c := Config{Shared: Shared{R: 1, Alpha: 10}}
	m, err := Methods["lora"].Mergers(c, []string{"l.1.q"}, nil, []Param{a, b})
	if err != nil {
		t.Fatal(err)
	}
	w := make([]float32, 6)
	m["l.1.q"](w[2:], 1)
	m["l.1.q"](w[:2], 0)
	if got := fmt.Sprint(w); got != "[10 20 0 0 -10 -20]" {
		t.Errorf("merged %s", got)
	}
	for want, params := range map[string][]Param{
		"tensor l.2.q.lora_A.weight is of no adapted layer and can't be merged": {a, b, {Name: "l.2.q.lora_A.weight"}},
		"tensor l.1.q.magnitude can't be merged":                                {a, b, {Name: "l.1.q.magnitude"}},
		"layer l.1.q lacks a tensor: LoRA has lora_A.weight and lora_B.weight":  {a},
	} {
		if _, err := Methods["lora"].Mergers(c, []string{"l.1.q"}, nil, params); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// TestParameterLayout: of two experts, PEFT's B has a column for each rank and expert, experts next to one another; merging reads it so.
func TestParameterLayout(t *testing.T) {
	const experts, in, out, rank = 2, 2, 3, 2
	m, seen := member{Param{Shape: []int{out, rank * experts}}, experts, 0, out}, map[int]bool{}
	for i := range experts * out * rank {
		e, o, r := i/(out*rank), i/rank%out, i%rank
		if got := m.place(i); got != o*rank*experts+r*experts+e || seen[got] {
			t.Errorf("number %d lies at %d", i, got)
		}
		seen[m.place(i)] = true
	}
	p := Parameter{Name: "l.experts.down_proj", Path: "l.experts.base_layer", Experts: experts, In: in, Out: out}
	a := Param{"l.experts.base_layer.lora_A.weight", []int{experts * rank, in}, []float32{1, 2, 3, 4, 5, 6, 7, 8}}
	b := Param{"l.experts.base_layer.lora_B.weight", []int{out, rank * experts}, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}
	c := Config{Shared: Shared{R: 1, Alpha: 1, RankPattern: map[string]int{`experts\.down_proj`: rank}, AlphaPattern: map[string]float64{"down_proj": 20}}}
	updates, err := Methods["lora"].Mergers(c, nil, []Parameter{p}, []Param{a, b})
	if err != nil {
		t.Fatal(err)
	}
	w, want := make([]float32, experts*in*out), make([]float32, experts*in*out)
	updates[p.Name](w[out:], 1)
	updates[p.Name](w[:out], 0)
	for e := range experts {
		for i := range in {
			for o := range out {
				for r := range rank {
					want[(e*in+i)*out+o] += 10 * a.Data[(e*rank+r)*in+i] * b.Data[o*rank*experts+r*experts+e]
				}
			}
		}
	}
	if !slices.Equal(w, want) {
		t.Errorf("merged %v, want %v", w, want)
	}
	inLayers(t, c, p, a, b, want)
	if _, err := Methods["lora"].Mergers(c, nil, []Parameter{p}, []Param{a}); err == nil || err.Error() != "layer l.experts.base_layer lacks a tensor: LoRA has lora_A.weight and lora_B.weight" {
		t.Errorf("%v", err)
	}
}

// inLayers: a parameter that the checkpoint has as layers gets the same update, an expert's rows part by part; a stack of a part has
// its rows of B.
func inLayers(t *testing.T, c Config, p Parameter, a, b Param, whole []float32) {
	t.Helper()
	const experts, in, out, rank = 2, 2, 3, 2
	p.Layers = [][]string{{"l.experts.0.x", "l.experts.1.x"}, {"l.experts.0.y", "l.experts.1.y"}, {"l.experts.0.z", "l.experts.1.z"}}
	updates, err := Methods["lora"].Mergers(c, nil, []Parameter{p}, []Param{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if len(updates) != 6 {
		t.Fatalf("%d updates, want one for each layer", len(updates))
	}
	seen := map[int]bool{}
	for part, paths := range p.Layers { // a row each
		m := member{b, experts, part, 1}
		if m.begins() != (part == 0) || m.own() != experts*rank || m.elems() != experts*out*rank {
			t.Errorf("part %d begins %v, has %d of %d", part, m.begins(), m.own(), m.elems())
		}
		for i := range m.own() {
			at := m.place(i)
			if at != part*rank*experts+i%rank*experts+i/rank || seen[at] {
				t.Errorf("number %d of part %d lies at %d", i, part, at)
			}
			seen[at] = true
		}
		for e, path := range paths {
			row := make([]float32, in)
			updates[path](row, 0)
			for i, x := range row {
				if want := whole[(e*in+i)*out+part]; x != want {
					t.Errorf("%s: merged %v at %d, want %v", path, x, i, want)
				}
			}
		}
	}
}

// TestTwister compares the generator with torch.Generator().manual_seed(7): the 24 bits of its first uniform numbers.
func TestTwister(t *testing.T) {
	g := newTwister(7)
	for i, want := range []float32{8974511, 3335364, 11059737} {
		if got := g.float32() * (1 << 24); got != want {
			t.Errorf("number %d is %v, want %v", i, got, want)
		}
	}
}

// TestVeRAMatrices: a folder without the random matrices has those of its key, one with others uses them, and a run of
// another key refuses both.
func TestVeRAMatrices(t *testing.T) {
	c := VeRA{R: 2, ProjectionPRNGKey: 3, Layers: Layers{TargetModules: Targets{"q_proj"}}}.layersConfig()
	params := []Param{{"l.q_proj.vera_lambda_b", []int{4}, make([]float32, 4)}, {"l.q_proj.vera_lambda_d", []int{2}, make([]float32, 2)}}
	saved := func(c Config) *Saved {
		files, err := Methods["vera"].Encode(c, "base", []string{"l.q_proj"}, params)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Decode(files[ConfigFile], files[WeightsFile])
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Read(params); err != nil {
			t.Fatal(err)
		}
		return s
	}
	without := saved(c)
	c.sizes = &layerSizes{in: 3, out: 4}
	with := saved(c)
	if without.Config.projections != nil || !slices.Equal(with.Config.projections.a.Data, newProjections(3, 2, 3, 4).a.Data) {
		t.Error("the matrices are not those of the key")
	}
	changed := c
	changed.projections = newProjections(9, 2, 3, 4)
	for what, v := range map[string]struct {
		s    *Saved
		want string
	}{
		"without": {without, "the adapter's random matrices are of key 3, this run's of 4"},
		"with":    {with, "are not those that vera.projection_prng_key 4 makes: set the key"},
		"others":  {saved(changed), "are not those that vera.projection_prng_key 3 makes: set the key"},
	} {
		own := VeRA{R: 2, ProjectionPRNGKey: 4}
		if what == "others" {
			own.ProjectionPRNGKey = 3
		}
		if err := v.s.CheckFrozen(own.layersConfig()); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: got  %v\nwant %s", what, err, v.want)
		}
	}
	for _, s := range []*Saved{without, with} {
		if err := s.CheckFrozen(c); err != nil {
			t.Error(err)
		}
	}
}

// TestBrokenMethodFolders: what is wrong with an adapter_config.json of a further method.
func TestBrokenMethodFolders(t *testing.T) {
	for config, want := range map[string]string{
		`"peft_type": "IA3", "feedforward_modules": 3`:          "target_modules is 3: no name and no list of names",
		`"peft_type": "MISS", "r": 8, "init_weights": "bat"`:    "init_weights is bat: only true is supported",
		`"peft_type": "MISS", "r": 0`:                           "r is 0: it must be at least 1",
		`"peft_type": "MISS", "r": 5000`:                        "miss.r: 5000 must be from 0 to 4096",
		`"peft_type": "VERA", "r": 0`:                           "r is 0: it must be at least 1",
		`"peft_type": "VERA", "r": 4, "bias": "all"`:            `bias "all": only adapters that train no bias are supported`,
		`"peft_type": "VERA", "r": 4, "velocity": 3`:            "velocity is 3: tierlora does not know whether it changes the adapter",
		`"peft_type": "VERA", "r": 4, "fan_in_fan_out": true`:   "fan_in_fan_out is true: no model here stores its weights that way",
		`"peft_type": "VERA", "r": 4, "modules_to_save": ["x"]`: "modules_to_save [x]: whole trained modules are not supported",
	} {
		raw := "{" + config + `, "base_model_name_or_path": "b", "target_modules": ["q_proj"]}`
		if _, err := Decode([]byte(raw), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", config, err, want)
		}
	}
}
