/** Preloaded: at its end, the process prints its loaded rooms and packages as the last line of standard error. */
import { writeSync } from 'node:fs'
import { registerHooks } from 'node:module'

const ROOT = new URL('../..', import.meta.url).href
const loaded = new Set<string>()

registerHooks({
  load(url, context, next) {
    const [, owner] = /^(?:node_modules\/)?((?:@[^/]+\/)?[^/]+)\//.exec(url.replace(ROOT, '')) ?? []
    if (url.startsWith(ROOT) && owner !== undefined) loaded.add(owner)
    return next(url, context)
  },
})

process.on('exit', () => writeSync(2, `\n${JSON.stringify([...loaded].sort())}`))
