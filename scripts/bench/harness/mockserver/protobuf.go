package main

import (
	"encoding/binary"
)

// Minimal protobuf encoding and decoding.

func uvarint(b []byte) (uint64, []byte) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil
	}
	return v, b[n:]
}

// eachField walks the fields of one message without copying.
func eachField(b []byte, fn func(num int, wt int, v uint64, data []byte) bool) bool {
	for len(b) > 0 {
		var tag uint64
		tag, b = uvarint(b)
		if b == nil {
			return false
		}
		num, wt := int(tag>>3), int(tag&7)
		switch wt {
		case 0:
			var v uint64
			if v, b = uvarint(b); b == nil {
				return false
			}
			if !fn(num, wt, v, nil) {
				return true
			}
		case 1:
			if len(b) < 8 {
				return false
			}
			if !fn(num, wt, binary.LittleEndian.Uint64(b), nil) {
				return true
			}
			b = b[8:]
		case 5:
			if len(b) < 4 {
				return false
			}
			if !fn(num, wt, uint64(binary.LittleEndian.Uint32(b)), nil) {
				return true
			}
			b = b[4:]
		case 2:
			var n uint64
			if n, b = uvarint(b); b == nil || uint64(len(b)) < n {
				return false
			}
			if !fn(num, wt, 0, b[:n]) {
				return true
			}
			b = b[n:]
		default:
			return false
		}
	}
	return true
}

func parseFwdBwd(b []byte) (model string, seq int64, lens []int32, ok bool) {
	lens = make([]int32, 0, 64)
	ok = eachField(b, func(num, wt int, v uint64, d []byte) bool {
		switch num {
		case 1:
			model = string(d)
		case 2:
			seq = int64(v)
		case 3:
			var tok int32
			eachField(d, func(num, wt int, v uint64, chunk []byte) bool {
				if num != 1 { // loss_fn_inputs are ignored
					return true
				}
				eachField(chunk, func(num, wt int, v uint64, et []byte) bool {
					if num == 1 {
						eachField(et, func(num, wt int, v uint64, t []byte) bool {
							if num == 1 {
								tok += int32(len(t) / 4)
							}
							return true
						})
					}
					return true
				})
				return true
			})
			lens = append(lens, tok)
		}
		return true
	})
	return
}

func pbTag(b []byte, num, wt int) []byte { return binary.AppendUvarint(b, uint64(num<<3|wt)) }
func pbVarint(b []byte, num int, v uint64) []byte {
	return binary.AppendUvarint(pbTag(b, num, 0), v)
}
func pbBytes(b []byte, num int, d []byte) []byte {
	b = binary.AppendUvarint(pbTag(b, num, 2), uint64(len(d)))
	return append(b, d...)
}
func pbStr(b []byte, num int, s string) []byte {
	b = binary.AppendUvarint(pbTag(b, num, 2), uint64(len(s)))
	return append(b, s...)
}
