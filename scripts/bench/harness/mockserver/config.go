package main

import (
	"sync/atomic"
)

// Settings, by flag at startup and by POST /__ctl at run time.

type config struct {
	DelayMs           float64        `json:"delay_ms"`            // submit -> future complete
	DelayJitterMs     float64        `json:"delay_jitter_ms"`     // extra, uniform, deterministic
	LongPollMs        float64        `json:"longpoll_ms"`         // hold a retrieve at most this long, then try_again
	TryAgainN         int            `json:"try_again_n"`         // first N retrieves of every future answer try_again immediately
	TryAgain408       bool           `json:"try_again_408"`       // answer try_again as HTTP 408 instead of 200
	LatencyMs         float64        `json:"latency_ms"`          // added to every API response (fake network RTT)
	OutTokens         int            `json:"out_tokens"`          // used when the request has no max_tokens
	FaultPermille     int            `json:"fault_permille"`      // probability of a fault, in 1/1000
	FaultEvery        int            `json:"fault_every"`         // alternatively: every Nth eligible request
	FaultKinds        []string       `json:"fault_kinds"`         // 429 | 500 | 503 | 408 | reset | reset_after
	FaultPaths        []string       `json:"fault_paths"`         // endpoint names that may fail
	RetryAfter        string         `json:"retry_after"`         // Retry-After on 429/503 ("" = omit)
	JSONOnly          bool           `json:"json_only"`           // never answer protobuf
	MetadataOnlyBytes int            `json:"metadata_only_bytes"` // >0: larger payloads answer complete_metadata first
	LogprobDType      string         `json:"logprob_dtype"`       // float32 | bfloat16 (proto fwd/bwd outputs)
	ZstdDatums        int            `json:"zstd_datums"`         // datums assumed per zstd body (std lib cannot inflate zstd)
	ZstdTokens        int            `json:"zstd_tokens"`         // tokens assumed per datum for zstd bodies
	ClientConfig      map[string]any `json:"client_config"`       // served by /client/config
}

func defaultConfig() *config {
	return &config{
		LongPollMs: 30000, OutTokens: 64, RetryAfter: "1",
		FaultKinds:   []string{"429", "500", "reset", "408"},
		FaultPaths:   []string{"asample", "retrieve_future", "forward_backward", "forward", "optim_step"},
		LogprobDType: "float32", ZstdDatums: 1, ZstdTokens: 1,
		ClientConfig: map[string]any{},
	}
}

var (
	cfgPtr  atomic.Pointer[config]
	baseCfg *config
)

func cfg() *config { return cfgPtr.Load() }
