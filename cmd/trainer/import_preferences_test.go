package main

// importsOfPreferences are files of preference training.
var importsOfPreferences = []importCase{
	{"trl dpo", "dpo.py", `
train = load_dataset("org/pairs", split="train")
args = DPOConfig(output_dir="out", beta=0.2, loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.2], max_length=512,
    max_prompt_length=128, label_smoothing=0.1, precompute_ref_log_probs=True, sync_ref_model=True,
    truncation_mode="keep_end", metric_for_best_model="rewards/accuracies", eval_steps=10, eval_strategy="steps")
trainer = DPOTrainer("org/model", None, args=args, train_dataset=train.train_test_split(test_size=0.1)["train"],
    processing_class=tok, peft_config=LoraConfig(r=8, lora_dropout=0.05))
`, nil, "trl",
		[]string{"objective: dpo", "base_model: org/model", "loss_type: [sigmoid, sft]", "loss_weights: [1, 0.2]",
			"beta: 0.2", "max_length: 512", "learning_rate: 1e-06", "dropout: 0", "val_split: 0.1",
			"metric_for_best_model: eval_rewards/accuracies", "eval_steps: 10", `precompute: "yes"`},
		[]string{"DPOTrainer -> training.objective: dpo",
			"DPOConfig(max_prompt_length): 128; dataset.max_length bounds prompt and answer together",
			"DPOConfig(label_smoothing): 0.1; the loss does not read it, there neither",
			"LoraConfig(lora_dropout): 0.05 -> lora.dropout: 0; TRL switches dropout off in preference training",
			"sync_ref_model): true; the reference stays the base model",
			"truncation_mode): keep_end; a row longer than dataset.max_length keeps its start"}},
	{"trl dpo, dropout kept", "dpo.py", "t = DPOTrainer('m', args=DPOConfig('o', disable_dropout=False, " +
		"rpo_alpha=0.5, " +
		"loss_type='aot_pair'), train_dataset=load_dataset('d'), peft_config=LoraConfig(lora_dropout=0.05))\n", nil,
		"trl", []string{"dropout: 0.05", "loss_type: [aot, sft]"}, nil},
	{"trl cpo", "cpo.py", "t = CPOTrainer('m', CPOConfig('o', loss_type='hinge', simpo_gamma=1.0, cpo_alpha=0.5), " +
		"train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8))\n", nil, "trl",
		[]string{"objective: cpo", "loss_type: hinge", "cpo_alpha: 0.5"},
		[]string{"CPOConfig(simpo_gamma): 1; the loss does not read it, there neither"}},
	{"trl simpo", "cpo.py", "t = CPOTrainer('m', CPOConfig('o', loss_type='simpo', simpo_gamma=1.0, cpo_alpha=0, " +
		"beta=2.0, discopop_tau=0.1), train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8))\n", nil, "trl",
		[]string{"objective: cpo", "loss_type: simpo", "simpo_gamma: 1", "cpo_alpha: 0", "beta: 2"},
		[]string{"CPOConfig(discopop_tau): 0.1; training.objective: cpo has no such key"}},
	{"unsloth orpo", "orpo.py", `
PatchDPOTrainer()
model, tok = FastLanguageModel.from_pretrained("unsloth/m", max_seq_length=1024)
model = FastLanguageModel.get_peft_model(model, r=16)
t = ORPOTrainer(model=model, args=ORPOConfig(output_dir="o", beta=0.3, max_completion_length=512),
    train_dataset=load_dataset("d"))
`, nil, "unsloth", []string{"objective: orpo", "beta: 0.3", "max_length: 1024", "batch_size: 4"},
		[]string{"ORPOConfig(max_completion_length): 512; dataset.max_length bounds"}},
	{"trl rows and pairs", "both.py", "s = SFTTrainer(model='m', args=SFTConfig('o', loss_type='dft'), " +
		"train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8))\nt = DPOTrainer('m2', args=DPOConfig('p', " +
		"beta=1))\n",
		nil, "trl", []string{"base_model: m", "objective: dft", "output_dir: o"}, nil},
	{"axolotl simpo", "a.yml", `
base_model: m
adapter: lora
rl: simpo
rl_beta: 2.0
simpo_gamma: 0.7
cpo_alpha: 0.1
datasets:
  - {path: rows.jsonl, type: chat_template.default, field_messages: conversation, field_chosen: good,
     field_rejected: bad, message_property_mappings: {role: role, content: content}}
lora_dropout: 0.1
val_set_size: 0.1
metric_for_best_model: eval_rewards/margins
`, nil, "axolotl", []string{"objective: cpo", "loss_type: simpo", "beta: 2", "simpo_gamma: 0.7", "cpo_alpha: 0.1",
		"fields: {prompt: conversation, chosen: good, rejected: bad}", "dropout: 0",
		"metric_for_best_model: eval_rewards/margins"},
		[]string{"lora_dropout: 0.1 -> lora.dropout: 0; Axolotl switches dropout off in preference training"}},
	{"axolotl dpo", "a.yml", "base_model: m\nadapter: lora\nrl: dpo\nrpo_alpha: 0.5\ndpo_use_weighting: true\ntrl: " +
		"{beta: 0.3, use_vllm: true}\ndpo_label_smoothing: 0.1\nrl_adapter_ref_model: true\ndatasets: [{path: org/d, " +
		"type: chatml.intel}]\n", nil, "axolotl", []string{"objective: dpo", "loss_type: [sigmoid, sft]",
		"loss_weights: [1, 0.5]", "beta: 0.3", "use_weighting: true", `as_chat: "yes"`, "chat_template: chatml"},
		[]string{"dpo_label_smoothing: 0.1; refused here: does nothing without robust",
			"rl_adapter_ref_model: true; the reference is the base model with the adapter off",
			"trl.use_vllm: true; of generation while training"}},
	{"axolotl ipo", "a.yml", "base_model: m\nadapter: lora\nrl: ipo\nrl_beta: 0.01\ndatasets: [{path: org/d, " +
		"type: llama3.argilla}]\n", nil, "axolotl", []string{"objective: dpo", "loss_type: ipo", "beta: 0.01",
		`as_chat: "yes"`}, []string{"llama3.argilla -> dataset.as_chat: yes; prompts are written by the model's"}},
	{"axolotl orpo", "a.yml", "base_model: m\nadapter: lora\nrl: orpo\norpo_alpha: 0.1\ndatasets: [{path: org/d, " +
		"type: chat_template.argilla}]\n", nil, "axolotl", []string{"objective: orpo", "beta: 0.1"}, nil},
	{"llamafactory dpo", "l.yaml", "model_name_or_path: m\nstage: dpo\nfinetuning_type: lora\npref_beta: 0.2\n" +
		"pref_loss: sigmoid\npref_ftx: 0.1\ndpo_label_smoothing: 0.1\nref_model: r\n" +
		"ref_model_adapters: sft\ndataset: one, two\noutput_dir: o\n",
		map[string]string{"data/dataset_info.json": `{"one": {"file_name": "one.json", "ranking": true, ` +
			`"formatting": ` +
			`"sharegpt", "columns": {"messages": "talk", "chosen": "chosen", "rejected": "rejected"}}, ` +
			`"two": {"file_name": "two.json", "ranking": true, "columns": {"prompt": "q", "chosen": "good", ` +
			`"rejected": "bad"}}}`}, "llamafactory",
		[]string{"objective: dpo", "loss_type: [sigmoid, sft]", "loss_weights: [1, 0.1]", "beta: 0.2",
			"- {path: data/one.json, format: preference, fields: {prompt: talk}}",
			"- {path: data/two.json, format: preference, fields: {prompt: q, chosen: good, rejected: bad}}",
			`as_chat: "yes"`},
		[]string{"pref_ftx: 0.1 -> dpo.loss_weights: [1, 0.1]; the mean over all tokens of a micro-batch's chosen",
			"dpo_label_smoothing: 0.1; sigmoid ignores label smoothing",
			"ref_model: r; the reference is the base model with the adapter off",
			"ref_model_adapters: sft -> training.reference"}},
	{"llamafactory simpo", "l.yaml", "model_name_or_path: m\nstage: dpo\nfinetuning_type: lora\npref_loss: simpo\n" +
		"dataset: one\noutput_dir: o\n", nil, "llamafactory",
		[]string{"objective: simpo", "beta: 0.1"}, []string{"pref_beta: 0.1 (its default) -> simpo.beta"}},
	{"llamafactory orpo", "l.yaml", "model_name_or_path: m\nstage: dpo\nfinetuning_type: lora\npref_loss: orpo\n" +
		"dataset: one\noutput_dir: o\n", nil, "llamafactory", []string{"objective: orpo", "beta: 0.1"},
		[]string{"pref_loss: orpo -> training.objective; the negative log-likelihood of prompt and answer"}},
}
