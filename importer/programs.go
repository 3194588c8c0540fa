package importer

import (
	"regexp"
	"slices"
	"strings"
)

// Program is a training program whose configurations can be imported.
type Program struct {
	Name    string // value of --from
	Title   string
	Version string // version of the program from which the defaults are
	python  bool
	nested  bool // keys are those inside tables, with dots
	rules   map[string]rule
	expand  func(Map) []entry // lists a file's keys; nil = the top-level keys, or with nested those inside tables
	// defaults returns the values of keys that a file leaves out, if they change what is trained.
	defaults func(in *Input) []Pair
}

// programs lists the programs that can be imported from. Their defaults come from the sources of the stated versions.
var programs = []*Program{
	{Name: "axolotl", Title: "Axolotl", Version: "0.18.0", rules: axolotl, defaults: func(*Input) []Pair {
		return []Pair{
			{Key: "sequence_len", Value: int64(512)}, {Key: "sample_packing", Value: false},
			{Key: "train_on_inputs", Value: false}, {Key: "val_set_size", Value: 0.0},
			{Key: "micro_batch_size", Value: int64(1)}, {Key: "gradient_accumulation_steps", Value: int64(1)},
			{Key: "num_epochs", Value: 1.0},
			{Key: "lora_dropout", Value: 0.0}, {Key: "optimizer", Value: "adamw_torch_fused"},
			{Key: "lr_scheduler", Value: "cosine"}, {Key: "weight_decay", Value: 0.0},
			{Key: "max_grad_norm", Value: 1.0}, {Key: "warmup_ratio", Value: 0.03}, {Key: "seed", Value: int64(42)},
			{Key: "output_dir", Value: "./model-out"},
		}
	}},
	{Name: "llamafactory", Title: "LLaMA-Factory", Version: "0.9.6.dev0", rules: llamaFactory,
		defaults: func(in *Input) []Pair {
			packed := slices.ContainsFunc(in.entries, func(e entry) bool { return e.Key == "stage" && e.Value == "pt" })
			return append([]Pair{
				{Key: "finetuning_type", Value: "lora"}, {Key: "lora_rank", Value: int64(8)}, {Key: "lora_alpha"},
				{Key: "lora_dropout", Value: 0.0},
				{Key: "lora_target", Value: "all"}, {Key: "cutoff_len", Value: int64(2048)},
				{Key: "packing", Value: packed},
				{Key: "train_on_prompt", Value: false}, {Key: "val_size", Value: 0.0},
			}, slices.Concat(llamaPreferenceDefaults(in), trainingArguments)...)
		}},
	{Name: "llamafactory-v1", Title: "LLaMA-Factory (v1)", Version: "0.9.6.dev0", rules: llamaV1Rules(),
		expand: llamaV1,
		defaults: func(*Input) []Pair {
			return []Pair{
				{Key: "finetuning_type", Value: "lora"}, {Key: "lora_rank", Value: int64(8)},
				{Key: "lora_alpha", Value: int64(16)},
				{Key: "lora_dropout", Value: 0.05}, {Key: "lora_target", Value: "all"},
				{Key: "cutoff_len", Value: int64(2048)}, {Key: "micro_batch_size", Value: int64(1)},
				{Key: "num_train_epochs", Value: 3.0}, {Key: "learning_rate", Value: 1e-4},
				{Key: "lr_scheduler_type", Value: "constant"}, {Key: "weight_decay", Value: 0.01},
				{Key: "max_grad_norm", Value: 1.0}, {Key: "bf16", Value: true}, {Key: "seed", Value: int64(42)},
			}
		}},
	{Name: "unsloth", Title: "Unsloth", Version: "2026.8.19", python: true, rules: python, defaults: unslothDefaults},
	{Name: "trl", Title: "TRL", Version: "1.16.0, PEFT 0.18.1", python: true, rules: python,
		defaults: func(in *Input) []Pair {
			var order []Pair
			if objective, _ := in.objective(); objective == "kto" {
				order = []Pair{{Key: "train_sampling_strategy", Value: "sequential"}}
			}
			return append(append([]Pair{{Key: "LoraConfig(r)", Value: int64(8)},
				{Key: "LoraConfig(lora_alpha)", Value: int64(8)}, {Key: "LoraConfig(lora_dropout)", Value: 0.0},
				{Key: "packing", Value: false}}, slices.Concat(order, lengthDefault(in),
				objectiveDefaults(in), bitsAndBytes(in))...),
				learningRate(in, map[string]float64{"SFTConfig": 2e-5, "DPOConfig": 1e-6, "CPOConfig": 1e-6,
					"ORPOConfig": 1e-6, "KTOConfig": 1e-6, "RewardConfig": 1e-4, "GRPOConfig": 1e-6, "RLOOConfig": 1e-6,
					"GKDConfig": 2e-5, "DistillationConfig": 1e-6})...)
		}},
	{Name: "ms-swift", Title: "ms-swift", Version: "3.11", rules: swiftRules(), defaults: swiftDefaults},
	{Name: "torchtune", Title: "torchtune", Version: "0.6.1", nested: true, rules: torchtune,
		defaults: func(in *Input) []Pair {
			all := []Pair{{Key: "model.lora_rank", Value: int64(8)}, {Key: "model.lora_alpha", Value: 16.0},
				{Key: "model.lora_dropout", Value: 0.0},
				{Key: "gradient_accumulation_steps", Value: int64(1)}, {Key: "clip_grad_norm"},
				{Key: "optimizer.weight_decay", Value: 0.01}}
			for _, e := range in.entries { // Alpaca's is the only builder that trains on the prompt
				if s, _ := e.Value.(string); e.Key == "dataset._component_" && strings.Contains(s, "alpaca") {
					all = append(all, Pair{Key: "dataset.train_on_input", Value: true})
				}
			}
			return all
		}},
	{Name: "peft", Title: "PEFT", Version: "0.18.1", rules: peft, defaults: func(in *Input) []Pair {
		if m := methodOf(in); m != nil && m.section != "lora" {
			return nil // our defaults of the other methods are PEFT's
		}
		return []Pair{{Key: "r", Value: int64(8)}, {Key: "lora_alpha", Value: int64(8)},
			{Key: "lora_dropout", Value: 0.0}}
	}},
	{Name: "transformers", Title: "transformers", Version: "4.57.6", rules: map[string]rule{},
		defaults: func(*Input) []Pair { return trainingArguments }},
}

