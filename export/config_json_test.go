package export

import "testing"

// TestConfigTypes: the type of the numbers is set for the whole model and for its language model.
func TestConfigTypes(t *testing.T) {
	got, err := withDType([]byte(`{"torch_dtype": "float32", "text_config": {"dtype": "float32", "n": 1}}`), "bfloat16")
	if want := `{"torch_dtype": "bfloat16", "text_config": {"dtype": "bfloat16", "n": 1}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
