package doctor

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// tree makes files, "path=text" each.
func tree(t *testing.T, files ...string) root {
	t.Helper()
	dir, made := t.TempDir(), fstest.MapFS{}
	for _, f := range files {
		name, text, _ := strings.Cut(f, "=")
		made[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	if err := os.CopyFS(dir, made); err != nil {
		t.Fatal(err)
	}
	return root(dir)
}

func TestHost(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  Host
	}{
		"nothing":      {nil, Host{}},
		"docker":       {[]string{".dockerenv="}, Host{Container: "docker"}},
		"podman":       {[]string{"run/.containerenv="}, Host{Container: "podman"}},
		"Kubernetes":   {[]string{"var/run/secrets/kubernetes.io/serviceaccount/token="}, Host{Container: "kubernetes"}},
		"a containerd": {[]string{"proc/1/cgroup=0::/system.slice/containerd.service"}, Host{Container: "a container"}},
		"WSL":          {[]string{"proc/sys/kernel/osrelease=5.15.0-microsoft-standard-WSL2", "usr/lib/wsl/lib/libcuda.so.1="}, Host{WSL: true, WSLDriver: true}},
		"a card": {[]string{"sys/bus/pci/devices/0000:17:00.0/vendor=0x10de", "sys/bus/pci/devices/0000:17:00.0/class=0x030200", "sys/bus/pci/devices/0000:18:00.0/vendor=0x10de",
			"sys/bus/pci/devices/0000:18:00.0/class=0x040300", "sys/bus/pci/devices/0000:19:00.0/vendor=0x8086", "sys/module/nouveau/x="}, Host{PCICards: 1, Nouveau: true}},
		"a driver": {[]string{"dev/nvidia0=", "dev/nvidia1=", "dev/nvidiactl=", "proc/driver/nvidia/version=NVRM"}, Host{Devices: []string{"/dev/nvidia0", "/dev/nvidia1"}, Module: true}},
	} {
		got := tree(t, c.files...).host()
		got.System = ""
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMemory(t *testing.T) {
	if total, available := tree(t, "proc/meminfo=MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable: 50 kB").memory(); total != 100<<10 || available != 50<<10 {
		t.Errorf("%d, %d", total, available)
	}
	if total, available := tree(t).memory(); total != 0 || available != 0 {
		t.Errorf("%d, %d", total, available)
	}
}

// A folder that is not there yet is looked at where it would be made; nothing is written.
func TestFolders(t *testing.T) {
	dir := string(tree(t, "file=x"))
	f := lookAt("runs", filepath.Join(dir, "a", "b"))
	if f.Problem != "" || f.Free <= 0 {
		t.Errorf("%+v", f)
	}
	if f := lookAt("runs", filepath.Join(dir, "file")); !strings.Contains(f.Problem, "is a file, not a folder") {
		t.Errorf("%+v", f)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// This machine, whatever it is: facts and findings come without a panic, and every finding says something.
func TestGather(t *testing.T) {
	f := Gather("test", sound().BuiltAt)
	found := Judge(f)
	for _, x := range found {
		if x.About == "" || x.Says == "" || x.Severity == "" {
			t.Errorf("%+v", x)
		}
	}
	if len(found) < 3 || f.CPUs < 1 || f.Now.IsZero() || len(f.Folders) < 2 {
		t.Errorf("%+v", f)
	}
}
