package importer

import "strings"

// pythonModel reads a trainer's model: the name of a model, or an object.
func pythonModel(t *translation, e entry) {
	if _, name := e.Value.(string); name {
		t.take(e, "base_model")
		return
	}
	t.add(Taken, e, "", nil, "an object of the program")
}

// filesOf reads the lists and tables of files that load_dataset takes; false means that the value is neither.
func (t *translation) filesOf(e entry) bool {
	if len(t.data) == 0 || !strings.HasPrefix(e.shown, "load_dataset") {
		return false
	}
	last := t.data[len(t.data)-1]
	if loader, _ := last.Get("path").(string); !t.isLoader(loader) {
		return false
	}
	files, ok := e.Value.(Map)
	if !ok {
		files = Map{{Key: "train", Value: e.Value}}
	}
	var train, val []Map
	for _, p := range files {
		list, many := p.Value.([]any)
		if !many {
			list = []any{p.Value}
		}
		for _, one := range list {
			name, ok := one.(string)
			if !ok {
				return false
			}
			if p.Key == "train" {
				train = append(train, append(Map{{Key: "path", Value: name}}, last[1:]...))
			} else {
				val = append(val, Map{{Key: "path", Value: name}})
			}
		}
	}
	if len(train) == 0 {
		return false
	}
	t.data = append(t.data[:len(t.data)-1], train...)
	t.add(Taken, e, "dataset.path", nil, "")
	if t.given["eval_dataset"].Value != nil {
		t.val = append(t.val, val...)
	}
	return true
}

// pythonHeldOut reads the rows that a trainer evaluates on: those of train_test_split, or of a known file.
func pythonHeldOut(t *translation, e entry) {
	if t.given["test_size"].Value != nil || len(t.val) > 0 {
		t.add(Taken, e, "", nil, "the rows that are held out")
		return
	}
	t.missing(e, "give dataset.val_path, or dataset.val_split")
}

// wholeConversations sets dataset.train_on: SFTTrainer trains more of a conversation than the answers, unless the file
// requests only those.
func wholeConversations(t *translation, e entry) {
	if e.Value == true {
		t.put(e, "dataset.train_on", "assistant", "")
		return
	}
	if t.has("dataset.train_on") || t.in.calls["train_on_responses_only"] ||
		t.given["dataset_text_field"].Value != nil {
		if e.peers == "" {
			t.off(e)
		}
		return
	}
	shown := e
	shown.peers = "" // written even though it is a default there, because our default differs
	t.put(shown, "dataset.train_on", "all", "")
}

// codeOfRows reports what is trained in place of rows that the program makes by its own code, which is not run.
func (t *translation) codeOfRows() {
	if !t.in.made {
		return
	}
	say := "code of the file makes the rows, and none is run: rows as they are published are read by their own keys, " +
		"and their answers are trained; trainer inspect data shows them"
	if t.in.renders && !t.has("dataset.as_chat") {
		t.at["dataset.as_chat"] = len(t.set)
		t.set = append(t.set, Setting{"dataset.as_chat", "auto", "apply_chat_template"})
		say = "code of the file makes the rows, and none is run: rows as they are published are rendered by the " +
			"model's chat template, prompts and answers too (dataset.as_chat); trainer inspect data shows them"
	}
	t.entries = append(t.entries, Entry{Group: Missing, Class: Changes, Key: t.in.maker, Say: say})
}

// separator sets dataset.separator: TRL writes nothing between a prompt and its completion, while our default is a line
// break.
func (t *translation) separator() {
	if !t.in.Program.python || t.objective != "" || t.has("dataset.separator") || t.has("dataset.format") {
		return
	}
	for _, m := range t.data {
		if m.Get("format") != nil {
			return
		}
	}
	t.put(entry{Pair: Pair{Key: "separator", Value: ""}, shown: "separator", peers: t.in.Program.Title},
		"dataset.separator", "", "")
	t.entries[len(t.entries)-1].Default = true
}
