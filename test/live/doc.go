// Package live holds the tests of the agent beside a real, running Kafka Streams
// application (build tag streams; make test-streams): every figure that it
// exports is compared with what the application, its broker and the file system
// say, and nothing that runs, is closed or is killed is ever said to be damaged.
package live
