package track

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRefused: what configuration or environment lacks is said before the run, exactly, and without secrets.
func TestRefused(t *testing.T) {
	kube := map[string]string{kubeflowURL: "http://x/status", kubeflowCA: "ca", kubeflowToken: "token"}
	for _, c := range []struct {
		name string
		make New
		cfg  Config
		env  map[string]string
		want string
	}{
		{"no webhook", NewWebhook, Config{}, nil, "training.report_to: webhook needs tracking.webhook_url, or TRACKING_WEBHOOK_URL in the environment"},
		{"bad webhook", NewWebhook, Config{WebhookURL: "hooks/me"}, nil, "tracking.webhook_url: is not an address such as https://host:port/path"},
		{"bad webhook in the environment", NewWebhook, Config{}, map[string]string{webhookURLVariable: "ftp://secret"}, "TRACKING_WEBHOOK_URL: is not an address such as https://host:port/path"},
		{"password", NewWebhook, Config{WebhookURL: "https://me:secret@host/x"}, nil, "tracking.webhook_url: has a user name or password in it, which would be saved with the run; set them in the environment (docs/TRACKERS.md)"},
		{"no mlflow", NewMLflow, Config{}, nil, "training.report_to: mlflow needs tracking.mlflow_url, or MLFLOW_TRACKING_URI in the environment"},
		{"mlflow folder", NewMLflow, Config{}, map[string]string{"MLFLOW_TRACKING_URI": "file:///runs"},
			"MLFLOW_TRACKING_URI: is not an address such as https://host:port/path; MLflow's folders and databases are written by its server alone"},
		{"not in kubeflow", NewKubeflow, Config{}, nil, "training.report_to: kubeflow needs KUBEFLOW_TRAINER_SERVER_URL, which Kubeflow Trainer sets in a TrainJob with its feature gate TrainJobStatus"},
		{"kubeflow in the clear", NewKubeflow, Config{}, kube, "KUBEFLOW_TRAINER_SERVER_URL: is not an https address, so the token would be sent in the clear"},
		{"open listener", NewPrometheus, Config{MetricsAddr: "0.0.0.0:9400"}, nil,
			`tracking.metrics_addr: "0.0.0.0:9400" is not a loopback address; write 127.0.0.1:PORT, and put a proxy before it where others must read it`},
		{"mode", NewWandb, Config{}, map[string]string{"WANDB_MODE": "shared"},
			"WANDB_MODE: \"shared\" is not a mode: write offline, or disabled; online is taken too, and writes offline for `wandb sync`"},
		{"run id", NewWandb, Config{}, map[string]string{"WANDB_RUN_ID": "../x"}, `WANDB_RUN_ID: "../x" is not an id of up to 64 letters, digits, - and _`},
		{"long tag", NewWandb, Config{}, map[string]string{"WANDB_TAGS": "a," + strings.Repeat("b", 65)}, `WANDB_TAGS: the tag "` + strings.Repeat("b", 65) + `" has more than 64 characters`},
		{"long tag of the configuration", NewWandb, Config{Tags: map[string]string{"t": strings.Repeat("b", 63)}}, nil,
			`tracking.tags: "t:` + strings.Repeat("b", 63) + `" has more than the 64 characters of a tag of Weights & Biases`},
		{"no port", NewPrometheus, Config{MetricsAddr: "9400"}, nil, `tracking.metrics_addr: "9400" is not HOST:PORT, such as 127.0.0.1:9400`},
	} {
		_, err := c.make(Run{Config: c.cfg, Getenv: func(name string) string { return c.env[name] }})
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.name, err, c.want)
		}
	}
	if n := len((Config{MLflowURL: "x", WebhookURL: "y", MetricsAddr: "z"}).Validate()); n != 3 {
		t.Errorf("%d problems, want 3", n)
	}
}

// TestAnswersThatRefuse: a server's no is permanent or not, and its message names the host alone.
func TestAnswersThatRefuse(t *testing.T) {
	status, body, location := 0, "", ""
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if location != "" {
			w.Header().Set("Location", location)
		}
		w.WriteHeader(status)
		w.Write([]byte(body)) //nolint:errcheck // a test
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	send := func(address string) error {
		hook, err := NewWebhook(Run{Config: Config{WebhookURL: address + "/a-secret-path"}, Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		defer hook.Close() //nolint:errcheck // a test
		_, err = hook.Send(t.Context(), []Event{{Kind: KindStart}})
		return err
	}
	for _, c := range []struct {
		status         int
		body, location string
		permanent      bool
		want           string
	}{
		{401, "who?", "", true, host + " answered 401 Unauthorized: it refuses the credentials; see docs/TRACKERS.md for the variables that hold them"},
		{302, "", "http://elsewhere/", true, host + " answered 302 Found: redirects are not followed; configure the address that it leads to"},
		{422, "bad\n\x1b[31mfield", "", true, host + " answered 422 Unprocessable Entity: bad \\x1b[31mfield"},
		{503, "", "", false, host + " answered 503 Service Unavailable"},
	} {
		status, body, location = c.status, c.body, c.location
		err := send(server.URL)
		_, permanent := err.(*Permanent) //nolint:errorlint // nothing wraps it
		if err == nil || err.Error() != c.want || permanent != c.permanent {
			t.Errorf("got  %v, permanent %v\nwant %s, %v", err, permanent, c.want, c.permanent)
		}
	}
	secure := httptest.NewUnstartedServer(handler)
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	defer secure.Close()
	err := send(secure.URL)
	want := strings.TrimPrefix(secure.URL, "https://") + ": its certificate is not trusted: "
	if _, permanent := err.(*Permanent); err == nil || !strings.HasPrefix(err.Error(), want) || !permanent { //nolint:errorlint // nothing wraps it
		t.Errorf("got %v, want %s...", err, want)
	}
}

// TestNoFolder: files that cannot be written are an error of the tracker, which the queue says.
func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := Run{Dir: file, Getenv: func(string) string { return "" }}
	for _, c := range []struct {
		make New
		want string
	}{
		{NewTensorBoard, "make an event file in " + filepath.Join(file, TensorBoardDir) + ": "},
		{NewPrometheus, "write " + filepath.Join(file, MetricsPromFile) + ": "},
	} {
		tr, err := c.make(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.Send(context.Background(), []Event{{Kind: KindStart, Time: time.Unix(1, 0)}})
		if _, permanent := err.(*Permanent); err == nil || !strings.HasPrefix(err.Error(), c.want) || !permanent { //nolint:errorlint // nothing wraps it
			t.Errorf("got %v, want %s...", err, c.want)
		}
	}
}
