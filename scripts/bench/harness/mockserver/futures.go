package main

import (
	"sync"
	"time"
)

// Futures by id, submitted once.

type kind uint8

const (
	kSample kind = iota
	kFwdBwd
	kOptim
	kCreateModel
	kSave
	kSaveSampler
	kLoad
	kUnload
)

type future struct {
	mu        sync.Mutex
	kind      kind
	ready     time.Time
	readyWall time.Time
	tryLeft   int
	delivered int
	modelID   string
	path      string
	// sample
	echo         int32
	outTokens    int
	numSamples   int
	promptLen    int
	wantPromptLP bool
	topk         int
	// fwd/bwd
	seq  int64
	lens []int32
}

const nShards = 64

type shard struct {
	mu sync.Mutex
	m  map[string]*future
}

var shards [nShards]shard

func shardOf(id []byte) *shard {
	h := uint32(2166136261)
	for _, c := range id {
		h = (h ^ uint32(c)) * 16777619
	}
	return &shards[h%nShards]
}

func lookup(id []byte) *future {
	s := shardOf(id)
	s.mu.Lock()
	f := s.m[string(id)]
	s.mu.Unlock()
	return f
}

// putOnce stores f unless the id is known already (idempotent resubmission).
func putOnce(id string, f *future) bool {
	s := shardOf([]byte(id))
	s.mu.Lock()
	_, dup := s.m[id]
	if !dup {
		s.m[id] = f
	}
	s.mu.Unlock()
	return !dup
}
