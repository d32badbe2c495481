import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { withLock } from '../../packages/lab/lock.ts'

/** Makes the program in this folder of the cache, unless it exists. One process makes it, and the others wait. */
export async function madeOnce(dir: string, program: string, make: () => Promise<void>): Promise<string> {
  if (existsSync(program)) return program
  mkdirSync(dir, { recursive: true })
  await withLock(
    join(dir, '.lock'),
    () => {},
    async () => {
      if (!existsSync(program)) await make()
    },
  )
  return program
}
