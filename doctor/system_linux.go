package doctor

import "golang.org/x/sys/unix"

// limits returns how many files may be open and how many bytes may be locked in memory.
func limits() (files, locked uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		files = l.Cur
	}
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l) == nil {
		locked = l.Cur
	}
	return files, locked
}

// fileSystems maps the magic numbers of statfs (linux/magic.h) to the names of the file systems that matter.
var fileSystems = map[uint32]struct {
	name    string
	network bool
}{
	0x6969: {"nfs", true}, 0xff534d42: {"cifs", true}, 0xfe534d42: {"smb", true}, 0x0bd00bd0: {"lustre", true}, 0x00c36400: {"ceph", true},
	0x47504653: {"gpfs", true}, 0x19830326: {"beegfs", true}, 0x5346414f: {"afs", true}, 0x65735546: {"fuse", true}, 0x01021997: {"9p", true},
	0x01021994: {"tmpfs", false}, 0x794c7630: {"overlay", false},
}

// diskOf adds the file system's data on an existing folder.
func diskOf(dir string, f *Folder) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		f.Problem = err.Error()
		return
	}
	f.Free = int64(s.Bavail) * s.Bsize
	if s.Files > 0 {
		f.Files = int64(s.Ffree)
	}
	kind := fileSystems[uint32(s.Type)]
	f.System, f.Network = kind.name, kind.network
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		f.Problem = "nothing can be written there: " + err.Error()
	}
}
