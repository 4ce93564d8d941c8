package shutdown

import "fmt"

// explain says in words how an end came about, as far as it shows. It is "" for
// one that was clean.
func explain(s *Shutdown) string {
	missing := s.Missing()
	if len(missing) == 0 {
		return ""
	}
	closed, open, gone, unknown := 0, 0, 0, 0
	for _, e := range s.Evidence {
		if e.Reason == NotProvableHere || e.Reason == Unreadable {
			unknown++
		}
		switch {
		case e.Reason == TaskGone:
			gone++
		case e.Closed:
			closed++
		case e.Store != "":
			open++
		}
	}
	stores := closed + open + gone
	switch {
	case unknown == len(missing) && s.Stores > 0:
		return "nothing speaks against a clean close, but the files do not prove it: see the reason of each store"
	case s.Stores == 0:
		return "what the run before has left behind could not be proven to be clean, and no store was opened since"
	case gone > 0 && open == 0:
		return "Kafka Streams has removed task directories while it closed: under exactly-once it does that after an exception; they are restored in full"
	case open == 0 && s.Hook == NotCalled:
		return "the client closed its stores without a commit, as it does after an exception: look into the application's log"
	case open == 0:
		return "every store was closed, but not after a commit: look into the application's log for an exception"
	case closed == 0 && s.Hook == NotCalled:
		return "no store was closed and no preStop call came: the process was killed (out of memory, a crash, a lost node, SIGKILL), or it ended without closing Kafka Streams"
	case closed == 0 && s.HookOutcome == Observed:
		return "no close activity after the signal: it may not reach the JVM (a shell as process 1), or the application has no shutdown hook that calls KafkaStreams.close()"
	case closed == 0 && s.Triggered:
		return "the application has taken the trigger, but no store was closed before it ended"
	case closed == 0:
		return "no store was closed before the application ended"
	}
	text := fmt.Sprintf("the application ended when %d of %d stores were closed", closed, stores)
	switch {
	case s.Hook == Called && s.CloseSeconds != nil:
		return text + fmt.Sprintf(", after %.1f s: give it a longer grace period", *s.CloseSeconds)
	default:
		return text + ": it was killed while it closed, or its close has a timeout that is too short"
	}
}
