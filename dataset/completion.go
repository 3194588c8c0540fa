package dataset

// completion reads {prompt, completion}: prompt and Config.Separator are masked, the completion is trained.
var completion = Format{
	Roles: []Role{
		{Name: "prompt", Keys: []string{"prompt", "question", "query", "input"}},
		{Name: "completion", Keys: []string{"completion", "answer", "response", "output"}},
	},
	Fits: func(f Fields) bool { return !f.conversational() },
	Other: "prompt or completion is a list of messages: set dataset.format: chat_completion, which takes both as " +
		"lists of messages, or leave dataset.format out",
	Separated: true,
	Render:    renderCompletion,
	AsChat:    completionAsChat,
}

func renderCompletion(f Fields, cfg Config) (Example, error) {
	prompt, err := f.Text("prompt")
	if err != nil {
		return Example{}, err
	}
	answer, err := f.Text("completion")
	if err != nil {
		return Example{}, err
	}
	return answered(prompt+cfg.Separator, answer), nil
}
