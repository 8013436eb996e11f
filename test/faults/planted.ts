/** Throws for one in sixteen million beginnings. */
export const planted = (input: Uint8Array): void => {
  if (input[0] === 0x7b) {
    if (input[1] === 0xe1) {
      if (input[2] === 0x35) throw new Error("planted")
    }
  }
}
