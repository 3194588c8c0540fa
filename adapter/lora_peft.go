package adapter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
)

// loraCodec reads and writes what PEFT calls a LoraConfig. PEFT's names of the tensors are ours.
var loraCodec = Codec{Type: "LORA", Parse: parseLoRA, Format: formatLoRA}

// peftConfig is adapter_config.json as PEFT 0.18 writes it, keys in PEFT's (alphabetical) order.
type peftConfig struct {
	AlphaPattern    patterns[float64] `json:"alpha_pattern"`
	AutoMapping     any               `json:"auto_mapping"`
	BaseModel       string            `json:"base_model_name_or_path"`
	Bias            string            `json:"bias"`
	TiesHead        bool              `json:"ensure_weight_tying,omitempty"`
	Excluded        any               `json:"exclude_modules,omitempty"`
	FanInFanOut     bool              `json:"fan_in_fan_out"`
	InferenceMode   bool              `json:"inference_mode"`
	InitLoRAWeights any               `json:"init_lora_weights"`
	LayersPattern   any               `json:"layers_pattern,omitempty"`
	Layers          any               `json:"layers_to_transform,omitempty"`
	Alpha           json.Number       `json:"lora_alpha"`
	LoRABias        bool              `json:"lora_bias,omitempty"`
	Dropout         float64           `json:"lora_dropout"`
	ModulesToSave   []string          `json:"modules_to_save"`
	PEFTType        string            `json:"peft_type"`
	R               int               `json:"r"`
	RankPattern     patterns[int]     `json:"rank_pattern"`
	Revision        string            `json:"revision,omitempty"` // of the base model on the hub
	TargetModules   any               `json:"target_modules"`
	Parameters      []string          `json:"target_parameters,omitempty"`
	TaskType        string            `json:"task_type"`
	TokenRows       any               `json:"trainable_token_indices,omitempty"`
	UseDoRA         bool              `json:"use_dora"`
	UseRSLoRA       bool              `json:"use_rslora"`
}

// mustBeOff are keys of adapter_config.json that change the arithmetic in ways this package does not know:
// anything but the value that means "off" is an error.
var mustBeOff = []string{
	"alora_invocation_tokens", "arrow_config", "corda_config", "layer_replication", "megatron_config",
	"use_qalora",
}

// knownInits are the values of init_lora_weights that leave the base model's weights as they are.
var knownInits = []any{nil, true, false, "gaussian", "orthogonal", "eva"}

// harmless are keys that say nothing about the arithmetic: auto_mapping is what PEFT writes in place of an absent task_type, the base model's class.
var harmless = []string{"auto_mapping", "megatron_core", "peft_version", "qalora_group_size",
	"loftq_config", "eva_config", "revision", "runtime_config", "inference_mode", "task_type"}

