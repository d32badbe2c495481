import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { stopNode } from './node/index.ts'
import { ProcessGroup } from './processes.ts'
import { stateFile } from './state.ts'

/**
 * Stops everything that runs in that folder, whichever process started it: pods, shims, mounts, links and servers. Data
 * and logs remain unless `removeDir` is true. Resolves when all have ended; succeeds if none runs.
 */
export async function stopCluster(dir: string, { removeDir = false } = {}): Promise<void> {
  const folder = resolve(dir)
  if (!existsSync(join(folder, 'pid'))) return
  const processes = new ProcessGroup(folder)
  await stopNode(folder, processes)
  await processes.stopAll()
  await rm(removeDir ? folder : stateFile(folder), { recursive: true, force: true })
}
