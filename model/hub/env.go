package hub

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/internal/safetext"
)

// settings are Options completed from the environment by huggingface_hub's rules.
type settings struct {
	cache    string
	endpoint *url.URL
	token    string
	offline  bool
}

func environment(opts Options) (settings, error) {
	var s settings
	home, err := hubHome()
	if err != nil && opts.CacheDir == "" {
		return s, err
	}
	s.cache = cmp.Or(opts.CacheDir, os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"),
		filepath.Join(home, "hub"))
	if s.cache, err = expand(s.cache); err != nil {
		return s, err
	}
	address := strings.TrimRight(cmp.Or(opts.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	s.endpoint, err = url.Parse(address)
	if err != nil || s.endpoint.Host == "" || s.endpoint.Scheme != "http" && s.endpoint.Scheme != "https" {
		return s, fmt.Errorf("the hub's address (HF_ENDPOINT) is %q, expected https://host", address)
	}
	if s.token, err = token(opts, home); err != nil {
		return s, err
	}
	offline := strings.ToUpper(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))
	s.offline = slices.Contains([]string{"1", "ON", "YES", "TRUE"}, offline)
	return s, nil
}

// CacheDir returns the folder in which models and data sets of the hub are cached.
func CacheDir() (string, error) {
	s, err := environment(Options{})
	return s.cache, err
}

// hubHome returns HF_HOME, else huggingface in XDG_CACHE_HOME, else ~/.cache/huggingface.
func hubHome() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return expand(dir)
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return expand(filepath.Join(dir, "huggingface"))
	}
	return expand("~/.cache/huggingface")
}

// expand replaces a leading ~ by the home folder.
func expand(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~")
	if !ok || rest != "" && rest[0] != '/' {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the model cache: %w; set HF_HOME", err)
	}
	return filepath.Join(home, rest), nil
}

func token(opts Options, home string) (string, error) {
	if t := strings.TrimSpace(cmp.Or(opts.Token, os.Getenv("HF_TOKEN"), os.Getenv("HUGGING_FACE_HUB_TOKEN"))); t != "" {
		return t, nil
	}
	named := os.Getenv("HF_TOKEN_PATH")
	path, err := expand(cmp.Or(named, filepath.Join(home, "token")))
	if err != nil {
		return "", err
	}
	raw, err := regular.ReadFile(path)
	if err != nil {
		if os.IsNotExist(err) && named == "" {
			return "", nil // most users have none
		}
		return "", fmt.Errorf("read the hub token: %w", err)
	}
	t := strings.TrimSpace(string(raw))
	safetext.Keep(t)
	return t, nil
}
