package main

// importsOfSwift are scripts and files of ms-swift.
var importsOfSwift = []importCase{
	{"ms-swift dpo", "dpo.sh", `#!/bin/bash
# 24GiB
model='org/chat model'   # not run
swift infer --model $model --result_path x.jsonl

CUDA_VISIBLE_DEVICES=6 \
swift rlhf \
    --rlhf_type dpo \
    --model "$model" \
    --train_type lora \
    --dataset org/pairs#1000 mine.jsonl \
    --split_dataset_ratio 0.01 \
    --torch_dtype bfloat16 \
    --num_train_epochs 1 \
    --per_device_train_batch_size 2 \
    --learning_rate 5e-6 \
    --lora_rank 16 \
    --target_modules all-linear \
    --gradient_accumulation_steps 8 \
    --eval_steps 50 --save_steps=50 \
    --max_length 2048 \
    --warmup_ratio 0.05 \
    --model_kwargs '{"fps": 12}' \
    --rpo_alpha 0.1 --ref_model "${model}" --deepspeed $ZERO \
    --dataset_num_proc 4
echo done
`, nil, "ms-swift",
		[]string{"objective: dpo", "base_model: org/chat model", "- {path: org/pairs, split: 'train[:1000]'}",
			"- {path: mine.jsonl}", "val_split: 0.01", "precision: bf16", "epochs: 1", "batch_size: 2",
			"gradient_accumulation_steps: 8", "learning_rate: 5e-06", "r: 16", "alpha: 32",
			"target_modules: all-linear", "max_length: 2048", "on_truncated: drop", "warmup_ratio: 0.05",
			"weight_decay: 0.1", "adam_beta2: 0.95", "lr_scheduler: cosine", "loss_type: [sigmoid, sft]",
			"loss_weights: [1, 0.1]", "beta: 0.1"},
		[]string{"rlhf_type: dpo -> training.objective", "org/pairs#1000 -> dataset.path: org/pairs, train[:1000]; " +
			"the first rows; there a sample at random", "ref_model: org/chat model; the reference is the base model",
			"model_kwargs: {fps: 12}"}},
	{"ms-swift simpo", "simpo.yaml", "rlhf_type: simpo\nmodel: m\ntrain_type: lora\ndataset: d.jsonl\n" +
		"max_length: 512\nlearning_rate: 1e-5\n", nil, "ms-swift",
		[]string{"objective: cpo", "loss_type: simpo", "beta: 2", "simpo_gamma: 1", "cpo_alpha: 1",
			"gradient_accumulation_steps: 16", "batch_size: 1"}, nil},
	{"ms-swift orpo and kto", "orpo.yaml", "rlhf_type: orpo\nmodel: m\ntrain_type: lora\ndataset: d.jsonl\n" +
		"max_length: 512\nbeta: 0.3\n", nil, "ms-swift", []string{"objective: orpo", "beta: 0.3"}, nil},
	{"ms-swift kto", "kto.sh", "swift rlhf --rlhf_type kto --model m --dataset d.jsonl --max_length 512 " +
		"--desirable_weight 0.5 --per_device_train_batch_size 2 --adapters sft --ref_adapters sft\n", nil, "ms-swift",
		[]string{"objective: kto", "desirable_weight: 0.5", "init_from: sft", "reference: start"}, nil},
	{"ms-swift reward model", "rm.sh", "swift rlhf --rlhf_type rm --model m --dataset d.jsonl --max_length 512 " +
		"--center_rewards_coefficient 0.01\n", nil, "ms-swift",
		[]string{"objective: reward", "task: sequence_classification", "center_rewards_coefficient: 0.01"}, nil},
	{"ms-swift gkd", "gkd.sh", "export teacher='org/teacher'\nswift rlhf --rlhf_type gkd --model m --teacher_model " +
		"$teacher --dataset d.jsonl --max_length 512 --lmbda 0 --sft_alpha 0.1\n", nil, "ms-swift",
		[]string{"objective: distill", "teacher: org/teacher", "teacher_quantization: none", "beta: 0.5",
			"ce_alpha: 0.1", "train_on: last"}, nil},
	{"ms-swift grpo", "grpo.sh", "swift rlhf --rlhf_type grpo --model m --dataset d.jsonl --num_generations 4 " +
		"--per_device_train_batch_size 8 --reward_funcs accuracy format\n", nil, "ms-swift",
		[]string{"objective: grpo", "num_generations: 4", "beta: 0.04", "max_completion_length: 512",
			"batch_size: 2"}, nil},
	{"ms-swift sft", "sft.sh", "torchrun --nproc_per_node 2 /opt/swift/cli/sft.py --model m --dataset d:sub " +
		"--val_dataset v.jsonl --train_type full --quant_bits 4 --loss_scale all --neftune_noise_alpha 5 " +
		"--packing true --padding_free true\n", nil, "ms-swift",
		[]string{"learning_rate: 1e-05", "train_on: all", "neftune_alpha: 5", "packing: true",
			"- {path: d, name: sub}"},
		[]string{"max_length: left out; there rows may have as many tokens as the model has positions"}},
	{"ms-swift sft by a file", "sft.yaml", "model: m\ndataset: d.jsonl\ntrain_type: lora\nquant_bits: 4\n" +
		"max_length: 1024\nenable_dft_loss: true\nuse_hf: true\nlorap_lr_ratio: 16\n", nil, "ms-swift",
		[]string{"adapter: qlora", "bits: 4", "objective: dft", "loraplus_lr_ratio: 16", "max_length: 1024"}, nil},
}
