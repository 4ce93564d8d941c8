//go:build streams

package gate

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// full says that all is run, and not the part that make test-streams has time for.
func full() bool { return os.Getenv("GATE") == "full" }

var tally results

// results of all trials.
type results struct {
	mu       sync.Mutex
	verdicts map[verdict]int
	losses   [2]int          // trials that were to lose something: those that did not, and those that did
	answers  []time.Duration // of the hook after the last lock's release
	added    []time.Duration // by the gate to a stop by signal, in pairs
	detour   []time.Duration // to a stop by http: before the request, and after the release
}

// verdict on what the sidecar said.
type verdict string

const (
	right        verdict = "right"
	falseClean   verdict = "FALSE CLEAN"
	falseUnclean verdict = "FALSE UNCLEAN"
	// An application that was killed between its last write and its last
	// release of a lock, or was closed after an exception that cost nothing: it
	// restores nothing, but was not closed cleanly either. The sidecar may say
	// both.
	harmless verdict = "harmless: no clean close, but nothing to restore"
)

func (v verdict) isWrong() bool { return v == falseClean || v == falseUnclean }

func (r *results) judge(saidClean, isClean, dirty bool) verdict {
	v := right
	switch {
	case isClean && dirty:
		v = harmless
	case saidClean && !isClean:
		v = falseClean
	case !saidClean && isClean:
		v = falseUnclean
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verdicts == nil {
		r.verdicts = map[verdict]int{}
	}
	r.verdicts[v]++
	return v
}

// loss counts a trial that was to lose something. When exactly an exception
// strikes is not in our hands, and now and then everything was just committed;
// TestMain makes sure that this stays the exception.
func (r *results) loss(lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lost {
		r.losses[1]++
	} else {
		r.losses[0]++
	}
}

func (r *results) late(d time.Duration) { r.collect(&r.answers, d) }

func (r *results) collect(to *[]time.Duration, d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, d)
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "not measured"
	}
	return fmt.Sprintf("p50 %v, p99 %v, max %v (%d)", ms(percentile(all, 50)), ms(percentile(all, 99)), ms(slices.Max(all)), len(all))
}

func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}

func (r *results) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	trials := 0
	for _, n := range r.verdicts {
		trials += n
	}
	return fmt.Sprintf("gate: %d trials, %d false cleans, %d false uncleans, %d harmless; %d of %d that were to lose something did; "+
		"answer after the last release %s; added to a stop by signal %s, by http %s",
		trials, r.verdicts[falseClean], r.verdicts[falseUnclean], r.verdicts[harmless], r.losses[1], r.losses[0]+r.losses[1],
		spread(r.answers), spread(r.added), spread(r.detour))
}

// TestMain prints what came of all trials.
func TestMain(m *testing.M) {
	flag.Parse()
	fmt.Printf("gate: GATE_SEED=%d\n", seed)
	begun := time.Now()
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built) // in the temporary directory
	}
	fmt.Printf("%v; %v in all\n", &tally, time.Since(begun).Round(time.Second))
	if l := tally.losses; l[0] > 1+l[1]/5 {
		fmt.Printf("gate: FAIL: %d of %d trials that were to lose something lost nothing\n", l[0], l[0]+l[1])
		code = max(code, 1)
	}
	if full() && len(tally.answers) > 100 {
		if p99 := percentile(tally.answers, 99); p99 > 50*time.Millisecond {
			fmt.Printf("gate: FAIL: the answer comes %v after the last release (p99), want at most 50ms\n", p99)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// seed of everything random; each test has its own stream of it, so that one
// that is run alone does the same.
var seed = func() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("GATE_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}()

func seeded(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // of a hash it cannot fail
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
