package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// importCase is a small file with the keys that people's files have, and what has to come of it.
type importCase struct {
	name, file, text string
	also             map[string]string // other files
	program          string
	has              []string // lines of the configuration, without their comments
	says             []string // of the report
}

var imports = []importCase{
	{"axolotl qlora", "axolotl.yml", `
base: &common {type: alpaca}
base_model: org/model
load_in_8bit: false
load_in_4bit: true
adapter: qlora
datasets:
  - {path: org/rows, <<: *common}
  - {path: json, data_files: mine.jsonl, type: chat_template, field_messages: conversations,
	message_property_mappings: {role: from, content: value}, split: "train[:10%]"}
sequence_len: 4096
sample_packing: true
lora_r: 32
lora_alpha: 16
lora_target_linear: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 4
optimizer: paged_adamw_32bit
learning_rate: "2e-4"
bf16: auto
tf32: false
gradient_checkpointing: true
val_set_size: 0.05
evals_per_epoch: 4
eval_steps: 50
flash_attention: true
no_such_key: 7
`, nil, "axolotl",
		[]string{"adapter: qlora", "bits: 4", "r: 32", "alpha: 16", "dropout: 0", "target_modules: all-linear",
			"max_length: 4096", "packing: true", "val_split: 0.05",
			"- {path: org/rows, format: alpaca}", `- {path: mine.jsonl, split: 'train[:10%]', format: sharegpt}`,
			"learning_rate: 0.0002", "warmup_ratio: 0.03", "optimizer: adamw", "weight_decay: 0",
			"lr_scheduler: cosine", "eval_steps: 50", "output_dir: ./model-out", "seed: 42"},
		[]string{"flash_attention: true; the fused kernels that fit the device are always used",
			"no_such_key: 7; no key of this name is known",
			"warmup_ratio: 0.03 (its default) -> training.warmup_ratio",
			"evals_per_epoch: 4 -> training.evals_per_epoch"}},
	{"axolotl, trackers", "lora.yaml", "base_model: m\nadapter: lora\nload_in_8bit: false\ndatasets: [{path: rows, " +
		"type: alpaca}]\nwandb_project: bots\nwandb_name: first\nuse_tensorboard: true\nddp_timeout: 180000000\n",
		nil, "axolotl",
		[]string{"report_to: [wandb, tensorboard]", "experiment: bots", "run_name: first"},
		[]string{"wandb_project: bots -> tracking.experiment",
			"use_tensorboard: true -> training.report_to: tensorboard",
			"ddp_timeout: 180000000; training.ddp_timeout is how soon"}},
	{"transformers, trackers", "args.json", `{"per_device_train_batch_size": 2, "learning_rate": 1e-4, "report_to": ` +
		`["mlflow", "comet_ml"], "run_name": "a", "output_dir": "o"}`, nil, "transformers",
		[]string{"report_to: [mlflow]", "run_name: a"}, []string{`report_to: comet_ml; training.report_to knows ` +
			`tensorboard, wandb, mlflow`}},
	{"transformers, no tracker", "args.json", `{"per_device_train_batch_size": 2, "learning_rate": 1e-4, ` +
		`"report_to": "none", "run_name": "a", "output_dir": "o"}`, nil, "transformers",
		[]string{"output_dir: o"}, []string{"report_to: none; not set",
			"run_name: a; no tracker of the run has names; output_dir names the run"}},
	{"unsloth, a name twice", "u.py", "n = 1024\nmodel, tok = FastLanguageModel.from_pretrained(\n    model_name = " +
		"'m',\n    max_seq_length = n,\n    load_in_4bit = True,\n)\nr = 4\n" +
		"model = FastLanguageModel.get_peft_model(\n    model,\n    r = r,\n)\nd = load_dataset('rows')\ntrainer = " +
		"SFTTrainer(model = model, train_dataset = d, args = SFTConfig(\n    max_length = n,\n    " +
		"per_device_train_batch_size = r,\n    output_dir = 'o',\n))\n", nil, "unsloth",
		[]string{"max_length: 1024", "r: 4", "batch_size: 4"}, []string{"SFTConfig(max_length): 1024"}},
	{"axolotl, constant rate", "lora.yaml", "base_model: m\nadapter: lora\nload_in_8bit: false\ndatasets: [{path: " +
		"rows, type: alpaca}]\nlearning_rate: 1e-4\nwarmup_ratio: 0.03\nlr_scheduler: constant\n" +
		"optimizer: lion_8bit\nadam_epsilon: 1e-6\n", nil, "axolotl", []string{"lr_scheduler: constant",
		"optimizer: lion_8bit"},
		[]string{
			"warmup_ratio: 0.03; the schedule constant has no warm-up, there neither; constant_with_warmup has one",
			"adam_epsilon: 1e-06; lion_8bit has none"}},
	{"axolotl, moments in 8 bits", "lora.yaml", "base_model: m\nadapter: lora\ndatasets: [{path: rows, type: " +
		"alpaca}]\noptimizer: adamw_bnb_8bit\nadam_epsilon: 1e-6\n", nil, "axolotl",
		[]string{"optimizer: adamw_8bit", "adam_epsilon: 1e-06"},
		[]string{"optimizer: adamw_bnb_8bit -> training.optimizer: adamw_8bit\n"}},
	{"axolotl, paged moments", "lora.yaml",
		"base_model: m\nadapter: lora\ndatasets: [{path: rows, type: alpaca}]\noptimizer: paged_adamw_8bit\n",
		nil, "axolotl",
		[]string{"optimizer: adamw_8bit"}, []string{"optimizer: paged_adamw_8bit -> training.optimizer: adamw_8bit; " +
			"its states are in host memory if they do not fit on the device (training.optimizer_offload: auto)"}},
	{"transformers, plain gradient descent", "args.json", `{"per_device_train_batch_size": 2, ` +
		`"learning_rate": 1e-1, "optim": "sgd", "adam_beta1": 0.8, "output_dir": "o"}`, nil, "transformers",
		[]string{"optimizer: sgd", "sgd_momentum: 0"}, []string{"adam_beta1: 0.8; sgd has none"}},
	{"axolotl, muon", "lora.yaml",
		"base_model: m\nadapter: lora\ndatasets: [{path: rows, type: alpaca}]\noptimizer: muon\n", nil, "axolotl",
		[]string{"optimizer: muon", "muon_adjust_lr: original"},
		[]string{"optimizer: muon -> training.optimizer\n"}},
	{"axolotl, ends", "lora.yaml", "base_model: m\nadapter: lora\ndatasets: [{path: rows, type: alpaca}]\n" +
		"val_set_size: 0.1\neval_steps: 10\nsave_steps: 10\nearly_stopping_patience: 3\n" +
		"load_best_model_at_end: true\n" +
		"loss_watchdog_threshold: 5.0\nloss_watchdog_patience: 4\n", nil, "axolotl",
		[]string{"early_stopping_patience: 3", "load_best_model_at_end: true", "loss_watchdog_threshold: 5",
			"loss_watchdog_patience: 4"}, nil},
	{"llamafactory, ends", "lora.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: rows\n" +
		"val_size: 0.1\neval_strategy: steps\neval_steps: 10\nearly_stopping_steps: 5\n", nil, "llamafactory",
		[]string{"early_stopping_patience: 5"}, nil},
	{"llamafactory, muon", "lora.yaml",
		"model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: rows\nuse_muon: true\n", nil,
		"llamafactory",
		[]string{"optimizer: muon"}, []string{"use_muon: true -> training.optimizer: muon"}},
	{"llamafactory, whole modules", "lora.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n" +
		"dataset: rows\nadditional_target: embed_tokens,lm_head\n", nil, "llamafactory",
		[]string{"modules_to_save: [embed_tokens, lm_head]"}, nil},
	{"llamafactory, added tokens", "lora.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n" +
		"dataset: rows\nadd_tokens: <a>,<b>\nadd_special_tokens: <s1>\nresize_vocab: true\n", nil, "llamafactory",
		[]string{"add_tokens: [<a>, <b>]", "additional_special_tokens: [<s1>]"}, nil},
	{"axolotl, added tokens", "lora.yaml", "base_model: m\nadapter: lora\ndatasets: [{path: rows, type: alpaca}]\n" +
		"tokens: [<a>]\nspecial_tokens: {eos_token: <end>}\npeft_trainable_token_indices: [7]\n", nil, "axolotl",
		[]string{"add_tokens: [<a>]", "add_special_tokens: {eos_token: <end>}", `trainable_token_indices: ["7"]`}, nil},
	{"llamafactory, torchao's moments", "lora.yaml",
		"model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndataset: rows\noptim: adamw_torch_8bit\n", nil,
		"llamafactory",
		[]string{"optimizer: adamw_8bit"}, []string{"its moments are in the 8 bits of bitsandbytes, not of torchao"}},
	{"axolotl eight bits", "lora.yaml", "base_model: m\nadapter: lora\nload_in_8bit: true\nlora_r: " +
		"8\nlora_target_modules: [q_proj, v_proj, lm_head]\ndatasets: [{path: rows, type: completion, field: body}]\n" +
		"learning_rate: 1e-4\nwarmup_steps: 0\ncosine_min_lr_ratio: 0.2\nlr_scheduler: cosine\neval_steps: 5\n",
		nil, "axolotl",
		[]string{"adapter: qlora", "bits: 8", "target_modules: [q_proj, v_proj, lm_head]", "path: rows", "format: text",
			"fields: {text: body}", "lr_scheduler: cosine_with_min_lr", "min_lr_ratio: 0.2", "warmup_ratio: 0"},
		[]string{"eval_steps: 5; there are no rows to evaluate on"}},
	{"llama-factory", "sft.yaml", `
model_name_or_path: org/model
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,v_proj
quantization_bit: 4
dataset: mine,talks,elsewhere
template: llama3
packing: true
overwrite_output_dir: true
output_dir: saves/x
max_samples: 1000
fp16: true
`, map[string]string{"data/dataset_info.json": `{"mine": {"file_name": "mine.json", "columns": {"prompt": "q",
	"response": "a"}},
 "talks": {"hf_hub_url": "org/talks", "formatting": "sharegpt", "num_samples": 50,
	"columns": {"messages": "messages"}, "tags": {"role_tag": "role", "content_tag": "content"}}}`}, "llamafactory",
		[]string{"adapter: qlora", "bits: 4", "r: 16", "alpha: 32", "target_modules: [q_proj, v_proj]",
			"max_length: 2048", "batch_size: 8", "learning_rate: 5e-05", "epochs: 3", "lr_scheduler: linear",
			"- {path: data/mine.json, split: 'train[:1000]', format: alpaca, fields: {instruction: q, output: a}}",
			"- {path: org/talks, split: 'train[:50]', format: messages}", "- {path: elsewhere, split: 'train[:1000]'}",
			"packing: true", "precision: fp16",
			"save_steps: 500", "warmup_ratio: 0"},
		[]string{"data/dataset_info.json has no elsewhere: give the path of the rows",
			"no row attends to another, as with neat_packing: true", "lora_alpha: 32 (its default) -> lora.alpha"}},
	{"unsloth notebook", "tune.ipynb",
		`{"cells": [{"cell_type": "markdown", "source": ["FastLanguageModel.from_pretrained(r = 1)"]},
 {"cell_type": "code", "source": ["%%capture\n", "!pip install unsloth\n",
	"from unsloth import FastLanguageModel\n", "max_seq_length = 4096 # Choose any!\n"]},
 {"cell_type": "code",
	"source": "model, tokenizer = FastLanguageModel.from_pretrained(\n  model_name = \"unsloth/\" \"model-bnb-4bit\",\n  max_seq_length = max_seq_length,\n  dtype = None,\n)\nmodel = FastLanguageModel.get_peft_model(model, r = 32, use_rslora = True, use_gradient_checkpointing = \"unsloth\")\n"},
 {"cell_type": "code", "source": ["dataset = load_dataset('org/rows', split = 'train')\n",
	"trainer = SFTTrainer(model = model, train_dataset = dataset, args = SFTConfig(\n",
	" per_device_train_batch_size = 2, max_steps = 60, learning_rate = 2e-4,\n",
	" fp16 = not is_bfloat16_supported(), output_dir = f'out{1}', warmup_steps = 5))\n"]}]}`, nil, "unsloth",
		[]string{"base_model: unsloth/model-bnb-4bit", "adapter: qlora", "bits: 4", "r: 32", "alpha: 16",
			"use_rslora: true", "target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]",
			"path: org/rows", "max_length: 4096", "max_steps: 60", "batch_size: 2", "gradient_accumulation_steps: 2",
			"weight_decay: 0.001", "warmup_steps: 5", "seed: 3407", "learning_rate: 0.0002", "precision: auto",
			"output_dir: runs/imported", "optimizer: adamw_8bit"},
		[]string{"SFTConfig(output_dir): f'out{1}'; an expression, which is not worked out",
			"to write by hand: output_dir", "optim: adamw_8bit (its default) -> training.optimizer\n"}},
	{"trl script", "train.py", "rank = 4\npeft = LoraConfig(r=rank, target_modules='all-linear', " +
		"task_type='CAUSAL_LM')\nconf = SFTConfig('out', max_length=256, packing=True)\n" +
		"bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)\nmodel = " +
		"AutoModelForCausalLM.from_pretrained('org/model', quantization_config=bnb)\nSFTTrainer(model, args=conf)\n",
		nil, "trl",
		[]string{"base_model: org/model", "adapter: qlora", "type: fp4", "double_quant: false", "r: 4", "alpha: 8",
			"target_modules: all-linear", "max_length: 256", "packing: true", "learning_rate: 2e-05", "batch_size: 8",
			"precision: bf16"},
		[]string{"to write by hand: dataset.path"}},
	{"torchtune", "tune.yaml", `
output_dir: /tmp/out
model: {_component_: torchtune.models.llama3_2.qlora_llama3_2_1b, lora_attn_modules: [q_proj, v_proj, output_proj],
	apply_lora_to_mlp: true, lora_rank: 64, lora_alpha: 128}
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: /tmp/tokenizer.model, max_seq_len: 1024}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/model,
	output_dir: "${output_dir}"}
dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset, packed: false}
optimizer: {_component_: torch.optim.AdamW, fused: true, weight_decay: 0.01, lr: 3e-4}
lr_scheduler: {_component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup, num_warmup_steps: 100}
batch_size: 4
epochs: 1
clip_grad_norm: null
dtype: bf16
device: cpu
`, nil, "torchtune",
		[]string{"base_model: /tmp/model", "adapter: qlora", "r: 64", "alpha: 128",
			"target_modules: [q_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]", "max_length: 1024",
			"path: yahma/alpaca-cleaned", "format: alpaca", "train_on_prompt: true",
			"learning_rate: 0.0003", "lr_scheduler: cosine", "warmup_steps: 100", "batch_size: 4", "max_grad_norm: 0",
			"precision: bf16", "device: cpu"},
		[]string{"checkpointer.output_dir: /tmp/out -> output_dir"}},
	{"ms-swift, all weights", "run.sh", "swift sft --model m --train_type full --dataset d.jsonl --output_dir o\n", nil,
		"ms-swift", []string{"adapter: full", "learning_rate: 1e-05"}, nil},
	{"torchtune, all weights in bf16", "tune.yaml", `
model: {_component_: torchtune.models.llama3_2.llama3_2_1b}
checkpointer: {_component_: torchtune.training.FullModelHFCheckpointer, checkpoint_dir: /tmp/model,
	output_dir: /tmp/out}
dataset: {_component_: torchtune.datasets.alpaca_cleaned_dataset}
optimizer: {_component_: torchao.optim.AdamW8bit, lr: 2e-5, bf16_stochastic_round: true}
`, nil, "torchtune", []string{"adapter: full", "stochastic_rounding: true", "optimizer: adamw_8bit"},
		[]string{"optimizer.bf16_stochastic_round: true -> full.stochastic_rounding"}},
	{"peft", "adapter_config.json",
		`{"peft_type": "LORA", "r": 8, "lora_alpha": 32, "lora_dropout": 0.1, "bias": "all",
 "lora_bias": true, "trainable_token_indices": {"embed_tokens": [7, 9]},
 "base_model_name_or_path": "org/model", "target_modules": ["q_proj", "v_proj"],
 "modules_to_save": ["lm_head"], "use_dora": false, "rank_pattern": {"layers.0.q_proj": 4},
	"task_type": "CAUSAL_LM", "init_lora_weights": true}`, nil, "peft",
		[]string{"base_model: org/model", "r: 8", "alpha: 32", "dropout: 0.1", "target_modules: [q_proj, v_proj]",
			"rank_pattern: {layers.0.q_proj: 4}", "modules_to_save: [lm_head]", "bias: all", "lora_bias: true",
			`trainable_token_indices: ["7", "9"]`, "path: data.jsonl"},
		[]string{"to write by hand: dataset.path, output_dir"}},
	{"transformers", "args.json",
		`{"per_device_train_batch_size": 2, "learning_rate": 1e-4, "warmup_steps": 0.1, "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1},
 "lora_dropout": 2, "eval_strategy": "steps", "eval_steps": 10, "save_strategy": "epoch",
	"output_dir": "o"}`, nil, "transformers",
		[]string{"batch_size: 2", "learning_rate: 0.0001", "warmup_ratio: 0.1", "lr_scheduler: cosine_with_min_lr",
			"min_lr_ratio: 0.1", "epochs: 3"},
		[]string{"lora_dropout: 2; refused here: 2 must be at least 0 and below 1",
			"save_strategy: epoch -> training.saves_per_epoch: 1"}},
}

