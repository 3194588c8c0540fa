package tests

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// objectSchema is what testdata/crds.json.gz says of a field.
type objectSchema struct {
	Type       string
	Required   []string
	Enum       []any
	Any        bool
	Properties map[string]*objectSchema
	Items      *objectSchema
	Values     *objectSchema
}

// check lists what of a value the schema does not allow.
func (s *objectSchema) check(at string, v any) (problems []string) {
	wrong := func() []string { return []string{fmt.Sprintf("%s is %T, want %s", at, v, s.Type)} }
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return []string{fmt.Sprintf("%s is %v, want one of %v", at, v, s.Enum)}
	}
	switch v := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			return wrong()
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				problems = append(problems, at+"."+name+" is missing")
			}
		}
		for name, value := range v {
			switch field := s.Properties[name]; {
			case field != nil:
				problems = append(problems, field.check(at+"."+name, value)...)
			case s.Values != nil:
				problems = append(problems, s.Values.check(at+"."+name, value)...)
			case len(s.Properties) > 0 && !s.Any:
				problems = append(problems, at+"."+name+" is no field")
			}
		}
	case []any:
		if s.Type != "array" {
			return wrong()
		}
		for i, value := range v {
			problems = append(problems, s.Items.check(fmt.Sprintf("%s[%d]", at, i), value)...)
		}
	case string:
		if s.Type != "string" && s.Type != "int-or-string" {
			return wrong()
		}
	case int:
		if s.Type != "integer" && s.Type != "number" && s.Type != "int-or-string" {
			return wrong()
		}
	case bool:
		if s.Type != "boolean" {
			return wrong()
		}
	default:
		return wrong()
	}
	return problems
}

func objectSchemas(t *testing.T) map[string]*objectSchema {
	t.Helper()
	f, err := os.Open("testdata/crds.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var schemas map[string]*objectSchema
	if err := json.NewDecoder(z).Decode(&schemas); err != nil {
		t.Fatal(err)
	}
	return schemas
}

// TestKubernetesObjects holds every file of deploy/kubernetes against the schema of its kind.
func TestKubernetesObjects(t *testing.T) {
	schemas := objectSchemas(t)
	files, _ := filepath.Glob("../deploy/kubernetes/*.yaml")
	if len(files) < 4 {
		t.Fatalf("%d files", len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(data, &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		kind := fmt.Sprint(object["apiVersion"], " ", object["kind"])
		schema := schemas[kind]
		if schema == nil {
			t.Errorf("%s: no schema of %s", file, kind)
			continue
		}
		for _, problem := range schema.check("", object) {
			t.Errorf("%s: %s", file, problem)
		}
		broken := strings.Replace(strings.Replace(string(data), "spec:", "specs:", 1), "containers:", "container:", 1)
		object = nil
		if err := yaml.Unmarshal([]byte(broken), &object); err == nil && len(schema.check("", object)) == 0 {
			t.Errorf("%s: a misspelt field is not noticed", file)
		}
	}
}

// TestDeployedCommands: the flags and keys in the files of deploy exist.
func TestDeployedCommands(t *testing.T) {
	help := mustRun(t, t.TempDir(), "train", "--help").stdout
	keys, err := os.ReadFile("../docs/CONFIG.md")
	if err != nil {
		t.Fatal(err)
	}
	flag, set := regexp.MustCompile(`--[a-z][a-z-]+`), regexp.MustCompile(`(?:--set,? "?)([a-z_.]+)=`)
	others := []string{"--env", "--address", "--entrypoint-num-gpus", "--runtime-env-json", "--working-dir", "--kill-on-bad-exit", "--signal", "--from-literal", "--gpus-per-node", "--ntasks-per-node",
		"--nodes", "--ntasks", "--gpus", "--cpus-per-task", "--mem", "--time", "--requeue", "--open-mode", "--output", "--job-name"}
	for _, pattern := range []string{"kubernetes/*.yaml", "skypilot/*", "dstack/*", "ray/*", "slurm/*"} {
		files, _ := filepath.Glob("../deploy/" + pattern)
		if len(files) == 0 {
			t.Errorf("deploy/%s: no file", pattern)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range flag.FindAllString(string(data), -1) {
				if !slices.Contains(others, name) && !strings.Contains(help, name+" ") {
					t.Errorf("%s: trainer train has no flag %s", file, name)
				}
			}
			for _, m := range set.FindAllStringSubmatch(string(data), -1) {
				if name := m[1][strings.LastIndexByte(m[1], '.')+1:]; !strings.Contains(string(keys), "`"+name+"`") && !strings.Contains(string(keys), "`"+m[1]+"`") {
					t.Errorf("%s: there is no key %s", file, m[1])
				}
			}
		}
	}
}
