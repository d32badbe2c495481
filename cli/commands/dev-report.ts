import { registerHooks } from 'node:module'
import { fileURLToPath } from 'node:url'

/**
 * Loaded before all other modules in the process that `fairlead dev` starts. Reports each imported file, and ends with
 * its parent.
 */

registerHooks({
  load(url, context, next) {
    if (url.startsWith('file:')) process.send?.({ imported: fileURLToPath(url) })
    return next(url, context)
  },
})
process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
// Without this, the listener would keep a finished process alive.
process.channel?.unref()
