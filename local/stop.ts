import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { stopNode } from './node/index.ts'
import { ProcessGroup } from './processes.ts'
import { stateFile } from './state.ts'

/**
 * Stops whatever runs in that folder, whoever started it and however that ended: pods, shims, mounts, links and servers.
 * Data and logs stay, unless the folder is to go. Returns when nothing runs any more; nothing to stop is no error.
 */
export async function stopCluster(dir: string, { removeDir = false } = {}): Promise<void> {
  const folder = resolve(dir)
  if (!existsSync(join(folder, 'pid'))) return
  const processes = new ProcessGroup(folder)
  await stopNode(folder, processes)
  await processes.stopAll()
  await rm(removeDir ? folder : stateFile(folder), { recursive: true, force: true })
}
