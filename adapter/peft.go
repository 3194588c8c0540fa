package adapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
)

// Files of a PEFT adapter folder.
const (
	ConfigFile  = "adapter_config.json"
	WeightsFile = "adapter_model.safetensors"

	peftPrefix = "base_model.model."
	maxConfig  = 1 << 20
)

// peftConfig is adapter_config.json as PEFT 0.18 writes it, keys in PEFT's (alphabetical) order.
type peftConfig struct {
	AlphaPattern    map[string]float64 `json:"alpha_pattern"`
	AutoMapping     any                `json:"auto_mapping"`
	BaseModel       string             `json:"base_model_name_or_path"`
	Bias            string             `json:"bias"`
	FanInFanOut     bool               `json:"fan_in_fan_out"`
	InferenceMode   bool               `json:"inference_mode"`
	InitLoRAWeights any                `json:"init_lora_weights"`
	Alpha           json.Number        `json:"lora_alpha"`
	Dropout         float64            `json:"lora_dropout"`
	ModulesToSave   []string           `json:"modules_to_save"`
	PEFTType        string             `json:"peft_type"`
	R               int                `json:"r"`
	RankPattern     map[string]int     `json:"rank_pattern"`
	TargetModules   any                `json:"target_modules"`
	TaskType        string             `json:"task_type"`
	UseDoRA         bool               `json:"use_dora"`
	UseRSLoRA       bool               `json:"use_rslora"`
}

// mustBeOff are keys of adapter_config.json that change the arithmetic in ways this package does not know:
// anything but the value that means "off" is an error.
var mustBeOff = []string{
	"alora_invocation_tokens", "arrow_config", "corda_config", "eva_config", "exclude_modules", "layer_replication",
	"layers_pattern", "layers_to_transform", "loftq_config", "lora_bias", "megatron_config", "target_parameters",
	"trainable_token_indices", "use_qalora", "auto_mapping", "ensure_weight_tying",
}

// knownInits are the values of init_lora_weights that leave the base model's weights as they are.
var knownInits = []any{nil, true, false, "gaussian", "orthogonal", "eva"}

// harmless are keys that say nothing about the arithmetic.
var harmless = []string{"megatron_core", "peft_version", "qalora_group_size", "revision", "runtime_config", "inference_mode", "task_type"}

// Saved is an adapter folder that was read.
type Saved struct {
	Config    Config
	BaseModel string
	file      *weights.File
}

// Close releases the mapped weights.
func (s *Saved) Close() error { return s.file.Close() }

// Open reads a PEFT adapter folder.
func Open(dir string) (*Saved, error) {
	path := filepath.Join(dir, ConfigFile)
	raw, err := readBounded(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %w", err)
	}
	c, base, err := parseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", path, err)
	}
	f, err := weights.Open(filepath.Join(dir, WeightsFile))
	if err != nil {
		return nil, fmt.Errorf("read adapter: %w", err)
	}
	return &Saved{Config: c, BaseModel: base, file: f}, nil
}

// Decode is Open for the two files' contents.
func Decode(config, model []byte) (*Saved, error) {
	c, base, err := parseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %s: %w", ConfigFile, err)
	}
	f, err := weights.Decode(model)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %s: %w", WeightsFile, err)
	}
	return &Saved{Config: c, BaseModel: base, file: f}, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that such a file may have", path, info.Size(), limit)
	}
	return regular.ReadFile(path)
}

func parseConfig(raw []byte) (Config, string, error) {
	var keys map[string]json.RawMessage
	if err := jsonerr.Unmarshal(raw, &keys); err != nil {
		return Config{}, "", err
	}
	var p peftConfig
	if err := jsonerr.Unmarshal(raw, &p); err != nil {
		return Config{}, "", err
	}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if p.PEFTType != "LORA" {
		bad("peft_type %q is not LORA", p.PEFTType)
	}
	if p.UseDoRA {
		bad("use_dora is true: DoRA adapters are not supported")
	}
	if p.Bias != "none" && p.Bias != "" {
		bad("bias %q: only adapters that train no bias are supported", p.Bias)
	}
	if v := p.InitLoRAWeights; !slices.Contains(knownInits, v) {
		bad("init_lora_weights is %v: it may change the base model's weights, which is not supported", v)
	}
	if p.FanInFanOut {
		bad("fan_in_fan_out is true: no model here stores its weights that way")
	}
	if len(p.ModulesToSave) > 0 {
		bad("modules_to_save %v: whole trained modules are not supported", p.ModulesToSave)
	}
	alpha, err := p.Alpha.Float64()
	if err != nil {
		bad("lora_alpha %q is no number", p.Alpha)
	}
	known := map[string]bool{}
	for _, k := range jsonKeys() {
		known[k] = true
	}
	for _, k := range harmless {
		known[k] = true
	}
	for _, k := range mustBeOff {
		known[k] = true
		if v, ok := keys[k]; ok && !isOff(v) {
			bad("%s is %s: it is not supported", k, bytes.TrimSpace(v))
		}
	}
	for _, k := range sortedKeys(keys) {
		if !known[k] && !isOff(keys[k]) {
			bad("%s is %s: tierlora does not know whether it changes the adapter", k, bytes.TrimSpace(keys[k]))
		}
	}
	rankOrder, err := keyOrder(keys["rank_pattern"])
	if err != nil {
		bad("rank_pattern: %w", err)
	}
	alphaOrder, err := keyOrder(keys["alpha_pattern"])
	if err != nil {
		bad("alpha_pattern: %w", err)
	}
	c := Config{rankOrder: rankOrder, alphaOrder: alphaOrder, R: p.R, Alpha: alpha, Dropout: p.Dropout, UseRSLoRA: p.UseRSLoRA, RankPattern: p.RankPattern, AlphaPattern: p.AlphaPattern}
	switch t := p.TargetModules.(type) {
	case string:
		c.TargetModules = Targets{t}
	case []any:
		for _, m := range t {
			name, ok := m.(string)
			if !ok {
				bad("target_modules holds %v, which is no name", m)
			}
			c.TargetModules = append(c.TargetModules, name)
		}
		sort.Strings(c.TargetModules)
	default:
		bad("target_modules is missing")
	}
	if len(problems) == 0 {
		problems = c.Validate()
	}
	return c, p.BaseModel, errors.Join(problems...)
}

