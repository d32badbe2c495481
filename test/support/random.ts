/** Numbers from 0 to below 1, the same for the same seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Random numbers of a test. The seed is printed, and FAIRLEAD_SEED repeats it. */
export function seededRandom(what: string): () => number {
  const seed = Number(process.env['FAIRLEAD_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
  console.info(`${what}: FAIRLEAD_SEED=${seed}`)
  return randomFrom(seed)
}
