/** Loaded before all else in the process that `fairlead dev` starts: names each file that is imported, and ends with it. */
import { registerHooks } from 'node:module'
import { fileURLToPath } from 'node:url'

registerHooks({
  load(url, context, next) {
    if (url.startsWith('file:')) process.send?.({ imported: fileURLToPath(url) })
    return next(url, context)
  },
})
process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
// The listener alone would keep a process that is done.
process.channel?.unref()