func TestImport(t *testing.T) {
	for _, c := range slices.Concat(imports, importsOfShapes, importsOfPreferences, importsOfObjectives,
		importsOfMethods, importsOfSwift) {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, c.file)
			for name, text := range c.also {
				if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, report, errOut := inProcess(t, dir, "import", c.file, "--out", "run.yaml", "--accept", "-v")
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errOut)
			}
			text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			lines := map[string]bool{}
			for line := range strings.Lines(string(text)) {
				line, _, _ = strings.Cut(line, "  #")
				lines[strings.TrimSpace(line)] = true
			}
			for _, want := range c.has {
				if !lines[want] {
					t.Errorf("no line %q in\n%s", want, text)
				}
			}
			for _, want := range c.says {
				if !strings.Contains(report, want) {
					t.Errorf("not said: %q in\n%s", want, report)
				}
			}
			if code, _, errOut := inProcess(t, dir, "validate", "run.yaml"); code != 0 &&
				!(code == 3 && strings.Contains(errOut, "the configuration itself is right")) {
				t.Errorf("validate: exit code %d: %s", code, errOut)
			}
			if code, _, errOut := inProcess(t, dir, "import", c.file, "--out", "run.yaml", "--accept",
				"-v"); code != 2 || !strings.Contains(errOut, "run.yaml is there already; name another file") {
				t.Errorf("a second time: exit code %d: %s", code, errOut)
			}
			code, out, _ := inProcess(t, dir, "import", c.file, "--json", "--from", c.program, "--accept")
			var answer struct {
				Program, Config string
				Keys            []struct{ Group, Key string }
			}
			if err := json.Unmarshal([]byte(out), &answer); code != 0 || err != nil || answer.Program != c.program ||
				answer.Config != string(text) || len(answer.Keys) < 5 {
				t.Errorf("--json: exit code %d, %v, program %s, %d keys", code, err, answer.Program, len(answer.Keys))
			}
		})
	}
}

