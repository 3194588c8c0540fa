package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// pair is a layer's LoRA matrices with their scale.
type pair struct {
	layer string
	a, b  adapter.Param // [R,In], [Out,R]
	scale float64
}

// pairs holds an adapter, layer by layer.
type pairs struct {
	all    []pair
	config adapter.Config
	// files holds files to copy: the tokenizer's, the chat template and the end tokens.
	files   map[string][]byte
	answers Answers
	// saved holds the tensors of modules that the adapter saves in whole.
	saved []adapter.Param
	// linears declares every linear layer of the model; mixture describes how transformers and PEFT treat its experts.
	linears *adapter.Trained
	mixture adapter.Mixture
}

// notPairs refuses an adapter whose update is more than s B A.
func notPairs(m adapter.Method) error {
	return fmt.Errorf("the adapter %s, for which the format has no place: merge it instead (trainer merge), or export "+
		"the merged model", m.Update())
}

// refuseSaved refuses an adapter that has more than updates of linear layers.
func refuseSaved(c adapter.Config) error {
	beyond := adapter.Beyond(c)
	if beyond == "" {
		return nil
	}
	return fmt.Errorf("the adapter %s, for which the format has no place: merge it instead (trainer merge), or export "+
		"the merged model", beyond)
}

// readPairs reads the adapter of a folder for a model, layer by layer.
func readPairs(ctx context.Context, o Options, env session.Env) (r pairs, err error) {
	s, err := session.Open(ctx, session.Options{Model: o.Model, Device: "cpu"}, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.UseAdapter(o.Adapter); err != nil {
		return r, err
	}
	if !s.Net.Method.Sums {
		if o.Format == "peft" {
			return r, fmt.Errorf("the adapter is one of %s, whose folder PEFT reads as it is; for other programs "+
				"merge it (trainer merge)", s.Net.Method.Label())
		}
		return r, notPairs(s.Net.Method)
	}
	c := s.Net.Adapter
	trained, params, err := s.AdapterTensors()
	if err != nil {
		return r, fmt.Errorf("adapter %s: %w", o.Adapter, err)
	}
	if o.Format != "peft" {
		if err := refuseSaved(c); err != nil {
			return r, err
		}
	}
	base, params := trained.TrainedBase(params)
	r = pairs{config: c, saved: c.Saved().WithTiedHead(s.Base.Config.HeadName(), base), files: s.Base.Tokenizer.Files(), mixture: s.Net.Mixture()}
	if r.linears, err = linearLayers(s); err != nil {
		return r, err
	}
	byName := map[string]adapter.Param{}
	for _, p := range params {
		byName[p.Name] = p
	}
	for _, l := range trained.Layers {
		r.all = append(r.all, pair{l, byName[l+".lora_A.weight"], byName[l+".lora_B.weight"], c.Scale(l)})
	}
	for _, p := range trained.Parameters {
		if o.Format != "peft" || !r.mixture.Stacked {
			why := "which no program reads in this format:"
			if o.Format == "peft" {
				why = "and PEFT reads its folder as it is. For other programs"
			}
			return r, fmt.Errorf("the adapter adapts target_parameters (%s), %s merge it instead (trainer merge)",
				p.Name, why)
		}
		r.all = append(r.all, expertPairs(p, byName, c.Scale(p.Name))...)
	}
	r.answers, _, err = answering(s.Base, []string{o.Adapter}, r.files, false)
	return r, err
}

// uniform gives all layers the same rank, by adding rows and columns of zeros, and the same scale, by scaling B.
func uniform(pairs []pair) (rank int, scale float64, notes []string) {
	ranks := map[int]bool{}
	for _, p := range pairs {
		rank = max(rank, p.a.Shape[0])
		ranks[p.a.Shape[0]] = true
	}
	scale = pairs[0].scale
	scaled := false
	for i, p := range pairs {
		if p.scale != scale {
			scaled = true
			b := make([]float32, len(p.b.Data))
			for k, x := range p.b.Data {
				b[k] = float32(float64(x) * p.scale / scale)
			}
			pairs[i].b.Data, pairs[i].scale = b, scale
		}
		if r := p.a.Shape[0]; r < rank {
			pairs[i].a.Data = append(slices.Clone(p.a.Data), make([]float32, (rank-r)*p.a.Shape[1])...)
			wide := make([]float32, 0, p.b.Shape[0]*rank)
			for row := range p.b.Shape[0] {
				wide = append(append(wide, pairs[i].b.Data[row*r:(row+1)*r]...), make([]float32, rank-r)...)
			}
			pairs[i].b.Data = wide
			pairs[i].a.Shape, pairs[i].b.Shape = []int{rank, p.a.Shape[1]}, []int{p.b.Shape[0], rank}
		}
	}
	if len(ranks) > 1 {
		notes = append(notes,
			fmt.Sprintf("layers of lower ranks are filled with zeros to rank %d: the format has one rank", rank))
	}
	if scaled {
		notes = append(notes,
			fmt.Sprintf("the scales of some layers are multiplied into their B: the format has one scale, %g", scale))
	}
	return rank, scale, notes
}

var adapterTypes = []string{"f32", "f16", "bf16"}

var adapterDTypes = map[string]weights.DType{"f32": weights.F32, "f16": weights.F16, "bf16": weights.BF16}

// writeAdapter writes an adapter's folder atomically and reads its tensors back.
func writeAdapter(o Options, name string, list tensorList, meta map[string]string,
	files map[string][]byte) (Report, error) {
	if entries, err := os.ReadDir(o.Out); err == nil && len(entries) > 0 {
		return Report{}, errors.New("the folder is there and not empty; name another folder")
	}
	tensors := list.all
	data, err := weights.Encode(tensors, meta)
	if err != nil {
		return Report{}, err
	}
	r := Report{Tensors: len(tensors), Bytes: int64(len(data)),
		Types: []StoredTensor{{Type: o.DType, Tensors: len(tensors), Bytes: int64(len(data)), Error: list.error()}}}
	files[name] = data
	r.Files = slices.Sorted(maps.Keys(files))
	return r, staged(o.Out, func(dir string) error {
		for _, f := range r.Files {
			if err := atomicfile.Write(filepath.Join(dir, f), files[f]); err != nil {
				return err
			}
		}
		back, err := weights.Open(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
		defer back.Close() //nolint:errcheck // it was only read
		for _, t := range tensors {
			got, ok := back.Tensor(t.Name)
			if !ok || got.DType != t.DType || !slices.Equal(got.Shape, t.Shape) || !bytes.Equal(got.Data, t.Data) {
				return fmt.Errorf("read back what was written: tensor %s differs; check the disk", t.Name)
			}
		}
		return nil
	})
}

// tensorList collects the tensors of a file, and the sums of squares of their numbers and of their rounding errors.
type tensorList struct {
	all          []weights.Tensor
	whole, wrong float64
}

// add stores a tensor in the requested type.
func (l *tensorList) add(name string, o Options, shape []int, v []float32) error {
	d := adapterDTypes[o.DType]
	if i := tooLarge(d, v); i >= 0 {
		return fmt.Errorf("tensor %s has %v, which f16 can't hold: use bf16 or f32", name, v[i])
	}
	made, err := weights.FromFloat32s(name, d, shape, v)
	if err != nil {
		return err
	}
	then := make([]float32, len(v))
	weights.RoundFloat32s(then, d, v)
	for i, x := range v {
		l.whole += float64(x) * float64(x)
		l.wrong += (float64(x) - float64(then[i])) * (float64(x) - float64(then[i]))
	}
	l.all = append(l.all, made)
	return nil
}

// error returns the root mean square error relative to the numbers' root mean square.
func (l *tensorList) error() float64 {
	if l.whole == 0 {
		return 0
	}
	return math.Sqrt(l.wrong / l.whole)
}

// vllmRank is the highest rank that vLLM serves (vllm/config/lora.py, MaxLoRARanks).
const vllmRank = 512

// vllmAdapter writes a PEFT folder for vLLM's loader, which takes one rank and one scale from the configuration. Only
// newer versions read patterns, and none reads saved modules (vllm/lora/peft_helper.py, lora_model.py).
func vllmAdapter(ctx context.Context, o Options, env session.Env) (Report, error) {
	read, err := readPairs(ctx, o, env)
	if err != nil {
		return Report{}, err
	}
	pairs := read.all
	for _, p := range pairs {
		if p.layer == "lm_head" || strings.HasSuffix(p.layer, ".gate") || strings.HasSuffix(p.layer, ".router") {
			return Report{}, fmt.Errorf("vLLM serves no adapter of %s: merge it instead (trainer merge)", p.layer)
		}
	}
	rank, scale, notes := uniform(pairs)
	if rank > vllmRank {
		return Report{}, fmt.Errorf("the adapter has rank %d; vLLM serves at most %d: merge it instead (trainer merge)",
			rank, vllmRank)
	}
	start := fmt.Sprintf("start it with: vllm serve BASE --enable-lora --max-lora-rank %d --lora-modules NAME=%s",
		vllmLimit(rank), o.Out)
	if read.answers.other && read.files[templateFile] != nil {
		start += fmt.Sprintf(" --chat-template %s", filepath.Join(o.Out, templateFile))
	}
	if read.answers.more != nil {
		start += " --generation-config " + o.Out
	}
	notes = append(notes, start)
	if slices.ContainsFunc(pairs, func(p pair) bool { return strings.Contains(p.layer, ".experts.") }) {
		notes = append(notes, "adapters of experts are served by versions of vLLM that support them for the model "+
			"(fused MoE LoRA); older ones refuse the folder")
	}
	r, err := writePEFT(o, read, pairs, rank, scale)
	r.Notes = notes
	return r, err
}

// vllmLimit returns the smallest --max-lora-rank that accepts a rank.
func vllmLimit(rank int) int {
	for _, limit := range []int{8, 16, 32, 64, 128, 256, 320, vllmRank} {
		if rank <= limit {
			return limit
		}
	}
	return rank
}

// peftAdapter writes a PEFT folder with one rank and one scale in the requested type, for programs that do not support
// patterns.
func peftAdapter(ctx context.Context, o Options, env session.Env) (Report, error) {
	read, err := readPairs(ctx, o, env)
	if err != nil {
		return Report{}, err
	}
	rank, scale, notes := uniform(read.all)
	pairs := read.all
	if read.mixture.Stacked {
		var more []string
		pairs, more = fillExperts(pairs, read.linears.Linears())
		notes = append(notes, more...)
	}
	if more := read.answers.more; more != nil {
		notes = append(notes, fmt.Sprintf("PEFT's generate takes the end of an answer from the base model, which "+
			"does not name %s: pass generation_config=GenerationConfig.from_pretrained(%q)",
			strings.Join(more, ", "), o.Out))
	}
	r, err := writePEFT(o, read, pairs, rank, scale)
	r.Notes = notes
	return r, err
}

// writePEFT writes layers with one rank and one scale. target_modules are module names, or the layers' paths if names
// would not select the same layers.
func writePEFT(o Options, read pairs, pairs []pair, rank int, scale float64) (Report, error) {
	was, files, linears := read.config, read.files, read.linears.Linears()
	c := adapter.Config{Shared: adapter.Shared{R: rank, Alpha: scale * float64(rank), TargetParameters: []string{}},
		Own: adapter.BeyondSettings(was)}
	var layers []string
	var tensors tensorList
	for _, p := range pairs {
		layers = append(layers, p.layer)
		// a router that every version treats as a parameter
		if _, linear := slices.BinarySearch(linears, p.layer); !linear {
			c.TargetParameters = append(c.TargetParameters, p.layer+".weight")
		} else if was.ByName() {
			c.TargetModules = append(c.TargetModules, p.layer[strings.LastIndexByte(p.layer, '.')+1:])
		} else {
			c.TargetModules = append(c.TargetModules, p.layer)
		}
		for _, t := range []adapter.Param{p.a, p.b} {
			if err := tensors.add(adapter.PEFTName(t.Name), o, t.Shape, t.Data); err != nil {
				return Report{}, err
			}
		}
	}
	for _, t := range read.saved {
		if err := tensors.add(adapter.PEFTName(t.Name), o, t.Shape, t.Data); err != nil {
			return Report{}, err
		}
	}
	slices.Sort(c.TargetModules)
	c.TargetModules = slices.Compact(c.TargetModules)
	base, err := adapter.BaseModel(o.Adapter)
	if err != nil {
		base = o.Model
	}
	if o.Format == "peft" && read.mixture.Stacked {
		read.linears.Layers = layers
		c, _ = c.ForPEFT(read.linears, read.mixture)
	}
	config, err := adapter.Methods["lora"].PEFT.Format(c, base, layers)
	if err != nil {
		return Report{}, err
	}
	files[adapter.ConfigFile] = append(config, '\n')
	return writeAdapter(o, adapter.WeightsFile, tensors, map[string]string{"format": "pt"}, files)
}

// mlxLayer splits a layer's path into the block's number and the name inside the block, as mlx-lm's models have them.
var mlxLayer = regexp.MustCompile(`^model\.layers\.(\d+)\.(.+)$`)

// mlxAdapter writes a folder for mlx-lm's --adapter-path: adapters.safetensors with lora_a [In,R] and lora_b [R,Out],
// and adapter_config.json with one rank and scale (mlx_lm/tuner/utils.py, load_adapters). The last num_layers blocks
// are adapted alike.
func mlxAdapter(ctx context.Context, o Options, env session.Env) (Report, error) {
	read, err := readPairs(ctx, o, env)
	if err != nil {
		return Report{}, err
	}
	pairs := read.all
	rank, scale, notes := uniform(pairs)
	keys, there := map[string][2]int{}, map[string]bool{}
	first := -1
	for _, p := range pairs {
		m := mlxLayer.FindStringSubmatch(p.layer)
		if m == nil || strings.Contains(p.layer, ".experts.") {
			return Report{}, fmt.Errorf("mlx-lm has no layer %s of its own to adapt (it holds experts side by side, "+
				"and adapts the blocks' layers alone): merge it instead (trainer merge)", p.layer)
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return Report{}, err
		}
		if first < 0 || n < first {
			first = n
		}
		keys[m[2]] = [2]int{p.a.Shape[1], p.b.Shape[0]}
		there[p.layer] = true
	}
	blocks, err := layerCount(ctx, o, env)
	if err != nil {
		return Report{}, err
	}
	var tensors tensorList
	add := func(layer string, in, out int, a, b []float32) error {
		if err := tensors.add(layer+".lora_a", o, []int{in, rank}, transposed(a, rank, in)); err != nil {
			return err
		}
		return tensors.add(layer+".lora_b", o, []int{rank, out}, transposed(b, out, rank))
	}
	for _, p := range pairs {
		if err := add(p.layer, p.a.Shape[1], p.b.Shape[0], p.a.Data, p.b.Data); err != nil {
			return Report{}, err
		}
	}
	filled := 0
	names := slices.Sorted(maps.Keys(keys))
	for n := first; n < blocks; n++ {
		for _, k := range names {
			layer := fmt.Sprintf("model.layers.%d.%s", n, k)
			if there[layer] {
				continue
			}
			filled++
			size := keys[k]
			if err := add(layer, size[0], size[1], make([]float32, rank*size[0]),
				make([]float32, size[1]*rank)); err != nil {
				return Report{}, err
			}
		}
	}
	if filled > 0 {
		notes = append(notes, fmt.Sprintf("%d layers that the adapter does not adapt have one of zeros: mlx-lm "+
			"adapts the same layers of the last blocks", filled))
	}
	config, err := json.MarshalIndent(map[string]any{
		"fine_tune_type": "lora", "num_layers": blocks - first, "model": o.Model,
		"lora_parameters": map[string]any{"rank": rank, "scale": scale, "dropout": 0.0, "keys": names},
	}, "", "  ")
	if err != nil {
		return Report{}, err
	}
	read.files[adapter.ConfigFile] = append(config, '\n')
	r, err := writeAdapter(o, "adapters.safetensors", tensors, map[string]string{"format": "mlx"}, read.files)
	use := fmt.Sprintf("use it with: mlx_lm.generate --model BASE --adapter-path %s", o.Out)
	if read.answers.more != nil {
		use += " --extra-eos-token '" + strings.Join(read.answers.more, "' '") + "'"
	}
	if read.answers.other {
		use += "; mlx-lm takes the chat template from BASE: make a copy of BASE with this folder's " +
			"chat_template.jinja and tokenizer_config.json, or merge"
	}
	r.Notes = append(notes, use)
	return r, err
}

func layerCount(ctx context.Context, o Options, env session.Env) (int, error) {
	b, err := session.OpenBase(ctx, o.Model, env)
	if err != nil {
		return 0, err
	}
	return b.Config.NumLayers, b.Close()
}

// transposed returns a matrix [rows,cols] as [cols,rows].
func transposed(x []float32, rows, cols int) []float32 {
	out := make([]float32, len(x))
	for r := range rows {
		for c := range cols {
			out[c*rows+r] = x[r*cols+c]
		}
	}
	return out
}
