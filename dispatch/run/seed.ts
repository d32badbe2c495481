import { randomBytes } from 'node:crypto'

const SEED_BYTES = 24
/** Each question to the system costs 0.05 to 0.1 ms where the machine has idled. */
const POOLED_SEEDS = 128

let pool = Buffer.alloc(0)

/** Text that nobody can guess, another each time. */
export function drawSeed(): string {
  if (pool.length === 0) pool = randomBytes(SEED_BYTES * POOLED_SEEDS)
  const seed = pool.toString('base64url', 0, SEED_BYTES)
  pool = pool.subarray(SEED_BYTES)
  return seed
}
