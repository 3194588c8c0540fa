package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/model/weights"
)

// mlxWeightsFile holds the tensors of an adapter folder of mlx-lm, beside an adapter_config.json with other keys than PEFT's.
const mlxWeightsFile = "adapters.safetensors"

// Ends of mlx-lm's names of tensors: lora_a is [In,R] and lora_b [R,Out], the transposes of PEFT's.
const (
	mlxA = ".lora_a"
	mlxB = ".lora_b"
)

// mlxConfig is what adapter_config.json of mlx-lm says of an adapter's arithmetic; the rest is how it was trained.
type mlxConfig struct {
	Type       string `json:"fine_tune_type"` // lora where it is absent
	Model      string `json:"model"`
	Parameters struct {
		Scale   *float64 `json:"scale"` // multiplies B A
		Alpha   *float64 `json:"alpha"` // of versions before 0.19: alpha/rank multiplies
		Rank    int      `json:"rank"`
		Dropout float64  `json:"dropout"`
	} `json:"lora_parameters"`
}

// isMLX tells whether the keys of an adapter_config.json are mlx-lm's.
func isMLX(keys map[string]json.RawMessage) bool {
	_, peft := keys["peft_type"]
	_, kind := keys["fine_tune_type"]
	_, parameters := keys["lora_parameters"]
	return !peft && (kind || parameters)
}

// parseMLX reads adapter_config.json of mlx-lm.
func parseMLX(raw []byte) (mlxConfig, error) {
	var c mlxConfig
	if err := jsonerr.Unmarshal(raw, &c); err != nil {
		return c, err
	}
	p := &c.Parameters
	switch {
	case c.Type != "" && c.Type != "lora":
		return c, fmt.Errorf("it is mlx-lm's of fine_tune_type %q, and only its LoRA adapters are read: fuse it there with mlx_lm.fuse, and use the fused model", c.Type)
	case p.Scale == nil && p.Alpha != nil && p.Rank > 0:
		scale := *p.Alpha / float64(p.Rank)
		p.Scale = &scale
	case p.Scale == nil:
		return c, errors.New("it is mlx-lm's, and its lora_parameters hold no scale")
	}
	return c, nil
}

// openMLX reads an adapter folder of mlx-lm as PEFT's folder of the same adapter. Its tensors say which layers are adapted, with
// which ranks.
func openMLX(dir string, raw []byte) (*Saved, error) {
	c, err := parseMLX(raw)
	if err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", filepath.Join(dir, ConfigFile), err)
	}
	path := filepath.Join(dir, mlxWeightsFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("read adapter %s: %s is mlx-lm's, and there is no %s beside it: %w", dir, ConfigFile, mlxWeightsFile, err)
	}
	file, err := weights.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %w", err)
	}
	defer file.Close() //nolint:errcheck // what was read is a copy
	s := &Saved{Method: Methods["lora"], BaseModel: c.Model}
	s.Config = Config{Shared: Shared{Dropout: c.Parameters.Dropout, TargetModules: Targets{}, TargetParameters: []string{},
		RankPattern: map[string]int{}, AlphaPattern: map[string]float64{}}}
	ranks, tensors, values := map[string]int{}, []weights.Tensor{}, map[string][]float32{}
	for _, name := range file.Names() {
		t, _ := file.Tensor(name)
		layer, isA := strings.CutSuffix(name, mlxA)
		suffix, side := suffixA, 1
		if !isA {
			var isB bool
			if layer, isB = strings.CutSuffix(name, mlxB); !isB {
				return nil, fmt.Errorf("read adapter %s: the folder is mlx-lm's by its %s, and tensor %s is none of its LoRA's (NAME%s, NAME%s)", path, ConfigFile, name, mlxA, mlxB)
			}
			suffix, side = suffixB, 0
		}
		if len(t.Shape) != 2 {
			return nil, fmt.Errorf("read adapter %s: tensor %s has shape %v: of mlx-lm's adapters those of linear layers are read, not those of experts held side by side; fuse it there with mlx_lm.fuse, and use the fused model", path, name, t.Shape)
		}
		other, _ := file.Tensor(layer + map[bool]string{true: mlxB, false: mlxA}[isA])
		if rank := t.Shape[side]; len(other.Shape) != 2 || other.Shape[1-side] != rank || rank < 1 {
			return nil, fmt.Errorf("read adapter %s: %s%s and %s%s do not multiply: their shapes are %v and %v", path, layer, mlxA, layer, mlxB, t.Shape, other.Shape)
		}
		own := nameSince452(layer)
		ranks[own] = t.Shape[side]
		values[peftPrefix+own+suffix], err = transposed(t)
		if err != nil {
			return nil, fmt.Errorf("read adapter tensor %s: %w", name, err)
		}
		tensors = append(tensors, weights.Tensor{Name: peftPrefix + own + suffix, DType: weights.F32, Shape: []int{t.Shape[1], t.Shape[0]}})
	}
	if len(ranks) == 0 {
		return nil, fmt.Errorf("read adapter %s: it holds no tensor", path)
	}
	s.Config.TargetModules = sortedKeys(ranks)
	s.Config.R = slices.Max(slices.Collect(maps.Values(ranks)))
	s.Config.Alpha = *c.Parameters.Scale * float64(s.Config.R)
	for _, layer := range s.Config.TargetModules {
		if r := ranks[layer]; r != s.Config.R {
			s.Config.RankPattern[regexp.QuoteMeta(layer)], s.Config.AlphaPattern[regexp.QuoteMeta(layer)] = r, *c.Parameters.Scale*float64(r)
		}
	}
	if problems := s.Config.Validate(); problems != nil {
		return nil, fmt.Errorf("read adapter %s: %w", filepath.Join(dir, ConfigFile), errors.Join(problems...))
	}
	model, err := weights.EncodeFloat32s(tensors, map[string]string{"format": "pt"}, values)
	if err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", path, err)
	}
	if s.file, err = weights.Decode(model); err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", path, err)
	}
	s.tensorNames()
	return s, nil
}

// transposed are the numbers of a matrix [n,m] as those of [m,n].
func transposed(t weights.Tensor) ([]float32, error) {
	n, m := t.Shape[0], t.Shape[1]
	from, to := make([]float32, n*m), make([]float32, n*m)
	if err := weights.Float32s(t, from); err != nil {
		return nil, err
	}
	for i := range n {
		for j := range m {
			to[j*n+i] = from[i*m+j]
		}
	}
	return to, nil
}

// noWeights is the error for a folder without the file of weights: it names what is there in its place.
func noWeights(dir string) error {
	for name, what := range map[string]string{"adapter_model.bin": "a pickle", "adapters.npz": "NumPy's archive, of mlx-lm before 0.13"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			continue
		}
		convert := "load it with a newer mlx-lm and save it again"
		if name == "adapter_model.bin" {
			convert = `a pickle runs code when it is read, so convert it only where you trust its source: python3 -c "import torch, safetensors.torch as s; ` +
				`s.save_file({k: v.contiguous() for k, v in torch.load('adapter_model.bin', weights_only=True).items()}, 'adapter_model.safetensors', {'format': 'pt'})"`
		}
		return fmt.Errorf("it holds %s, %s, and no %s: %s", name, what, WeightsFile, convert)
	}
	return nil
}
