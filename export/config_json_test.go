package export

import "testing"

// TestConfigTypes: the type of the numbers is set for the whole model and for its language model.
func TestConfigTypes(t *testing.T) {
	got, err := withDType([]byte(`{"torch_dtype": "float32", "text_config": {"dtype": "float32", "n": 1}}`), "bfloat16")
	if want := `{"torch_dtype": "bfloat16", "text_config": {"dtype": "bfloat16", "n": 1}}`; err != nil ||
		string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestWithBaseModel: the name and the revision of a base model go into PEFT's two keys, and an older revision goes.
func TestWithBaseModel(t *testing.T) {
	for _, c := range []struct{ config, name, want string }{
		{`{"base_model_name_or_path": "/a", "r": 8}`, "org/m", `{"base_model_name_or_path": "org/m", "r": 8}`},
		{`{"base_model_name_or_path": "a/b", "revision": "v1"}`, "org/m",
			`{"base_model_name_or_path": "org/m", "revision": null}`},
		{`{"base_model_name_or_path": "a/b", "revision": null}`, "org/m@v2",
			`{"base_model_name_or_path": "org/m", "revision": "v2"}`},
	} {
		if got, err := WithBaseModel([]byte(c.config), c.name); err != nil || string(got) != c.want {
			t.Errorf("%s with %s: %s, %v; want %s", c.config, c.name, got, err, c.want)
		}
	}
}
