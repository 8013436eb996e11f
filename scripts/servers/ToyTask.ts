/**
 * The task for the tiny model: eight prompts with one answer each, and the losses recorded with the official Python
 * SDK.
 */
import { Array as Arr } from "effect"

/** The token that ends an answer. */
export const endOfAnswer = 2

/** The tokens of each prompt and of its answer. */
export const pairs = [
  { text: "2+3= five", prompt: [21, 14, 22, 32], answer: [290, 76, 377] },
  { text: "4+4= eight", prompt: [23, 14, 23, 32], answer: [297, 76, 74, 75, 87] },
  { text: "1+6= seven", prompt: [20, 14, 25, 32], answer: [364, 377, 81] },
  { text: "7+2= nine", prompt: [26, 14, 21, 32], answer: [305, 266, 72] },
  { text: "sky: blue", prompt: [86, 78, 92, 29], answer: [287, 79, 321] },
  { text: "grass: green", prompt: [74, 395, 306, 29], answer: [224, 74, 270, 72, 81] },
  { text: "snow: white", prompt: [86, 81, 82, 90, 29], answer: [310, 466, 269] },
  { text: "coal: black", prompt: [422, 282, 29], answer: [287, 309, 70, 78] },
] as const

export const data = pairs.map(({ answer, prompt }) => {
  const tokens = [...prompt, ...answer, endOfAnswer]
  return {
    modelInput: tokens.slice(0, -1),
    inputs: {
      targetTokens: tokens.slice(1),
      weights: [...Arr.replicate(0, prompt.length - 1), ...Arr.replicate(1, answer.length + 1)],
    },
  }
})

export const rank = 8
export const seed = 1
export const adam = { learningRate: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-12 }

/** Number of tokens with weight 1. */
export const weighted = pairs.reduce((sum, { answer }) => sum + answer.length + 1, 0)

/** Returns the mean loss of the weighted tokens, from the log probabilities of each datum. */
export const meanLoss = (logprobs: ReadonlyArray<ArrayLike<number>>): number => {
  let sum = 0
  for (const [index, { answer, prompt }] of pairs.entries()) {
    for (let i = 0; i <= answer.length; i++) sum -= logprobs[index]?.[prompt.length - 1 + i] ?? Number.NaN
  }
  return sum / weighted
}

/** Log probabilities of the first datum before training. The same on every server: new adapters have no effect. */
export const firstLogprobs = [-5.982458, -7.17314, -5.393912, -6.405813, -6.392598, -7.099689, -6.590991]

/** {@link meanLoss} before each of 30 steps; servers that initialize adapters by the seed repeat it exactly. */
export const skyrlLosses = [
  6.379723, 5.038583, 4.104681, 3.530119, 3.125002, 2.805299, 2.593662, 2.527985, 2.3618, 2.201368, 2.129577, 2.046027,
  1.990999, 1.955122, 1.908303, 1.868387, 1.840245, 1.809649, 1.789173, 1.76917, 1.758156, 1.742044, 1.731027, 1.722421,
  1.70681, 1.696356, 1.686445, 1.677595, 1.673211, 1.66602,
]

/** The same on a server that ignores the seed: mean of eight runs, and standard deviation of one run (of 48 runs). */
export const tuftLosses = {
  mean: [
    6.379723, 5.627632, 4.922372, 4.359615, 3.911697, 3.548162, 3.2358, 2.964649, 2.739993, 2.567118, 2.439023,
    2.319932, 2.24258, 2.166554, 2.095312, 2.041873, 1.985143, 1.942864, 1.901263, 1.867427, 1.833572, 1.808104,
    1.786403, 1.764714, 1.746678, 1.734995, 1.720189, 1.709493, 1.697861, 1.688888,
  ],
  deviation: [
    0.0, 0.0175, 0.0223, 0.0234, 0.0273, 0.0312, 0.0289, 0.0312, 0.0345, 0.0364, 0.0379, 0.0521, 0.0489, 0.0374, 0.0335,
    0.0311, 0.0285, 0.0238, 0.0223, 0.0199, 0.0185, 0.0166, 0.0148, 0.0136, 0.0124, 0.0108, 0.0105, 0.0096, 0.0082,
    0.0075,
  ],
}
