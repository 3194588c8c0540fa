package dataset

// text reads {text}: every token is trained, including the end token. A text longer than Config.MaxLength becomes
// several rows, as is usual for pretraining.
var text = Format{
	Roles:    []Role{{Name: "text", Keys: []string{"text"}}},
	Trains:   "every token",
	NoPrompt: "every token is trained already",
	Render:   renderText,
}

func renderText(f Fields, _ Config) (Example, error) {
	s, err := f.Text("text")
	if err != nil {
		return Example{}, err
	}
	if s == "" {
		return Example{Empty: dropEmptyText}, nil
	}
	return Example{Segments: []Segment{{Text: s, Trained: true}}, EOS: true, Chunked: true}, nil
}
