package main

// importsOfObjectives are files of training with rewards, teachers, heads, and of all weights.
var importsOfObjectives = []importCase{
	{"trl grpo", "grpo.py", `
def right(completions, answer, **kw): return [1.0 for c in completions]
data = load_dataset("openai/gsm8k", "main", split="train")
args = GRPOConfig(output_dir="o", num_generations=4, per_device_train_batch_size=8, gradient_accumulation_steps=2,
    max_prompt_length=200, max_completion_length=100, loss_type="dr_grpo", scale_rewards=False, beta=0.04,
    epsilon_high=0.28, reward_weights=[1.0, 0.5], use_vllm=True, vllm_mode="colocate", top_p=0.9, top_k=0,
    log_completions=True, steps_per_generation=4, mask_truncated_completions=True)
trainer = GRPOTrainer(model="org/m", reward_funcs=[right, rewards.shape], args=args, train_dataset=data,
    peft_config=LoraConfig(r=8, lora_dropout=0.1))
`, nil, "trl",
		[]string{"objective: grpo", "batch_size: 2", "gradient_accumulation_steps: 2", "learning_rate: 1e-06",
			"num_generations: 4", "max_length: 300", "max_completion_length: 100", "loss_type: dr_grpo",
			"scale_rewards: none", "beta: 0.04", "epsilon_high: 0.28", "reward_weights: [1, 0.5]", "dropout: 0.1",
			"record_rollouts: true", "mask_truncated_completions: true",
			"- {name: right, type: command, command: [python3, reward_right.py]}",
			"- {name: shape, type: command, command: [python3, reward_shape.py]}"},
		[]string{"GRPOTrainer(reward_funcs): [right, rewards.shape] -> grpo.rewards; no code is run",
			"GRPOConfig(top_p): 0.9; answers are sampled from the whole distribution",
			"steps_per_generation): 4; answers are sampled for one step",
			"8 answers of a micro-batch are 2 prompts with 4 answers each"}},
	{"unsloth grpo", "grpo.py", `
model, tok = FastLanguageModel.from_pretrained("unsloth/m", max_seq_length=1024, fast_inference=True,
    gpu_memory_utilization=0.6)
model = FastLanguageModel.get_peft_model(model, r=32)
t = GRPOTrainer(model=model, reward_funcs=[a, b], args=GRPOConfig(output_dir="o", num_generations=8,
    per_device_train_batch_size=1, gradient_accumulation_steps=16, max_prompt_length=256), train_dataset=load_dataset("d"))
`, nil, "unsloth", []string{"objective: grpo", "adapter: qlora", "max_length: 1024", "batch_size: 1",
		"gradient_accumulation_steps: 2", "r: 32"},
		[]string{"16 times 1 answers of a step are 2 prompts with 8 answers each",
			"fast_inference): true; the program samples the answers by itself"}},
	{"trl rloo", "rloo.py", "t = RLOOTrainer('m', reward_funcs='org/judge', args=RLOOConfig('o', beta=0.0, " +
		"reward_clip_range=(-1.0, 1.0), normalize_advantages=True), train_dataset=load_dataset('d'), " +
		"peft_config=LoraConfig(r=8))\n", nil, "trl", []string{"objective: rloo", "num_generations: 2",
		"batch_size: 4", "reward_clip_range: [-1, 1]", "normalize_advantages: true",
		"- {name: org_judge, type: command, command: [python3, reward_org_judge.py]}"}, nil},
	{"trl rloo, by its defaults", "rloo.py", "t = RLOOTrainer('m', reward_funcs=[f], args=RLOOConfig('o'), " +
		"train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8))\n", nil, "trl",
		[]string{"objective: rloo"}, nil},
	{"trl reward model", "rm.py", "t = RewardTrainer('m', args=RewardConfig('o', center_rewards_coefficient=0.01), " +
		"train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8, lora_dropout=0.1, task_type='SEQ_CLS', " +
		"modules_to_save=['score']))\n", nil, "trl", []string{"objective: reward", "task: sequence_classification",
		"center_rewards_coefficient: 0.01", "learning_rate: 0.0001", "dropout: 0", "max_length: 1024"},
		[]string{"LoraConfig(modules_to_save): [score]; the head is trained and saved"}},
	{"trl gkd", "gkd.py", "t = GKDTrainer(model='s', teacher_model='org/teacher', args=GKDConfig('o', lmbda=0.0, " +
		"beta=0.1), train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8))\n", nil, "trl",
		[]string{"objective: distill", "base_model: s", "beta: 0.1", "temperature: 0.9", "teacher: org/teacher",
			"teacher_quantization: none", "learning_rate: 2e-05"},
		[]string{"teacher_model): org/teacher -> distill.teacher", "lmbda): 0; the rows have the answers"}},
	{"trl distillation", "kd.py", "t = DistillationTrainer(model='s', teacher_model='org/teacher', " +
		"args=DistillationConfig('o', lmbda=0.0, loss_top_k=8), train_dataset=load_dataset('d'), " +
		"peft_config=LoraConfig(r=8))\n", nil, "trl",
		[]string{"objective: distill", "top_k: 8", "logprobs: teacher-logprobs"},
		[]string{"teacher: org/teacher -> distill.logprobs: teacher-logprobs; the teacher runs before the training: " +
			"trainer logprobs run.yaml --model org/teacher --top-k 32 --out teacher-logprobs"}},
	{"trl gkd, students' answers", "gkd.py", "t = GKDTrainer('s', args=GKDConfig('o', seq_kd=True), " +
		"train_dataset=load_dataset('d'), peft_config=LoraConfig(r=8))\n", nil, "trl",
		[]string{"objective: distill", "beta: 0.5"},
		[]string{"lmbda: left out; there the student samples a part of the answers",
			"GKDConfig(seq_kd): true; write the teacher's answers to the rows with trainer generate"}},
	{"trl, all weights", "sft.py", "t = SFTTrainer('m', args=SFTConfig('o'), train_dataset=load_dataset('d'))\n", nil,
		"trl", []string{"adapter: full", "learning_rate: 2e-05"},
		[]string{"LoraConfig: left out -> adapter: full; all weights are trained, as there"}},
	{"unsloth, all weights", "sft.py", "m, tok = FastLanguageModel.from_pretrained('m', full_finetuning=True)\n" +
		"t = SFTTrainer(model=m, args=SFTConfig('o'), train_dataset=load_dataset('d'))\n", nil, "unsloth",
		[]string{"adapter: full"}, nil},
	{"transformers, a head of labels", "cls.py", "m = AutoModelForSequenceClassification.from_pretrained('org/m', " +
		"num_labels=3, id2label={'0': 'bad', '1': 'so', '2': 'good'}, problem_type='single_label_classification')\n" +
		"m = get_peft_model(m, LoraConfig(task_type='SEQ_CLS', r=4, modules_to_save=['classifier']))\n" +
		"t = Trainer(model=m, args=TrainingArguments('o'), train_dataset=load_dataset('d'))\n", nil, "trl",
		[]string{"objective: classification", "task: sequence_classification", "num_labels: 3",
			"labels: [bad, so, good]", "base_model: org/m", "r: 4"}, nil},
	{"transformers, a head for tokens", "ner.py", "m = AutoModelForTokenClassification.from_pretrained('org/m', " +
		"num_labels=9)\nm = get_peft_model(m, LoraConfig(task_type='TOKEN_CLS', r=4))\n" +
		"t = Trainer(model=m, args=TrainingArguments('o'), train_dataset=load_dataset('d'))\n", nil, "trl",
		[]string{"objective: token_classification", "task: token_classification", "num_labels: 9"}, nil},
	{"axolotl grpo", "a.yml", "base_model: m\nadapter: lora\nrl: grpo\nmicro_batch_size: 4\n" +
		"gradient_accumulation_steps: 2\nsequence_len: 1024\ntrl: {reward_funcs: [judge.right, judge.short], " +
		"num_generations: 4, max_completion_length: 128, beta: 0.001, use_vllm: true, scale_rewards: false, " +
		"sync_ref_model: true, reward_weights: [1, 2], vllm_server_port: 8000}\ndatasets: [{path: org/d, type: " +
		"judge.prompts}]\nlearning_rate: 1e-5\n", nil, "axolotl", []string{"objective: grpo", "batch_size: 1",
		"gradient_accumulation_steps: 2", "num_generations: 4", "max_completion_length: 128", "beta: 0.001",
		"scale_rewards: none", "- {name: right, type: command, command: [python3, reward_right.py]}"},
		[]string{"trl.sync_ref_model: true; the reference stays the base model",
			"trl.vllm_server_port: 8000; the program samples the answers by itself"}},
	{"axolotl gdpo", "a.yml", "base_model: m\nadapter: lora\nrl: gdpo\nmicro_batch_size: 8\ntrl: {reward_funcs: " +
		"[a.b], num_generations: 8}\ndatasets: [{path: org/d}]\n", nil, "axolotl",
		[]string{"objective: grpo", "multi_objective_aggregation: normalize_then_sum"}, nil},
	{"axolotl distillation", "a.yml", "base_model: m\nadapter: lora\nplugins: [axolotl.integrations.kd.KDPlugin]\n" +
		"kd_trainer: true\nkd_ce_alpha: 0.1\nkd_alpha: 0.9\nkd_temperature: 2.0\ndatasets: [{path: org/d, type: " +
		"chat_template}]\n", nil, "axolotl", []string{"objective: distill", "ce_alpha: 0.1", "alpha: 0.9",
		"temperature: 2", "logprobs: teacher-logprobs"}, []string{"kd_trainer: true -> training.objective: distill"}},
	{"axolotl reward model", "a.yml", "base_model: m\nadapter: lora\nreward_model: true\nnum_labels: 1\nmodel_type: " +
		"AutoModelForSequenceClassification\ncenter_rewards_coefficient: 0.01\ndatasets: [{path: org/d, type: " +
		"bradley_terry.chat_template}]\n", nil, "axolotl", []string{"objective: reward",
		"task: sequence_classification", "center_rewards_coefficient: 0.01"},
		[]string{"reward_model: true -> training.objective: reward"}},
	{"axolotl, some weights", "a.yml", "base_model: m\nunfrozen_parameters:\n  - ^lm_head.weight$\n  - " +
		"^model.embed_tokens.weight$[:32000]\n  - model.layers.2[0-9]+.mlp\ndatasets: [{path: org/d, type: alpaca}]\n",
		nil, "axolotl", []string{"adapter: full", "train: [^lm_head.weight$, 'model.layers.2[0-9]+.mlp']"},
		[]string{"adapter: left out -> adapter: full; all weights are trained, as there",
			"unfrozen_parameters: ^model.embed_tokens.weight$[:32000]; a part of a weight"}},
	{"llamafactory reward model", "l.yaml", "model_name_or_path: m\nstage: rm\nfinetuning_type: lora\ndataset: one\n" +
		"output_dir: o\n", map[string]string{"data/dataset_info.json": `{"one": {"file_name": "one.json", "ranking": ` +
		`true, "columns": {"prompt": "q", "chosen": "good", "rejected": "bad"}}}`}, "llamafactory",
		[]string{"objective: reward", "task: sequence_classification",
			"fields: {prompt: q, chosen: good, rejected: bad}"},
		[]string{"stage: rm -> training.objective: reward"}},
	{"llamafactory, all weights", "l.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: full\nlora_rank: 8\n" +
		"dataset: one\noutput_dir: o\n", nil, "llamafactory", []string{"adapter: full"},
		[]string{"lora_rank: 8; all weights are trained: there is no LoRA"}},
	{"llamafactory, the last layers", "l.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: freeze\n" +
		"freeze_trainable_layers: 2\nfreeze_trainable_modules: mlp, self_attn\nfreeze_extra_modules: lm_head\n" +
		"dataset: one\noutput_dir: o\n", map[string]string{"m/config.json": `{"num_hidden_layers": 16}`},
		"llamafactory", []string{"adapter: full",
			"train: [layers.14.mlp, layers.14.self_attn, layers.15.mlp, layers.15.self_attn, lm_head]"}, nil},
	{"llamafactory, the first layers", "l.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: freeze\n" +
		"freeze_trainable_layers: -1\ndataset: one\noutput_dir: o\n",
		map[string]string{"m/config.json": `{"num_hidden_layers": 16}`}, "llamafactory", []string{"adapter: full",
			"train: [layers.0]"}, nil},
	{"llamafactory, layers of a model elsewhere", "l.yaml", "model_name_or_path: org/m\nstage: sft\nfinetuning_type: " +
		"freeze\ndataset: one\noutput_dir: o\n", nil, "llamafactory", []string{"adapter: full"},
		[]string{"finetuning_type: freeze; the number of the model's layers is not known here: name the " +
			"last 2 layers " +
			"in full.train"}},
}
