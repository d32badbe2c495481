/** `node stop-main.ts DIR [--remove]`: the command of a reaper. */
import { stopCluster } from './stop.ts'

const [dir, remove] = process.argv.slice(2)
if (!dir) throw new Error('usage: stop-main.ts DIR [--remove]')
await stopCluster(dir, { removeDir: remove === '--remove' })