// What is imported plans, with a model and rows that are here.
func TestImportedPlans(t *testing.T) {
	dir := t.TempDir()
	text := "base_model: embedded:stories260K\nadapter: qlora\nload_in_4bit: true\nlora_r: 4\nlora_target_linear: " +
		"true\ndatasets: [{path: embedded:gsm8k_300.jsonl, type: alpaca}]\nlearning_rate: 1e-3\noutput_dir: out\n"
	if err := os.WriteFile(filepath.Join(dir, "a.yml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := trainer(t, dir, nil, "", "import", "a.yml")
	if code != 0 || !strings.Contains(errOut, "program  Axolotl") {
		t.Fatalf("exit code %d\n%s", code, errOut)
	}
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := trainer(t, dir, nil, "", "plan", "run.yaml", "--set", "device=cpu", "--set",
		"dataset.format=completion"); code != 0 {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// TestImportChanges: what changes the training is said first, and nothing is written unless it is accepted; what
// changes nothing is counted.
func TestImportChanges(t *testing.T) {
	rest := "datasets: [{path: a.jsonl, type: alpaca}]\nlearning_rate: 1e-4\nflash_attention: true\nhub_model_id: " +
		"org/m\n"
	for _, c := range []struct {
		name, file, text string
		first            string // of what changes; "" = nothing does
	}{
		{"nothing", "a.yml", "base_model: m\nadapter: lora\n" + rest, ""},
		{"unknown key", "a.yml", "base_model: m\nadapter: lora\nno_such_key: 3\n" + rest, "no_such_key: 3; "},
		{"a format of its own", "a.yml", "base_model: m\nadapter: lora\ndatasets: [{path: a.jsonl, type: {format: " +
			"'[INST] {instruction} [/INST]', field_instruction: q, field_output: a}}]\n", "datasets[0].type: "},
		{"saved modules", "a.yml", "base_model: m\nadapter: lora\nlora_modules_to_save: [embed_tokens]\n" + rest,
			""},
		{"noise", "a.yml", "base_model: m\nadapter: lora\nneftune_noise_alpha: 5\n" + rest, ""},
		{"smoothed labels", "a.yml", "base_model: m\nadapter: lora\nlabel_smoothing_factor: 0.1\n" + rest,
			"label_smoothing_factor: 0.1; "},
		{"rows by code", "a.py", "d = load_dataset('org/d').map(formatting_prompts_func, batched = " +
			"True)\nSFTTrainer(model = 'm', train_dataset = d, args = SFTConfig('o'), peft_config = LoraConfig(r = " +
			"8))\n", "map; code of the file makes the rows"},
		{"a function of rows", "a.py", "SFTTrainer(model = 'm', train_dataset = load_dataset('org/d'), " +
			"formatting_func = f, args = SFTConfig('o'))\n", "SFTTrainer(formatting_func): f; "},
		{"answers found by text", "a.py", "SFTTrainer(model = 'm', train_dataset = load_dataset('org/d'), args = " +
			"SFTConfig('o'))\nt = train_on_responses_only(t, instruction_part = 'a', response_part = 'b')\n",
			"train_on_responses_only(instruction_part): a "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, out, errOut := trainer(t, dir, nil, "", "import", c.file, "--out", "run.yaml")
			_, err := os.Stat(filepath.Join(dir, "run.yaml"))
			if c.first == "" {
				if code != 0 || err != nil || strings.Contains(out, "Changes what is trained") ||
					!strings.Contains(out, "Nothing to do: ") || strings.Contains(out, "flash_attention") ||
					!strings.Contains(out, "To do by hand: 1\n  hub_model_id: org/m; trainer push") {
					t.Errorf("exit code %d, %v\n%s%s", code, err, out, errOut)
				}
				return
			}
			if code != 2 || err == nil || out != "" {
				t.Errorf("exit code %d, run.yaml: %v\n%s", code, err, out)
			}
			_, list, _ := strings.Cut(errOut, "Changes what is trained: ")
			if _, list, _ = strings.Cut(list, "\n"); !strings.HasPrefix(list, "  "+c.first) ||
				!strings.Contains(errOut,
					"so no configuration is written: look at them above, and take them with --accept") {
				t.Errorf("it says\n%s", errOut)
			}
			if code, _, errOut := trainer(t, dir, nil, "", "import", c.file, "--out", "run.yaml",
				"--accept"); code != 0 {
				t.Errorf("accepted: exit code %d: %s", code, errOut)
			}
		})
	}
}

// TestImportTwice: a data set that the file names twice is taken twice in an epoch.
func TestImportTwice(t *testing.T) {
	dir := t.TempDir()
	text := "base_model: m\nadapter: lora\ndatasets:\n  - {path: a.jsonl, type: alpaca}\n  - {path: b.jsonl, type: " +
		"alpaca}\n  - {path: a.jsonl, type: alpaca}\n"
	if err := os.WriteFile(filepath.Join(dir, "a.yml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := trainer(t, dir, nil, "", "import", "a.yml")
	if code != 0 || !strings.Contains(out, "- {path: a.jsonl, format: alpaca, weight: 2}\n") ||
		!strings.Contains(out, "- {path: b.jsonl, format: alpaca}\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errOut)
	}
}

func TestImportBroken(t *testing.T) {
	bomb := "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
	for i := 'b'; i < 'j'; i++ {
		bomb += string(i) + ": &" + string(i) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(i-1)+",",
			10), ",") + "]\n"
	}
	for _, c := range []struct {
		name, file, text, want string
		args                   []string
	}{
		{"empty", "a.yml", " \n", "import a.yml: it is empty", nil},
		{"comments alone", "a.yml", "# nothing\n", "import a.yml: it is empty", nil},
		{"broken YAML", "a.yml", "a: [1\nb: 2\n", "import a.yml: it is not valid YAML: line ", nil},
		{"two documents", "a.yml", "base_model: a\n---\nbase_model: b\n",
			"import a.yml: a second document begins in line 2: a configuration is one document", nil},
		{"a list", "a.yml", "- 1\n",
			`import a.yml: it is no configuration: expected keys and values such as "learning_rate: 2e-4"`, nil},
		{"twice", "a.yml", "lora_r: 1\nlora_r: 2\n", "import a.yml: line 2: lora_r is given twice", nil},
		{"aliases of aliases", "a.yml", bomb,
			"import a.yml: it holds more than 100000 values: this is no configuration", nil},
		{"deep", "a.yml", "a: " + strings.Repeat("[", 90) + strings.Repeat("]", 90),
			"import a.yml: values are nested deeper than 64: this is no configuration", nil},
		{"very deep", "a.yml", "a: " + strings.Repeat("[", 9000),
			"import a.yml: values are nested deeper than 64: this is no configuration", nil},
		{"huge", "a.yml", strings.Repeat("#", 1<<20+1),
			"import a.yml: it is larger than 1048576 bytes: this is no configuration", nil},
		{"no text", "a.yml", "a: \xff\xfe", "import a.yml: it is not UTF-8 text", nil},
		{"of nobody", "a.yml", "colour: red\n", "import a.yml: no program is known by its keys (colour); name it " +
			"with --from: axolotl, llamafactory, llamafactory-v1, unsloth, trl, ms-swift, torchtune, peft, " +
			"transformers", nil},
		{"ours", "a.yml", "base_model: a\nlora: {r: 8}\n",
			"import a.yml: it is a configuration of this program already: trainer validate checks it", nil},
		{"broken JSON", "a.json", `{"r": }`, "import a.json: it is not valid JSON: ", nil},
		{"no notebook", "a.ipynb", `{"cells": []}`, "import a.ipynb: it is no notebook: it has no cells with code",
			nil},
		{"a cell of numbers", "a.ipynb", `{"cells": [{"cell_type": "code", "source": 5}]}`,
			"import a.ipynb: it is no notebook: a cell's source is neither a text nor a list of texts", nil},
		{"no end of text", "a.py", "x = 'abc\n", "import a.py: line 1: it is no Python: a text has no end", nil},
		{"no training in a script", "a.sh", "swift infer --model m\n", "import a.sh: it has no command swift pt, " +
			"swift sft or swift rlhf", nil},
		{"two trainings in a script", "a.sh", "swift sft --model m\nswift rlhf --model m\n",
			"import a.sh: line 2 begins a second training command of ms-swift: leave one in the file", nil},
		{"no argument", "a.sh", "swift sft \\\n  model m\n", `import a.sh: line 2: "model" stands where an argument ` +
			"such as --model is expected", nil},
		{"no end of a quotation", "a.sh", "swift sft --model 'm\n", "import a.sh: line 1: a quotation mark has no end",
			nil},
		{"a script of another program", "a.sh", "swift sft --model m\n", "import a.sh: TRL has no configuration in " +
			"scripts of the shell", []string{"--from", "trl"}},
		{"ms-swift ppo", "a.sh", "swift rlhf --rlhf_type ppo --model m\n", "import a.sh: rlhf_type: ppo is another " +
			"kind of training", nil},
		{"ms-swift heads", "a.sh", "swift sft --task_type seq_cls --model m\n", "import a.sh: task_type: seq_cls is " +
			"another kind of training", nil},
		{"trains nothing", "a.py", "print('hello')\n",
			"import a.py: it trains nothing that is known: there is no call of get_peft_model, LoraConfig", nil},
		{"generates text", "a.py",
			"m, t = FastLanguageModel.from_pretrained('unsloth/Llama-3.2-1B')\nFastLanguageModel.for_inference(m)\nm.generate(**t('x'))\n",
			"import a.py: it trains nothing that is known: there is no call of get_peft_model, LoraConfig", nil},
		{"python of axolotl", "a.py", "x = 1\n", "import a.py: Axolotl has no configuration in Python",
			[]string{"--from", "axolotl"}},
		{"yaml of unsloth", "a.yml", "r: 1\n",
			"import a.yml: arguments of Unsloth stand in a notebook (.ipynb) or a script (.py)",
			[]string{"--from", "unsloth"}},
		{"rewards of LLaMA-Factory", "a.yml",
			"model_name_or_path: m\nstage: ppo\nfinetuning_type: lora\ndataset: d\ntemplate: llama3\noutput_dir: o\n",
			"import a.yml: stage: ppo is another kind of training; a run here trains on rows of text (sft, pt), " +
				"preferences (dpo, ipo, cpo, simpo, orpo, kto, rm), rewards (grpo, rloo) or a teacher, so nothing is " +
				"translated", nil},
		{"rewards of Axolotl", "a.yml", "base_model: m\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 8\nrl: " +
			"ebft\ndatasets: [{path: d, type: alpaca}]\n", "import a.yml: rl: ebft is another kind of training;", nil},
		{"preferences of torchtune", "a.yml",
			"model: {_component_: lora_llama2_7b}\nloss: {_component_: torchtune.rlhf.loss.DPOLoss, beta: 0.1}\n",
			"import a.yml: loss._component_: torchtune.rlhf.loss.DPOLoss is another kind of training;", nil},
		{"distillation of torchtune", "a.yml",
			"model: {_component_: lora_llama3_2_1b}\nteacher_model: {_component_: llama3_1_8b}\n",
			"import a.yml: teacher_model: {_component_: llama3_1_8b} is another kind of training;", nil},
		{"rewards of TRL", "a.py",
			"model, tok = FastLanguageModel.from_pretrained('m')\ntrainer = PPOTrainer(model = model)\n",
			"import a.py: PPOTrainer is another kind of training; a run here trains on rows of text (SFTTrainer), " +
				"preferences (DPOTrainer, CPOTrainer, ORPOTrainer, KTOTrainer, RewardTrainer), rewards (GRPOTrainer, " +
				"RLOOTrainer) or a teacher (GKDTrainer), so nothing is translated", nil},
		{"a class of one's own", "a.py", "trainer = MyGRPOTrainer(model = 'm', peft_config = LoraConfig(r = 8))\n",
			"import a.py: MyGRPOTrainer is another kind of training;", nil},
		{"images of Unsloth", "a.py",
			"model, tok = FastVisionModel.from_pretrained('m')\ntrainer = SFTTrainer(model = model)\n",
			"import a.py: it trains a model on images (FastVisionModel);", nil},
		{"unknown program", "a.yml", "r: 1\n",
			`import a.yml: there is no program "keras" to import from; there are axolotl`, []string{"--from", "keras"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, out, errOut := trainer(t, dir, nil, "", append([]string{"import", c.file}, c.args...)...)
			if code != 2 || out != "" || !strings.HasPrefix(errOut, "trainer: "+c.want) {
				t.Errorf("exit code %d, want 2 and %q\n%s%s", code, c.want, out, errOut)
			}
		})
	}
	if code, _, errOut := trainer(t, t.TempDir(), nil, "", "import", "gone.yml"); code != 2 ||
		!strings.Contains(errOut, "import gone.yml: ") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	if code, _, errOut := trainer(t, t.TempDir(), nil, "", "import", "."); code != 2 ||
		!strings.Contains(errOut, "import .: it is a folder; name a file") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}

// Whatever a file says, what comes of it is a configuration that validates, or an error.
func FuzzImport(f *testing.F) {
	for _, c := range slices.Concat(imports, importsOfShapes, importsOfPreferences, importsOfSwift) {
		f.Add(c.file, c.text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		dir := t.TempDir()
		file := "f" + strings.ToLower(filepath.Ext(filepath.Base(name)))
		if !filepath.IsLocal(file) || strings.ContainsAny(file, "\x00/\\") || len(file) > 20 {
			return
		}
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return
		}
		r, err := importFile(path, "")
		if err != nil {
			return
		}
		if _, _, err := importedConfig(path, &r); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
