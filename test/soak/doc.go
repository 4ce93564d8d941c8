// Package soak holds the agent with RocksDB beside it against many stores, for
// minutes (make soak). Its numbers are in docs/performance.md.
package soak
