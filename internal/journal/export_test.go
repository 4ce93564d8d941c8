package journal

// Around puts a function between the calls of a Folder and the system: it runs
// each step of a call, or does not, or takes its time.
func Around(f func(step string, sys func() error) error) Option {
	return func(folder *Folder) { folder.around = f }
}

// Limit is [MaxSize], made cheap to reach.
func Limit(n int) Option { return func(folder *Folder) { folder.limit = n } }

var (
	IsTemporary = isTemporary
	Temporary   = temporary
)
