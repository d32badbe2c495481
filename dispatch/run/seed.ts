const SEED_BYTES = 24
/** Each question to the system costs 0.05 to 0.1 ms where the machine has idled. */
const POOLED_SEEDS = 128

/** Gives another text at each call, which nobody can guess. `randomBytes` must be cryptographically secure. */
export function seedsFrom(randomBytes: (size: number) => Buffer): () => string {
  let pool: Buffer = Buffer.alloc(0)
  return () => {
    if (pool.length === 0) pool = randomBytes(SEED_BYTES * POOLED_SEEDS)
    const seed = pool.toString('base64url', 0, SEED_BYTES)
    pool = pool.subarray(SEED_BYTES)
    return seed
  }
}
