#!/bin/sh
# make.sh JAR-DIR: writes every SST of this folder anew, and truth.txt. See README.md.
set -eu
cd "$(dirname "$0")"
five=$1/rocksdbjni-5.18.4.jar ten=$1/rocksdbjni-10.10.1-linux64.jar eleven=$1/rocksdbjni-11.8.1.jar
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
java -cp "$five" Make.java "$tmp" v1-xxhash32-rocksdb5 v4-delta-hash-rocksdb5 v2-ranges-rocksdb5
java -cp "$ten" Make.java "$tmp" v2-crc32c v3-xxhash64 v4-xxhash32-restart4 v5-none \
  v5-xxh3-partitioned v6-crc32c-firstkey v6-xxhash32-hashsearch v6-none-datahash \
  v6-xxhash64-restart1 v7-xxh3-mixed v7-xxh3-mixed-partitioned v6-ingested-written \
  v6-ingested-unwritten v6-ranges-only v7-zstd v6-zstd-plain-index reverse-v6 v6-blob v6-sizes \
  long-family
java -cp "$eleven" Make.java "$tmp" v7-uniform-rocksdb11 v7-separated-rocksdb11 \
  v7-separated-hash-rocksdb11
javac -cp "$eleven" -d "$tmp" Make.java Truth.java
# 10.10.1 reads every format_version, but not the features that only 11 has.
java -cp "$ten:$tmp" Truth $(ls "$tmp"/*.sst | grep -v rocksdb11) > "$tmp/truth.txt"
java -cp "$eleven:$tmp" Truth "$tmp"/*rocksdb11.sst >> "$tmp/truth.txt"
rm -f ./*.sst
cp "$tmp"/*.sst "$tmp/truth.txt" .
