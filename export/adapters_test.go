package export

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// mixed is an adapter whose layers differ in rank and scale: three of them, in blocks 1 and 2 of stories260K.
func mixed(t *testing.T) string {
	t.Helper()
	c := adapter.Default()
	c.R, c.Alpha, c.TargetModules = 2, 3, adapter.Targets{
		`model\.layers\.(1\.self_attn\.q_proj|2\.self_attn\.v_proj|2\.mlp\.down_proj)`}
	c.RankPattern, c.AlphaPattern = map[string]int{`down_proj`: 3}, map[string]float64{`v_proj`: 5}
	var params []adapter.Param
	for i, l := range []struct {
		path    string
		in, out int
	}{{"model.layers.1.self_attn.q_proj", 64, 64}, {"model.layers.2.mlp.down_proj", 172, 64},
		{"model.layers.2.self_attn.v_proj", 64, 32}} {
		r := c.Rank(l.path)
		for j, p := range []adapter.Param{{Name: l.path + ".lora_A.weight", Shape: []int{r, l.in}},
			{Name: l.path + ".lora_B.weight", Shape: []int{l.out, r}}} {
			for k := range p.Shape[0] * p.Shape[1] {
				p.Data = append(p.Data, float32(math.Sin(float64(1+k)*(1.7+float64(i)+0.3*float64(j))))*0.2)
			}
			params = append(params, p)
		}
	}
	return writeLoRA(t, c, "stories260K", nil, params)
}

