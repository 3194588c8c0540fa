package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/optimizer"
)

// Every foreign name leads to one of our keys, or says why there is none.
func TestForeignNames(t *testing.T) {
	for name, c := range foreign {
		if k, rest := Root.Find(c.Key); c.Key != "" && (rest != "" || k.Path != c.Key) {
			t.Errorf("%s leads to %s, which is no key", name, c.Key)
		}
		if c.Key == "" && c.Say == "" {
			t.Errorf("%s: nothing is said", name)
		}
		if Root.Child(name) != nil {
			t.Errorf("%s is a key of ours", name)
		}
	}
	for name, want := range map[string]string{
		"load_in_4bit":    "unknown key: write quantization.bits: 4, or adapter: qlora",
		"sequence_len":    "unknown key; use dataset.max_length",
		"flash_attention": "not supported: the fused kernels that fit the device are always used",
		"wandb_project":   "unknown key: write tracking.experiment, and training.report_to: [wandb]",
		"template": "unknown key: write dataset.chat_template: a .jinja file or a template's name; empty is " +
			"the model's own",
		"use_qalora": "not supported: no method that adapter names does this",
		"finetuning_type": "unknown key: write adapter: lora or qlora, adapter: full for all weights, or another " +
			"method of docs/ADAPTERS.md",
		"Quantization-Bit": "unknown key; use quantization.bits",
		"field_output": "unknown key: write dataset.fields, such as {prompt: question, completion: answer} for " +
			"dataset.format: completion",
		"text_column": "unknown key: write dataset.fields, such as {text: body} for dataset.format: text",
		"on_nan":      "unknown key: write training.on_nonfinite: stop or skip",
	} {
		for _, section := range []*Key{Root, Root.Child("lora")} {
			if got := unknownKey(section, name).text; got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// A key that we have by now is found though a reason for its absence is still listed.
func TestOwnKeysComeFirst(t *testing.T) {
	foreign["pad_to"] = importer.Counterpart{Say: "there is none"}
	defer delete(foreign, "pad_to")
	if got, want := unknownKey(Root, "pad_to").text, "unknown key; use dataset.pad_to"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// commonKeys are keys that people have in files of other programs.
var commonKeys = map[string]string{
	"Axolotl": "base_model model_type tokenizer_type trust_remote_code load_in_8bit load_in_4bit strict datasets " +
		"dataset_prepared_path val_set_size output_dir adapter " +
		"lora_model_dir sequence_len sample_packing eval_sample_packing pad_to_sequence_len lora_r lora_alpha " +
		"lora_dropout lora_target_linear lora_fan_in_fan_out " +
		"lora_target_modules lora_modules_to_save wandb_project wandb_entity wandb_watch wandb_name wandb_log_model " +
		"gradient_accumulation_steps micro_batch_size num_epochs " +
		"optimizer lr_scheduler learning_rate train_on_inputs group_by_length bf16 fp16 tf32 gradient_checkpointing " +
		"gradient_checkpointing_kwargs early_stopping_patience " +
		"resume_from_checkpoint auto_resume_from_checkpoints local_rank logging_steps xformers_attention " +
		"flash_attention sdp_attention loss_watchdog_threshold " +
		"loss_watchdog_patience warmup_steps warmup_ratio evals_per_epoch eval_steps eval_table_size " +
		"eval_max_new_tokens saves_per_epoch save_steps save_total_limit debug " +
		"deepspeed weight_decay fsdp fsdp_config special_tokens tokens chat_template rl plugins peft_use_dora " +
		"peft_use_rslora loraplus_lr_ratio relora_steps neftune_noise_alpha " +
		"max_grad_norm adam_beta1 adam_beta2 adam_epsilon cosine_min_lr_ratio hub_model_id push_dataset_to_hub seed " +
		"max_steps shuffle_merged_datasets torch_compile gpu_memory_limit " +
		"lora_qkv_kernel lora_mlp_kernel lora_o_kernel unfrozen_parameters test_datasets pretraining_dataset " +
		"eval_batch_size bfloat16 float16 overrides_of_model_config",
	"LLaMA-Factory": "model_name_or_path adapter_name_or_path quantization_bit quantization_method " +
		"double_quantization trust_remote_code stage do_train do_eval finetuning_type " +
		"lora_rank lora_alpha lora_dropout lora_target use_rslora use_dora pissa_init additional_target dataset " +
		"dataset_dir eval_dataset template cutoff_len max_samples " +
		"preprocessing_num_workers dataloader_num_workers overwrite_cache output_dir logging_steps save_steps " +
		"plot_loss overwrite_output_dir save_only_model report_to run_name " +
		"per_device_train_batch_size gradient_accumulation_steps learning_rate num_train_epochs lr_scheduler_type " +
		"warmup_ratio bf16 fp16 pure_bf16 ddp_timeout " +
		"resume_from_checkpoint val_size per_device_eval_batch_size eval_strategy eval_steps flash_attn use_unsloth " +
		"enable_liger_kernel neat_packing packing train_on_prompt " +
		"mask_history rope_scaling export_dir export_size export_device export_legacy_format infer_backend pref_beta " +
		"pref_loss loraplus_lr_ratio create_new_adapter " +
		"include_num_input_tokens_seen optim max_grad_norm tokenized_path streaming mix_strategy interleave_probs " +
		"new_special_tokens resize_vocab",
	"PEFT": "peft_type task_type inference_mode base_model_name_or_path revision r target_modules exclude_modules " +
		"lora_alpha lora_dropout fan_in_fan_out bias use_rslora " +
		"modules_to_save init_lora_weights layers_to_transform layers_pattern rank_pattern alpha_pattern " +
		"megatron_config megatron_core trainable_token_indices loftq_config " +
		"eva_config corda_config use_dora use_qalora lora_bias layer_replication runtime_config target_parameters " +
		"auto_mapping",
	"conversations": "train_on_inputs roles_to_train train_on_eos train_on_eot eot_tokens message_property_mappings " +
		"chat_template chat_template_jinja mask_history train_on_prompt " +
		"neat_packing packing_strategy assistant_only_loss completion_only_loss group_by_length field_messages " +
		"field_system field_tools split_thinking message_field_training " +
		"default_system drop_system_message train_on_responses_only instruction_part response_part response_template " +
		"chat_template_path padding_free pad_to_multiple_of " +
		"eval_packing enable_thinking tool_format efficient_eos roles",
	"transformers": "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps " +
		"learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm " +
		"num_train_epochs max_steps lr_scheduler_type lr_scheduler_kwargs warmup_ratio warmup_steps log_level " +
		"logging_dir logging_strategy logging_first_step logging_steps " +
		"save_strategy save_steps save_total_limit save_safetensors save_only_model use_cpu seed data_seed bf16 fp16 " +
		"tf32 fp16_opt_level bf16_full_eval fp16_full_eval local_rank " +
		"ddp_backend tpu_num_cores debug dataloader_drop_last eval_steps dataloader_num_workers run_name " +
		"disable_tqdm remove_unused_columns label_names load_best_model_at_end " +
		"metric_for_best_model greater_is_better ignore_data_skip fsdp deepspeed label_smoothing_factor optim " +
		"optim_args group_by_length length_column_name report_to " +
		"push_to_hub resume_from_checkpoint hub_model_id hub_token gradient_checkpointing include_inputs_for_metrics " +
		"auto_find_batch_size full_determinism torchdynamo " +
		"torch_compile neftune_noise_alpha evaluation_strategy eval_accumulation_steps eval_delay eval_on_start " +
		"prediction_loss_only max_seq_length dataset_text_field " +
		"bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_compute_dtype bnb_4bit_quant_storage " +
		"quantization_config torch_dtype dtype device_map attn_implementation completion_only_loss",
}

// Each of them has an answer of its own.
func TestCommonKeysHaveAnAnswer(t *testing.T) {
	for program, names := range commonKeys {
		for _, name := range strings.Fields(names) {
			if Root.Child(name) != nil {
				continue
			}
			if g := unknownKey(Root, name); g.text == "unknown key" ||
				strings.HasPrefix(g.text, "unknown key; the nearest") {
				t.Errorf("%s: %s: %s", program, name, g.text)
			}
		}
	}
}

// A guess keeps most of the letters: short names of other sections are near to anything.
func TestGuesses(t *testing.T) {
	for _, c := range []struct{ section, name, want string }{
		{"lora", "bats", ""}, {"lora", "bis", "lora.bias"}, {"lora", "x", ""}, {"lora", "rr", "lora.r"},
		{"lora", "alpa", "lora.alpha"},
		{"", "lerning_rate", "training.learning_rate"}, {"lora", "batch_sizes", "training.batch_size"},
		{"", "sead", "seed"},
	} {
		section, _ := Root.Find(c.section)
		if got := unknownKey(section, c.name).meant; got != c.want {
			t.Errorf("%s.%s: the guess is %q, want %q", c.section, c.name, got, c.want)
		}
	}
	want := "run.yaml:5:3: lora.xylophone: unknown key; the keys of lora are " +
		strings.Join(Root.Child("lora").Names(), ", ") +
		"\nrun.yaml:6:3: lora.zither: unknown key"
	if got := problemsOf(least+"lora:\n  xylophone: 1\n  zither: 2\n", nil, nil); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A renamed key keeps working in files, variables and --set, and a note says its new name.
func TestRenamedKeys(t *testing.T) {
	for old, now := range renamed {
		oldKey, rest := Root.Find(old)
		if _, restNow := Root.Find(now); rest != "" && restNow != "" {
			t.Errorf("neither %s nor %s is a key", old, now)
		}
		if rest == "" && oldKey.Path == old && newName(old) != nil {
			t.Errorf("%s is a key still, and %s too", old, now)
		}
		if old[:strings.LastIndexByte(old, '.')+1] != now[:strings.LastIndexByte(now, '.')+1] {
			t.Errorf("%s and %s are not in one section", old, now)
		}
	}
	renamed["training.stride"], renamed["samen"] = "training.logging_steps", "seed"
	defer delete(renamed, "training.stride")
	defer delete(renamed, "samen")
	for _, c := range []struct {
		name, text    string
		environ, sets []string
		notes         []string
	}{
		{"file", "training: {stride: 7}\nsamen: 3\n", nil, nil, []string{
			"run.yaml:4:12: training.stride is training.logging_steps now; the old name still works",
			"run.yaml:5:1: samen is seed now; the old name still works"}},
		{"environment", "seed: 3\n", []string{"TRAINER_TRAINING_STRIDE=7"}, nil, []string{
			"TRAINER_TRAINING_STRIDE: training.stride is training.logging_steps now; the old name still works"}},
		{"flag over file", "training: {logging_steps: 2}\nseed: 3\n", nil, []string{"training.stride=7"}, []string{
			"--set training.stride=7: training.stride is training.logging_steps now; the old name still works"}},
		{"section by flag", "seed: 3\n", nil, []string{"training={stride: 7}"}, []string{
			"--set 'training={stride: 7}': training.stride is training.logging_steps now; the old name still works"}},
	} {
		got, problems := Merge("run.yaml", []byte(least+c.text), c.environ, c.sets)
		if len(problems) > 0 || got.Spec.Training.LoggingSteps != 7 || got.Spec.Seed != 3 ||
			!slices.Equal(got.Notes, c.notes) {
			t.Errorf("%s: %v, logging_steps %d, seed %d, notes %q", c.name, problems, got.Spec.Training.LoggingSteps,
				got.Spec.Seed, got.Notes)
		}
	}
	want := "run.yaml:4:12: training.stride: is the old name of training.logging_steps, which line 4 gives too; " +
		"remove one"
	if got := problemsOf(least+"training: {stride: 7, logging_steps: 2}\n", nil, nil); got != want {
		t.Errorf("both: %q, want %q", got, want)
	}
	if got, want := problemsOf(least+"training: {stride: x}\n", nil,
		nil), `run.yaml:4:20: training.logging_steps: expected a whole number, got the text "x"`; got != want {
		t.Errorf("bad value: %q, want %q", got, want)
	}
}

// TestPagedOptimizers: bitsandbytes' names of optimizers with paged states are names of ours, which a note says.
func TestPagedOptimizers(t *testing.T) {
	for paged, ours := range optimizer.Paged {
		got, problems := Merge("run.yaml", []byte(least+"training: {optimizer: "+paged+"}\n"), nil, nil)
		want := "training.optimizer: " + paged + " is " + ours + " here: training.optimizer_offload moves the " +
			"states of every optimizer to host memory if they do not fit on the device"
		if len(problems) > 0 || got.Spec.Training.Optimizer != ours || got.Spec.Training.OptimizerOffload != "auto" ||
			!slices.Equal(got.Notes, []string{want}) {
			t.Errorf("%s: %v, optimizer %s, notes %q", paged, problems, got.Spec.Training.Optimizer, got.Notes)
		}
	}
	if got := problemsOf(least+"training: {optimizer: paged_sgd}\n", nil, nil); !strings.Contains(got, "paged_sgd") {
		t.Errorf("an optimizer that bitsandbytes does not have: %q", got)
	}
}

// A key that did nothing is passed over where it is empty, as old effective configurations have it.
func TestRemovedKeys(t *testing.T) {
	removed["dataset.flavour"] = "there are no flavours"
	defer delete(removed, "dataset.flavour")
	text := "base_model: m\noutput_dir: out\ndataset:\n  path: d.jsonl\n  flavour: "
	got, problems := Merge("run.yaml", []byte(text+"\"\"\n"), nil, nil)
	if want := []string{"run.yaml:5:3: dataset.flavour is ignored: there are no flavours; remove it"}; len(
		problems) > 0 || !slices.Equal(got.Notes, want) {
		t.Errorf("%v, notes %q, want %q", problems, got.Notes, want)
	}
	if got := problemsOf(text+"salt\n", nil, nil); !strings.HasPrefix(got,
		"run.yaml:5:3: dataset.flavour: unknown key") {
		t.Errorf("with a value: %q", got)
	}
}

var (
	namedKey   = regexp.MustCompile(`\b(?:lora|quantization|dataset|training|expect)\.[a-z][a-z0-9_]*`)
	keyAndText = regexp.MustCompile(`([a-z_]+(?:\.[a-z_0-9]+)?): ([a-zA-Z0-9_-]+)`)
	sources    = regexp.MustCompile(`^dataset\.(json|jsonl)$`) // file names, no keys
)

// TestMessagesNameKeys: every key that some text of the program names can be given.
func TestMessagesNameKeys(t *testing.T) {
	count, values := 0, 0
	check := func(where, text string) {
		for _, name := range namedKey.FindAllString(text, -1) {
			if k, rest := Root.Find(name); (rest != "" || k.Path != name) && newName(name) == nil &&
				renamed[name] == "" && !sources.MatchString(name) && !isOld(name) {
				t.Errorf("%s names the key %s, which is none: %q", where, name, text)
			}
			count++
		}
	}
	for name, c := range foreign {
		check(name, c.Say)
		for _, m := range keyAndText.FindAllStringSubmatch(c.Say, -1) {
			if k, rest := Root.Find(m[1]); rest != "" || k == Root {
				continue // a sentence with a colon
			}
			values++
			if said := problemsOf(least, nil, []string{"adapter=qlora", m[1] + "=" + m[2]}); said != "" {
				t.Errorf("%s: %s can't be written: %s", name, m[0], said)
			}
		}
	}
	golden.EachString(t, check, "cmd/trainer", "config", "train", "dataset", "adapter", "quant", "model", "graph")
	if values < 25 {
		t.Errorf("only %d values seen", values)
	}
	if count < 120 {
		t.Errorf("only %d keys seen", count)
	}
}

func isOld(path string) bool {
	_, gone := removed[path]
	for _, now := range renamed {
		gone = gone || now == path // until the configuration has it
	}
	return gone
}