// keyOrder lists the keys of a JSON object of plain values in the file's order.
func keyOrder(object json.RawMessage) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil // absent or null
	}
	keys := []string{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if slices.Contains(keys, name) {
			return nil, fmt.Errorf("%q stands there twice", name)
		}
		keys = append(keys, name)
		if _, err := d.Token(); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func jsonKeys() []string {
	raw, _ := json.Marshal(peftConfig{})
	var keys map[string]json.RawMessage
	json.Unmarshal(raw, &keys) //nolint:errcheck // of our own making
	return sortedKeys(keys)
}

// isOff tells whether a value means that a feature is not used.
func isOff(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "null", "false", "{}", "[]", `""`:
		return true
	}
	return false
}

// Param is a trained tensor by our name: PEFT's without its prefix.
type Param struct {
	Name  string
	Shape []int
	Data  []float32
}

// Read copies the adapter's tensors into params. A tensor without a home, a home without a tensor and a
// wrong shape are all listed in the error.
func (s *Saved) Read(params []Param) error {
	want := make([]weights.Spec, len(params))
	for i, p := range params {
		want[i] = weights.Spec{Name: peftPrefix + p.Name, Shape: p.Shape}
	}
	if err := weights.Check(s.file, want); err != nil {
		return fmt.Errorf("the adapter does not fit the model: %w", err)
	}
	for _, p := range params {
		t, _ := s.file.Tensor(peftPrefix + p.Name)
		if err := weights.Float32s(t, p.Data); err != nil {
			return fmt.Errorf("read adapter tensor %s: %w", t.Name, err)
		}
	}
	return nil
}

// Encode makes the two files of a PEFT adapter folder: byte for byte the same for the same numbers.
// layers are the adapted layers' paths, base is the model's name as the run gives it.
func Encode(c Config, base string, layers []string, params []Param) (map[string][]byte, error) {
	p := peftConfig{
		AlphaPattern: orEmpty(c.AlphaPattern), RankPattern: orEmpty(c.RankPattern), BaseModel: base, Bias: "none", InferenceMode: true,
		InitLoRAWeights: true, Alpha: json.Number(fmt.Sprint(c.Alpha)), Dropout: c.Dropout, PEFTType: "LORA", R: c.R,
		TargetModules: c.fileTargets(layers), TaskType: "CAUSAL_LM", UseRSLoRA: c.UseRSLoRA,
	}
	config, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ConfigFile, err)
	}
	tensors := make([]weights.Tensor, len(params))
	for i, q := range params {
		if tensors[i], err = weights.FromFloat32s(peftPrefix+q.Name, weights.F32, q.Shape, q.Data); err != nil {
			return nil, fmt.Errorf("write %s: %w", WeightsFile, err)
		}
	}
	model, err := weights.Encode(tensors, map[string]string{"format": "pt"})
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", WeightsFile, err)
	}
	return map[string][]byte{ConfigFile: append(config, '\n'), WeightsFile: model}, nil
}

// fileTargets are the targets as PEFT saves them: all-linear as the names it stood for.
func (c Config) fileTargets(layers []string) any {
	if re, ok := c.TargetModules.expression(); ok {
		return re
	}
	names := slices.Clone(c.TargetModules)
	if names[0] == AllLinear {
		names = nil
		for _, l := range layers {
			names = append(names, l[strings.LastIndexByte(l, '.')+1:])
		}
	}
	sort.Strings(names)
	return slices.Compact(names)
}

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}
