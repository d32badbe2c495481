/** `node stop-main.ts DIR [--remove]`: what a reaper runs. */
import { rm } from 'node:fs/promises'
import { stopCluster } from './stop.ts'

const [dir, remove] = process.argv.slice(2)
if (!dir) throw new Error('usage: stop-main.ts DIR [--remove]')
await stopCluster(dir)
if (remove === '--remove') await rm(dir, { recursive: true, force: true })
