//go:build gpu && linux

package gpu

/*
#include <dlfcn.h>
#include <stdlib.h>
static void *open_lib(const char *p) { return dlopen(p, RTLD_NOW | RTLD_LOCAL); }
static const char *path_of(void *sym) { Dl_info i; return dladdr(sym, &i) ? i.dli_fname : ""; }
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unsafe"
)

// libraryDirs returns where NVIDIA libraries lie beyond the loader's own search: toolkits, then Python packages.
func libraryDirs() (dirs []string) {
	for _, root := range []string{os.Getenv("CUDA_HOME"), os.Getenv("CUDA_PATH"), "/usr/local/cuda"} {
		if root != "" {
			dirs = append(dirs, root+"/lib64")
		}
	}
	prefixes := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")}
	if p, err := exec.LookPath("python3"); err == nil {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(p)))
	}
	prefixes = append(prefixes, filepath.Join(os.Getenv("HOME"), ".local"), "/usr/local", "/usr")
	for _, p := range prefixes {
		if p == "" {
			continue
		}
		for _, pkgs := range []string{"site-packages", "dist-packages"} {
			m, _ := filepath.Glob(p + "/lib/python3*/" + pkgs + "/nvidia/*/lib")
			dirs = append(dirs, m...)
		}
	}
	return dirs
}

// openLibrary opens the first of names that loads: in dir when given and nowhere else, else by the loader, then in
// libraryDirs.
func openLibrary(dir string, names ...string) (unsafe.Pointer, error) {
	try := func(p string) unsafe.Pointer {
		c := C.CString(p)
		defer C.free(unsafe.Pointer(c))
		return C.open_lib(c)
	}
	var problems []string
	there := func(p string) unsafe.Pointer {
		if _, err := os.Stat(p); err != nil {
			return nil
		}
		h := try(p)
		if h == nil {
			problems = append(problems, C.GoString(C.dlerror()))
		}
		return h
	}
	for _, n := range names {
		if dir != "" {
			if h := there(filepath.Join(dir, n)); h != nil {
				return h, nil
			}
			continue
		}
		if h := try(n); h != nil {
			return h, nil
		}
		for _, d := range libraryDirs() {
			if h := there(filepath.Join(d, n)); h != nil {
				return h, nil
			}
		}
	}
	where := "in the loader's path, CUDA_HOME and Python's packages"
	if dir != "" {
		where = "in " + dir
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("open %s: %s", strings.Join(names, " or "), strings.Join(problems, "; "))
	}
	return nil, fmt.Errorf("open %s: not found %s", strings.Join(names, " or "), where)
}

// bySoname lists a library's names, newest first; a library of major version 13 needs a driver of 13.0.
func bySoname(stem string, driver int) []string {
	if driver >= 13000 {
		return []string{stem + ".13", stem + ".12"}
	}
	return []string{stem + ".12"}
}

func pathOf(sym unsafe.Pointer) string { return C.GoString(C.path_of(sym)) }

// Libraries lists the vendor libraries that would be used; dir is searched first when not empty.
func Libraries(dir string) []Library {
	l := Library{Name: "cuBLASLt", Without: "large GEMMs run on the built-in kernels, at 70 to 100 % of the rate on " +
		"compute capability 9.0 and at most half of it elsewhere (measured on an H200)"}
	b, err := OpenBLAS(dir)
	if err != nil {
		l.Problem = err.Error()
	} else {
		l.Path, l.Version = b.Path, b.Version
	}
	return []Library{l, ncclLibrary(dir)}
}
