package safetext

import (
	"encoding/base64"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Hidden is what stands in place of a secret.
const Hidden = "***"

// Variables are the environment variables whose values the program reads as secrets. Those that hold an address hide
// its path and query; the host stays readable.
var Variables = []string{
	"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_URI",
	"TRACKING_WEBHOOK_URL", "TRACKING_WEBHOOK_SECRET", "TRAINER_API_KEY", "TRAINER_RANKS_KEY",
	"TRAINER_TRACKING_WEBHOOK_URL",
	"TRAINER_TRACKING_MLFLOW_URL", "WANDB_API_KEY",
}

// leastSecret is the least length of a value that is looked for: a shorter one would hide common words.
const leastSecret = 6

var known struct {
	sync.RWMutex
	values []string // longest first
}

// Keep makes Mask hide values that only a file, a flag or a configuration says: keys, tokens, addresses of webhooks.
func Keep(values ...string) {
	known.Lock()
	defer known.Unlock()
	for _, v := range values {
		if v = strings.TrimSpace(v); len(v) >= leastSecret && !slices.Contains(known.values, v) {
			known.values = append(known.values, v)
		}
	}
	slices.SortFunc(known.values, func(a, b string) int { return len(b) - len(a) })
}

// Forms of secrets that are known without their values.
var (
	userInfo   = regexp.MustCompile(`\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/?#"'<>@]+@`)
	queryValue = regexp.MustCompile(
		`(?i)([?&;#][^\s=&"'<>]*(?:token|key|secret|sig|signature|passw[a-z]*|auth|credential)[^\s=&"'<>]*=)[^\s&#"'<>]+`)
	header = regexp.MustCompile(
		`(?i)((?:^|[^-\w])(?:(?:proxy-)?authorization|x-api-key|api-key|x-auth-token|private-token|set-cookie|cookie))(["']?\s*[:=]\s*["'\[]*)[^\r\n"'\]]+`)
	named = regexp.MustCompile(
		`(?i)\b((?:[a-z0-9]+_)*(?:password|passwd|secret|api_?key|access_?token|auth_?token))(["']?\s*[:=]\s*["']?)[^\s"',;}]+`)
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{6,})`)
	tokens = regexp.MustCompile(
		`\b(?:hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[opusr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|wandb_v1_[A-Za-z0-9_]{16,}|AKIA[A-Z0-9]{16})`)
	webhookHost = regexp.MustCompile(
		`(?i)\b(https?://(?:hooks\.slack\.com|hooks\.zapier\.com|(?:[a-z]+\.)?discord(?:app)?\.com|[a-z0-9.-]+\.webhook\.office\.com|outlook\.office\.com|chat\.googleapis\.com|api\.telegram\.org|maker\.ifttt\.com|hooks\.[a-z0-9.-]+|[a-z0-9.-]*webhook[a-z0-9.-]*))(/[^\s"'<>]+)`)
)

// Mask returns text without secrets: values of Variables and of Keep, user names and passwords in addresses, addresses
// of webhooks behind their hosts, values of headers and query fields that carry credentials, and tokens of known forms.
func Mask(text string) string {
	if text == "" {
		return text
	}
	for _, v := range secrets() {
		text = strings.ReplaceAll(text, v, maskedValue(v))
	}
	if strings.Contains(text, "://") {
		text = userInfo.ReplaceAllString(text, "${1}"+Hidden+"@")
		text = webhookHost.ReplaceAllString(text, "${1}/"+Hidden)
	}
	if strings.Contains(text, "=") {
		text = queryValue.ReplaceAllString(text, "${1}"+Hidden)
	}
	if strings.ContainsAny(text, ":=") {
		text = header.ReplaceAllString(text, "${1}${2}"+Hidden)
		text = named.ReplaceAllString(text, "${1}${2}"+Hidden)
	}
	text = bearer.ReplaceAllStringFunc(text, maskedBearer)
	return tokens.ReplaceAllString(text, Hidden)
}

// secrets are all values that are known, longest first, and of addresses the part behind the host too: an error may
// name that alone.
func secrets() []string {
	known.RLock()
	all := slices.Clone(known.values)
	known.RUnlock()
	for _, name := range Variables {
		if v := strings.TrimSpace(os.Getenv(name)); len(v) >= leastSecret {
			all = append(all, v)
		}
	}
	for _, v := range all {
		if u, err := url.Parse(v); err == nil && u.Host != "" {
			if path := u.RequestURI(); len(path) > leastSecret {
				all = append(all, path)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

// maskedValue hides a secret; of an address scheme and host stay.
func maskedValue(v string) string {
	u, err := url.Parse(v)
	switch {
	case err == nil && u.Host != "":
		return Address(v)
	case strings.HasPrefix(v, "/"):
		return "/" + Hidden
	}
	return Hidden
}

// Address returns an address whose path may be a secret: scheme and host alone, and Hidden where more was there.
func Address(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return Hidden
	}
	if u.User == nil && u.RawQuery == "" && u.Fragment == "" && strings.Trim(u.Path, "/") == "" {
		return address
	}
	return u.Scheme + "://" + u.Host + "/" + Hidden
}

// maskedBearer hides what follows Bearer or Basic where it looks like a credential and not like the next word.
func maskedBearer(found string) string {
	parts := bearer.FindStringSubmatch(found)
	value := parts[3]
	if strings.EqualFold(parts[1], "basic") {
		decoded, err := base64.StdEncoding.DecodeString(value)
		if err != nil || !strings.Contains(string(decoded), ":") {
			return found
		}
	} else if !strings.ContainsAny(value, "0123456789_=/+") && strings.ToLower(value) == value {
		return found
	}
	return parts[1] + parts[2] + Hidden
}

// webhookKey is a line of YAML or JSON that names a webhook's address, whatever its host.
var webhookKey = regexp.MustCompile(`(?i)webhook_url["']?\s*:\s*["']?(https?://[^\s"',}]+)`)

// Lines are the numbers, from 1, of the lines of a text that hold what Mask would hide or the whole address of a
// webhook.
func Lines(text string) (lines []int) {
	for i, line := range strings.Split(text, "\n") {
		found := webhookKey.FindStringSubmatch(line)
		if Mask(line) != line || found != nil && Address(found[1]) != found[1] &&
			!strings.HasSuffix(found[1], "/"+Hidden) {
			lines = append(lines, i+1)
		}
	}
	return lines
}