// writeLoRA writes an adapter's folder.
func writeLoRA(t *testing.T, c adapter.Config, base string, names []string, params []adapter.Param) string {
	t.Helper()
	files, err := adapter.Methods["lora"].Encode(c, base, names, params)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestAdapterFolders: in every format the adapter's update of every layer is the original's.
func TestAdapterFolders(t *testing.T) {
	from, model := mixed(t), golden.StoriesDir(t)
	want := updatesOf(t, model, from)
	for _, format := range []string{"vllm", "peft"} {
		out := filepath.Join(t.TempDir(), format)
		r, err := Export(context.Background(), Options{Format: format, Model: model, Adapter: from, Out: out},
			session.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Tensors != 6 || !slices.Contains(r.Files, "tokenizer.json") {
			t.Errorf("%s: %+v", format, r)
		}
		var config map[string]any
		golden.JSON(t, filepath.Join(out, adapter.ConfigFile), &config)
		if config["r"] != 3.0 || len(config["rank_pattern"].(map[string]any)) != 0 ||
			len(config["alpha_pattern"].(map[string]any)) != 0 || config["use_rslora"] != false {
			t.Errorf("%s: %v", format, config)
		}
		file, err := weights.Open(filepath.Join(out, adapter.WeightsFile))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range slices.Sorted(func(yield func(string) bool) {
			for l := range want {
				if !yield(l) {
					return
				}
			}
		}) {
			a, _ := file.Tensor("base_model.model." + l + ".lora_A.weight")
			b, _ := file.Tensor("base_model.model." + l + ".lora_B.weight")
			compareUpdate(t, format+" "+l, product(t, b, a, false, config["lora_alpha"].(float64)/3), want[l])
		}
		file.Close()
	}
	out := filepath.Join(t.TempDir(), "mlx")
	if _, err := Export(context.Background(), Options{Format: "mlx", Model: model, Adapter: from, Out: out},
		session.Env{}); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Layers     int `json:"num_layers"`
		Parameters struct {
			Rank  int
			Scale float64
			Keys  []string
		} `json:"lora_parameters"`
	}
	golden.JSON(t, filepath.Join(out, adapter.ConfigFile), &config)
	if config.Layers != 4 || config.Parameters.Rank != 3 || !slices.Equal(config.Parameters.Keys,
		[]string{"mlp.down_proj", "self_attn.q_proj", "self_attn.v_proj"}) {
		t.Errorf("%+v", config)
	}
	file, err := weights.Open(filepath.Join(out, "adapters.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if n := len(file.Names()); n != 2*3*4 {
		t.Errorf("%d tensors", n)
	}
	for _, name := range file.Names() {
		l, ok := strings.CutSuffix(name, ".lora_a")
		if !ok {
			continue
		}
		a, _ := file.Tensor(name)
		b, _ := file.Tensor(l + ".lora_b")
		got := product(t, a, b, true, config.Parameters.Scale)
		if want[l] == nil {
			want[l] = make([]float64, len(got))
		}
		compareUpdate(t, "mlx "+l, got, want[l])
	}
	for l, got := range updatesOf(t, model, out) { // and read as an adapter
		compareUpdate(t, "mlx, read, "+l, got, want[l])
	}
}

// TestTargetsOfExports: what an exported folder says it adapts is what it holds, also where the adapter names layers
// one by one, or leaves some out as PEFT's files may.
func TestTargetsOfExports(t *testing.T) {
	model := golden.StoriesDir(t)
	for _, edit := range []map[string]any{
		{"target_modules": []string{"model.layers.1.self_attn.q_proj", "model.layers.2.self_attn.v_proj",
			"2.mlp.down_proj"}},
		{"target_modules": "all-linear",
			"exclude_modules": `.*\.(0|3|4)\..*|.*[ko]_proj|.*(gate|up)_proj|.*1\.self_attn\.v_proj|.*2\.self_attn\.q_proj|.*1\.mlp\.down_proj`},
	} {
		from := mixed(t)
		var config map[string]any
		path := filepath.Join(from, adapter.ConfigFile)
		golden.JSON(t, path, &config)
		maps.Copy(config, edit)
		raw, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		want := updatesOf(t, model, from)
		for _, format := range []string{"vllm", "peft"} {
			out := filepath.Join(t.TempDir(), format)
			if _, err := Export(context.Background(), Options{Format: format, Model: model, Adapter: from, Out: out,
				DType: "f32"}, session.Env{}); err != nil {
				t.Fatal(err)
			}
			got := updatesOf(t, model, out)
			if len(want) != 3 || len(got) != len(want) {
				t.Errorf("%s: %d layers of %d", format, len(got), len(want))
			}
			for l := range want {
				compareUpdate(t, format+" "+l, got[l], want[l])
			}
		}
	}
}

// updatesOf are an adapter's updates by layers.
func updatesOf(t *testing.T, model, dir string) map[string][]float64 {
	t.Helper()
	s, err := session.Open(context.Background(), session.Options{Model: model, Device: "cpu"}, session.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.UseAdapter(dir); err != nil {
		t.Fatal(err)
	}
	mergers, err := s.Mergers()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float64{}
	for l, m := range mergers {
		w, _ := s.Base.Tensors().Tensor(l + ".weight")
		x := make([]float32, w.Len())
		m(x, 0)
		out[l] = golden.Numbers(x)
	}
	return out
}

// product is scale x y of matrices, or its transpose.
func product(t *testing.T, x, y weights.Tensor, transpose bool, scale float64) []float64 {
	t.Helper()
	a, b := make([]float64, x.Len()), make([]float64, y.Len())
	if weights.Float64s(x, a) != nil || weights.Float64s(y, b) != nil {
		t.Fatalf("%s, %s can't be read", x.Name, y.Name)
	}
	rows, inner, cols := x.Shape[0], x.Shape[1], y.Shape[1]
	out := make([]float64, rows*cols)
	for i := range rows {
		for j := range cols {
			at := i*cols + j
			if transpose {
				at = j*rows + i
			}
			for k := range inner {
				out[at] += scale * a[i*inner+k] * b[k*cols+j]
			}
		}
	}
	return out
}

func compareUpdate(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-6 {
			t.Errorf("%s: number %d is %g, want %g", what, i, got[i], want[i])
			return
		}
	}
}

// TestAdapterFormatsRefuse: what a program can't load is refused with what to do instead.
func TestAdapterFormatsRefuse(t *testing.T) {
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	family := func(folder, name string) golden.FamilyModel { return golden.FamilyModel{Folder: folder, Name: name} }
	parameters, experts := family("experts", "gpt_oss_balanced"), family("experts", "mixtral_balanced")
	for _, c := range []struct {
		format, model, adapter, out, want string
	}{
		{"vllm", golden.StoriesDir(t), mixed(t), occupied, "the folder is there and not empty; name another folder"},
		{"vllm", parameters.Dir(t), parameters.Adapter(t), "",
			"which no program reads in this format: merge it instead (trainer merge)"},
		{"peft", parameters.Dir(t), parameters.Adapter(t), "",
			"and PEFT reads its folder as it is. For other programs merge it instead (trainer merge)"},
		{"mlx", experts.Dir(t), experts.Adapter(t), "", "merge it instead (trainer merge)"},
		{"mlx", golden.StoriesDir(t), "", "", "--format mlx exports an adapter: name it with --adapter DIR"},
	} {
		if c.out == "" {
			c.out = filepath.Join(t.TempDir(), "x")
		}
		_, err := Export(context.Background(), Options{Format: c.format, Model: c.model, Adapter: c.adapter,
			Out: c.out}, session.Env{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.format, err, c.want)
		}
	}
}

// TestOthersLoadIt: transformers, PEFT, bitsandbytes, vLLM's and mlx-lm's loaders read what was written and compute
// what PEFT computes with the adapter beside the base; merged weights are merge_and_unload's, of every family.
func TestOthersLoadIt(t *testing.T) {
	python := os.Getenv("TRAINER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import torch, transformers, peft").Run() != nil {
		t.Skipf("%s has no torch, transformers and PEFT; TRAINER_PYTHON names one that has", python)
	}
	type job struct {
		What    string  `json:"what"`
		Base    string  `json:"base"`
		Adapter string  `json:"adapter"` // "" = none
		Out     string  `json:"out"`
		Weights *string `json:"weights"`
	}
	var jobs []job
	var names []string
	var bounds []float64 // of the difference, of the largest logit
	add := func(name string, bound float64, j job) {
		jobs, names, bounds = append(jobs, j), append(names, name), append(bounds, bound)
	}
	merge := func(o MergeOptions) string {
		t.Helper()
		o.Out = filepath.Join(t.TempDir(), "merged")
		if _, err := Merge(context.Background(), o, session.Env{}); err != nil {
			t.Fatalf("%s: %v", o.Model, err)
		}
		return o.Out
	}
	for _, m := range golden.FamilyModels(t) {
		dir := m.Dir(t)
		raw := golden.ReadFile(t, dir, "config.json")
		if bytes.Contains(raw, []byte("quantization_config")) || m.Name == "gemma3_images" {
			continue // PEFT's numbers are those of transformers' own dequantisation; the images' class is another
		}
		add(m.Name, 2e-5, job{What: "merged", Base: dir, Adapter: m.Adapter(t),
			Out: merge(MergeOptions{Model: dir, Adapters: One(m.Adapter(t)), DType: "fp32", AllowLoss: true,
				Check: []string{}})})
	}
	stories, from := golden.StoriesDir(t), mixed(t)
	for _, format := range []string{"peft", "vllm", "mlx"} {
		out := filepath.Join(t.TempDir(), format)
		if _, err := Export(context.Background(), Options{Format: format, Model: stories, Adapter: from, Out: out},
			session.Env{}); err != nil {
			t.Fatal(err)
		}
		add(format, 2e-5, job{What: format, Base: stories, Adapter: from, Out: out})
		if format == "vllm" {
			add("vllm in PEFT", 2e-5, job{What: "peft", Base: stories, Adapter: from, Out: out})
		}
	}
	none := One(adapterOf(t, map[string][2]int{"model.layers.0.self_attn.q_proj": {64, 64}}, func(bool, int) float32 {
		return 0
	}))
	packed := merge(MergeOptions{Model: stories, Adapters: One(from), DType: NF4, AllowLoss: true, Check: []string{}})
	// what we say that they stand for
	numbers := merge(MergeOptions{Model: packed, Adapters: none, DType: "fp32", Check: []string{}})
	add("nf4", 2e-5, job{What: "nf4", Base: numbers, Out: packed})
	list, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "jobs.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, filepath.Join(golden.Root(t), "scripts", "loadcheck.py"), file)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errOut.String())
	}
	var results []struct {
		Skipped             string
		Difference, Largest float64
		Weights             float64
	}
	if err := json.Unmarshal(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:], &results); err != nil ||
		len(results) != len(jobs) {
		t.Fatalf("%v: %s", err, out)
	}
	for i, r := range results {
		switch {
		case r.Skipped != "":
			t.Logf("%s: skipped, %s", names[i], r.Skipped)
			continue
		case !(r.Difference <= bounds[i]*math.Max(1, r.Largest)) || r.Weights > 1e-6:
			t.Errorf("%s: logits differ by %.3g of %.3g, weights by %.3g", names[i], r.Difference, r.Largest, r.Weights)
		}
		t.Logf("%s: logits differ by %.3g of %.3g, weights by %.3g", names[i], r.Difference, r.Largest, r.Weights)
	}
}
