package tasks

// builtIn holds the tasks that need no file.
var builtIn = map[string]string{
	// 300 questions of GSM8K's test split, put as lm-eval's task gsm8k puts them.
	"gsm8k": `
kind: gsm8k
data: embedded:gsm8k_300.jsonl
prompt: "Question: {{ question }}\nAnswer:"
answer: "{{ answer }}"
few_shot: 5
few_shot_data: embedded:gsm8k_train_1000.jsonl.gz
stop: ["Question:"]
`,
}
