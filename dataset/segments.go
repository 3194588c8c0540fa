package dataset

import "fmt"

// segments reads {segments: [{text, label}]}, Axolotl's input_output: the texts in order, unchanged, trained where
// label is true. No template is applied, and no start or end token is added.
var segments = Format{
	Roles:    []Role{{Name: "segments", Keys: []string{"segments"}}},
	Trains:   "what the labels of the rows say",
	NoPrompt: "the labels decide what is trained",
	Render:   renderSegments,
}

func renderSegments(f Fields, _ Config) (Example, error) {
	list, err := f.Objects("segments")
	if err != nil {
		return Example{}, err
	}
	ex := Example{Verbatim: true, Segments: []Segment{}}
	for i, o := range list {
		s := Fields{row: o, keys: map[string]string{"text": "text", "label": "label"}}
		for _, key := range []string{"text", "label"} {
			if !o.Has(key) {
				return Example{}, fmt.Errorf("%s[%d] has no %s: want {\"text\": …, \"label\": true or false}",
					f.Key("segments"), i,
					key)
			}
		}
		text, err := s.Text("text")
		if err != nil {
			return Example{}, fmt.Errorf("%s[%d]: %w", f.Key("segments"), i, err)
		}
		trained, err := s.truth("label")
		if err != nil {
			return Example{}, fmt.Errorf("%s[%d]: %w", f.Key("segments"), i, err)
		}
		ex.Segments = append(ex.Segments, Segment{Text: text, Trained: trained})
	}
	if len(ex.Segments) == 0 {
		return Example{Empty: dropEmptyText}, nil
	}
	return ex, nil
}
