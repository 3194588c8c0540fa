package dataset

import "strings"

// alpaca is {instruction, input, output}, or Dolly's {instruction, context, response}, in the prompt text of Stanford
// Alpaca; input may be empty or absent.
var alpaca = Format{
	Roles: []Role{
		{Name: "instruction", Keys: []string{"instruction"}},
		{Name: "input", Keys: []string{"input", "context"}, Optional: true},
		{Name: "output", Keys: []string{"output", "response"}},
	},
	Render: renderAlpaca,
}

const (
	alpacaIntro      = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
	alpacaIntroInput = "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n"
)

func renderAlpaca(f Fields, _ Config) (Example, error) {
	instruction, err := f.Text("instruction")
	if err != nil {
		return Example{}, err
	}
	input, err := f.Text("input")
	if err != nil {
		return Example{}, err
	}
	output, err := f.Text("output")
	if err != nil {
		return Example{}, err
	}
	prompt := alpacaIntro + "### Instruction:\n" + instruction + "\n\n### Response:\n"
	if strings.TrimSpace(input) != "" {
		prompt = alpacaIntroInput + "### Instruction:\n" + instruction + "\n\n### Input:\n" + input + "\n\n### Response:\n"
	}
	return answered(prompt, output), nil
}

// answered is a masked prompt and a trained answer closed by the end token.
func answered(prompt, answer string) Example {
	if answer == "" {
		return Example{Empty: dropEmptyAnswer}
	}
	return Example{Segments: []Segment{{Text: prompt}, {Text: answer, Trained: true}}, EOS: true}
}
