// Package large holds verify --deep against more tables than fit in memory
// (make bench-large). Its numbers are in docs/performance.md.
package large
