package rockstest

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Cost runs f several times and gives the least processor time of its own
// thread that it took, which does not depend on what else the machine does, and
// the bytes that it allocates. Nothing else may run in the process meanwhile.
// One run that takes less than enough is enough.
func Cost(enough time.Duration, f func()) (least time.Duration, allocated uint64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := 0; i < 3 && (i == 0 || least > enough); i++ {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := threadTime()
		f()
		spent := threadTime() - start
		runtime.ReadMemStats(&after)
		allocated = after.TotalAlloc - before.TotalAlloc
		if i == 0 || spent < least {
			least = spent
		}
	}
	return least, allocated
}

func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