func parseLoRA(raw []byte, keys map[string]json.RawMessage) (Config, string, error) {
	var p peftConfig
	if err := jsonerr.Unmarshal(raw, &p); err != nil {
		return Config{}, "", err
	}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !slices.Contains([]string{"", biasNone, biasAll, biasAdapted}, p.Bias) {
		bad("bias %q: it is none of none, all and lora_only", p.Bias)
	}
	if v := p.InitLoRAWeights; v == "loftq" {
		checkLoftQ(keys["loftq_config"], bad)
	} else if !slices.Contains(knownInits, v) {
		bad("init_lora_weights is %v: it may change the base model's weights, which is not supported", v)
	}
	if p.FanInFanOut {
		bad("fan_in_fan_out is true: no model here stores its weights that way")
	}
	task, saved := readTask(p.TaskType, p.ModulesToSave, bad)
	alpha, err := p.Alpha.Float64()
	if err != nil {
		bad("lora_alpha %q is no number", p.Alpha)
	}
	known := map[string]bool{"target_parameters": true, "ensure_weight_tying": true, "trainable_token_indices": true,
		"lora_bias": true}
	for _, k := range jsonKeys() {
		known[k] = true
	}
	for _, k := range slices.Concat(harmless, selectionKeys) {
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
	c := Config{Shared: Shared{R: p.R, Alpha: alpha, Dropout: p.Dropout, RankPattern: p.RankPattern.values, AlphaPattern: p.AlphaPattern.values,
		TargetParameters: slices.Compact(slices.Sorted(slices.Values(p.Parameters)))},
		Own: LoRASettings{UseRSLoRA: p.UseRSLoRA, ModulesToSave: saved, EnsureWeightTying: p.TiesHead &&
			slices.ContainsFunc(saved, ofVocabulary),
			Bias: strings.TrimPrefix(p.Bias, biasNone), LoRABias: p.LoRABias,
			TrainableTokenIndices: readTokenRows(keys["trainable_token_indices"], bad)},
		Task: task, rankOrder: rankOrder, alphaOrder: alphaOrder}
	c.TargetModules = slices.DeleteFunc(readTargets(p.TargetModules, bad), func(name string) bool {
		return slices.Contains(saved, name) // PEFT adapts no module that is saved
	})
	if p.TargetModules == nil && len(p.Parameters) == 0 {
		bad("target_modules is missing")
	}
	if p.TiesHead && adaptsTables(c) {
		bad("ensure_weight_tying with target_modules %v: updates of embeddings and head that are one are not supported",
			[]string(c.TargetModules))
	}
	_, expression := p.TargetModules.(string)
	c.selection = readSelection(keys, expression, bad)
	if len(problems) == 0 {
		valid := c
		if len(c.TargetParameters) > 0 {
			valid.Dropout = 0 // PEFT refuses the two together, which is what such a file is for: see ForPEFT
		}
		problems = valid.Validate()
	}
	return c, withRevision(p.BaseModel, p.Revision), errors.Join(problems...)
}

// hubName is a model's name on the hub with a revision behind it.
var hubName = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*)@([A-Za-z0-9][A-Za-z0-9._/-]*)$`)

// withRevision is the name of a base model with its revision, as base_model has it: org/name@revision. main is what a
// name alone means, and a folder has no revision.
func withRevision(base, revision string) string {
	named := base + "@" + revision
	if _, err := os.Stat(base); err == nil || revision == "main" || !hubName.MatchString(named) {
		return base
	}
	return named
}

func formatLoRA(c Config, base string, layers []string) ([]byte, error) {
	return formatLoRAOf(c, base, layers, false)
}

// formatLoRAOf writes a LoraConfig, of DoRA or not.
func formatLoRAOf(c Config, base string, layers []string, dora bool) ([]byte, error) {
	revision := ""
	if m := hubName.FindStringSubmatch(base); m != nil { // PEFT has it in a key of its own
		base, revision = m[1], m[2]
	}
	targets, parameters := c.fileTargets(layers), c.TargetParameters
	ranks, alphas := patternsOf(c.RankPattern, c.rankOrder), patternsOf(c.AlphaPattern, c.alphaOrder)
	if f := c.form; f != nil {
		targets, parameters, ranks, alphas = f.modules, f.parameters, f.ranks.before(ranks), f.alphas.before(alphas)
	}
	excluded, numbers, pattern := c.lora().written()
	return json.MarshalIndent(peftConfig{
		Excluded: excluded, Layers: numbers, LayersPattern: pattern,
		AlphaPattern: alphas, RankPattern: ranks, BaseModel: base, Revision: revision, Bias: cmp.Or(c.lora().Bias, biasNone),
		LoRABias: c.lora().LoRABias, InferenceMode: true,
		InitLoRAWeights: true, Alpha: json.Number(fmt.Sprint(c.Alpha)), Dropout: c.Dropout, PEFTType: "LORA", R: c.R,
		TargetModules: targets, Parameters: parameters, TaskType: c.Task.taskType(),
		ModulesToSave: slices.Concat(c.Task.modulesToSave(), c.lora().ModulesToSave), TiesHead: c.lora().EnsureWeightTying,
		UseDoRA: dora, UseRSLoRA: c.lora().UseRSLoRA, TokenRows: TokenRowsOf(c).written(),
	}, "", "  ")
}

// fileTargets are the targets as PEFT saves them: all-linear, and an expression, as the names they stood for. PEFT matches an expression
// with every module of the model, also with those that are no linear layers, which it refuses, and with those of a network for images,
// which then lack tensors. Beside target_parameters PEFT 0.21 takes a name of experts' layers for more of them, so names without a layer
// are left out. Beside a network for images, whose layers have the same names, they are the layers' paths: PEFT would adapt those too, and
// refuses Gemma 4's.
func (c Config) fileTargets(layers []string) any {
	paths := func() any { return slices.Sorted(slices.Values(layers)) }
	ofLanguage := func(l string) bool {
		return strings.Contains(l, ".language_model.") || strings.Contains(l, ".text_model.")
	}
	if selectionOf(c).narrows() || slices.ContainsFunc(layers, ofLanguage) {
		return paths()
	}
	if re, ok := c.TargetModules.expression(); ok {
		if c.named != nil {
			return c.named
		}
		return re
	}
	names := append(Targets{}, c.TargetModules...)
	if len(names) == 1 && names[0] == AllLinear {
		names = nil
		for _, l := range layers {
			names = append(names, l[strings.LastIndexByte(l, '.')+1:])
		}
	}
	if len(c.TargetParameters) > 0 {
		names = slices.DeleteFunc(names, func(name string) bool {
			return !slices.ContainsFunc(layers, func(l string) bool { return Targets{name}.Match(l) })
		})
	}
	sort.Strings(names)
	return slices.Compact(names)
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
