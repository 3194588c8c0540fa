package dataset

import "fmt"

// tokenized reads {input_ids, labels}: tokens made elsewhere, labels -100 where not trained and not shifted. Nothing is
// added. An optional attention_mask may only mark padding on the right, which is removed.
var tokenized = Format{
	Roles: []Role{
		{Name: "input_ids", Keys: []string{"input_ids"}},
		{Name: "labels", Keys: []string{"labels"}, Advice: "where every token is trained, dataset.fields: {labels: " +
			"input_ids} says so"},
		{Name: "attention_mask", Keys: []string{"attention_mask"}, Optional: true},
	},
	Trains:   "what the labels of the rows say",
	NoPrompt: "the labels decide what is trained",
	Render:   renderTokenized,
}

func renderTokenized(f Fields, _ Config) (Example, error) {
	ids, err := f.Ints("input_ids")
	if err != nil {
		return Example{}, err
	}
	labels, err := f.Ints("labels")
	if err != nil {
		return Example{}, err
	}
	if len(ids) != len(labels) {
		return Example{}, fmt.Errorf("field %q has %d elements and field %q has %d: they must be equally long",
			f.Key("input_ids"), len(ids), f.Key("labels"), len(labels))
	}
	if f.Present("attention_mask") {
		n, err := unpadded(f, len(ids))
		if err != nil {
			return Example{}, err
		}
		ids, labels = ids[:n], labels[:n]
	}
	for t, label := range labels {
		if label != Ignore && label != ids[t] {
			return Example{}, fmt.Errorf(
				"%s[%d] is %d, but %s[%d] is %d: a label is -100 or the id at its own position "+
					"(labels are not shifted)", f.Key("labels"), t, label, f.Key("input_ids"), t, ids[t])
		}
	}
	if len(ids) == 0 {
		return Example{Empty: dropEmptyText}, nil
	}
	return Example{IDs: ids, Labels: labels}, nil
}

// unpadded reads the attention mask, which must be ones followed by zeros, and returns the number of ones.
func unpadded(f Fields, want int) (int, error) {
	mask, err := f.mask("attention_mask")
	if err != nil {
		return 0, err
	}
	if len(mask) != want {
		return 0, fmt.Errorf("field %q has %d elements and field %q has %d: they must be equally long",
			f.Key("attention_mask"), len(mask), f.Key("input_ids"), want)
	}
	n := 0
	for t, m := range mask {
		switch {
		case m == 1 && n == t:
			n++
		case m != 0:
			return 0, fmt.Errorf("%s[%d] is %d: want ones, then zeros for padding on the right",
				f.Key("attention_mask"), t, m)
		}
	}
	return n, nil
}