// trainingArguments are the defaults of TrainingArguments in transformers 4.57.6.
var trainingArguments = []Pair{
	{Key: "per_device_train_batch_size", Value: int64(8)}, {Key: "gradient_accumulation_steps", Value: int64(1)},
	{Key: "learning_rate", Value: 5e-5},
	{Key: "num_train_epochs", Value: 3.0}, {Key: "lr_scheduler_type", Value: "linear"},
	{Key: "warmup_ratio", Value: 0.0},
	{Key: "weight_decay", Value: 0.0},
	{Key: "adam_beta1", Value: 0.9}, {Key: "adam_beta2", Value: 0.999}, {Key: "adam_epsilon", Value: 1e-8},
	{Key: "max_grad_norm", Value: 1.0},
	{Key: "optim", Value: "adamw_torch_fused"}, {Key: "seed", Value: int64(42)}, {Key: "save_steps", Value: int64(500)},
}

// learningRate returns trainingArguments with the learning rate of the configuration class that the program calls.
func learningRate(in *Input, rates map[string]float64) []Pair {
	var all []Pair
	objective, _ := in.objective()
	for _, p := range trainingArguments {
		for class, rate := range rates {
			if p.Key == "learning_rate" && in.calls[class] && (class == "SFTConfig") == (objective == "") {
				p.Value = rate
			}
		}
		all = append(all, p)
	}
	return all
}

// unslothDefaults returns the defaults of FastLanguageModel and of SFTConfig as Unsloth changes it. TrainingArguments
// of transformers keeps its own defaults.
func unslothDefaults(in *Input) []Pair {
	all := []Pair{
		{Key: "FastLanguageModel.from_pretrained(max_seq_length)", Value: int64(2048)},
		{Key: "FastLanguageModel.from_pretrained(load_in_4bit)", Value: true},
		{Key: "get_peft_model(r)", Value: int64(16)}, {Key: "get_peft_model(lora_alpha)", Value: int64(16)},
		{Key: "get_peft_model(lora_dropout)", Value: 0.0},
		{Key: "get_peft_model(target_modules)", Value: []any{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
			"up_proj",
			"down_proj"}}, {Key: "packing", Value: false},
	}
	if !in.calls["SFTConfig"] && !in.callsAny(preferenceConfigs) && (in.calls["TrainingArguments"] ||
		in.calls["UnslothTrainingArguments"]) {
		return append(all, trainingArguments...)
	}
	own := map[string]any{"per_device_train_batch_size": int64(4), "gradient_accumulation_steps": int64(2),
		"weight_decay": 0.001, "seed": int64(3407),
		"optim": "adamw_8bit", "learning_rate": 5e-5, "warmup_ratio": 0.1}
	for _, p := range trainingArguments {
		if v, ok := own[p.Key]; ok {
			p.Value = v
		}
		all = append(all, p)
	}
	return all
}

