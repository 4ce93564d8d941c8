// Package gate holds the proof of the preStop gate by real Kafka Streams (build
// tag streams; make test-streams runs a part, make test-streams-full all): it
// stops applications in every way there is, and holds what the sidecar says of
// each stop against what Streams then restores at its next start, and against
// what is in its stores.
package gate