// bitsAndBytes returns the defaults of transformers' BitsAndBytesConfig if a program makes one with 4 bits.
func bitsAndBytes(in *Input) []Pair {
	if !in.calls["BitsAndBytesConfig"] {
		return nil
	}
	return []Pair{{Key: "BitsAndBytesConfig(bnb_4bit_quant_type)", Value: "fp4"},
		{Key: "BitsAndBytesConfig(bnb_4bit_use_double_quant)", Value: false}}
}

// Find returns the program of a name, nil if there is none.
func Find(name string) *Program {
	for _, p := range programs {
		if p.Name == strings.ToLower(name) {
			return p
		}
	}
	return nil
}

// Names lists the programs that can be imported from.
func Names() []string {
	var names []string
	for _, p := range programs {
		names = append(names, p.Name)
	}
	return names
}

// calls lists the calls that are read from Python, with the names of their positional arguments; "-" is ignored.
var calls = map[string][]string{
	"FastLanguageModel.from_pretrained":    {"model_name", "max_seq_length", "dtype", "load_in_4bit"},
	"FastModel.from_pretrained":            {"model_name", "max_seq_length", "dtype", "load_in_4bit"},
	"AutoModelForCausalLM.from_pretrained": {"model_name"},
	imageModel:                             {"model_name"},
	"get_peft_model":                       {"-", "r"},
	"LoraConfig":                           {"-"},
	"IA3Config":                            {"-"},
	"MissConfig":                           {"-"},
	"BoneConfig":                           {"-"},
	"VeraConfig":                           {"-"},
	"LoKrConfig":                           {"-"},
	"OFTConfig":                            {"-"},
	"BitsAndBytesConfig":                   {"load_in_8bit", "load_in_4bit"},
	"SFTTrainer":                           {"-"},
	"UnslothTrainer":                       {"-"},
	"SFTConfig":                            {"output_dir"},
	"DPOTrainer":                           {"model", "ref_model", "args"},
	"CPOTrainer":                           {"model", "args"},
	"ORPOTrainer":                          {"model", "args"},
	"KTOTrainer":                           {"model", "ref_model", "args"},
	"DPOConfig":                            {"output_dir"},
	"CPOConfig":                            {"output_dir"},
	"ORPOConfig":                           {"output_dir"},
	"KTOConfig":                            {"output_dir"},
	"RewardTrainer":                        {"model", "args"},
	"GRPOTrainer":                          {"model", "reward_funcs", "args"},
	"RLOOTrainer":                          {"model", "reward_funcs", "args"},
	"GKDTrainer":                           {"model", "teacher_model", "args"},
	"DistillationTrainer":                  {"model", "teacher_model", "args"},
	"RewardConfig":                         {"output_dir"},
	"GRPOConfig":                           {"output_dir"},
	"RLOOConfig":                           {"output_dir"},
	"GKDConfig":                            {"output_dir"},
	"DistillationConfig":                   {"output_dir"},
	sequenceClasses:                        {"model_name"},
	tokenClasses:                           {"model_name"},
	"TrainingArguments":                    {"output_dir"},
	"UnslothTrainingArguments":             {"output_dir"},
	"load_dataset":                         {"path", "name"},
	"train_test_split":                     {"test_size"},
	"get_chat_template":                    {"-", "chat_template"},
	"train_on_responses_only":              {"-"},
	"FastVisionModel.from_pretrained":      {"model_name"},
}

// madeRows are calls with which notebooks convert the rows before training.
var madeRows = map[string]bool{"map": true, "standardize_sharegpt": true, "standardize_data_formats": true,
	"to_sharegpt": true}

// otherTrainers matches trainers of other kinds, and classes that change what a known one does.
var otherTrainers = regexp.MustCompile(`\b(?:[A-Za-z]*(?:PPO|BCO|PRM|OnlineDPO|XPO|NashMD)|[A-Za-z]+(?:GRPO|RLOO|Reward))Trainer$`)
