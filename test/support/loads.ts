/** Preloaded: at its end, the process prints its loaded rooms and packages as the last line of standard error. */
import { writeSync } from 'node:fs'
import { registerHooks } from 'node:module'

const ROOT = new URL('../..', import.meta.url).href
/** A package, or a room: the first folder, or the first two where several rooms share a folder. */
function ownerOf(path: string): string | undefined {
  const [, name] = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path) ?? []
  if (name !== undefined) return name
  const [, room] =
    /^((?:core|functions|streams|packages)\/[^/]+|cli\/install|kube\/pki|sdk\/testing|[^/]+)\//.exec(path) ?? []
  return room
}
const loaded = new Set<string>()

registerHooks({
  load(url, context, next) {
    const owner = ownerOf(url.replace(ROOT, ''))
    if (url.startsWith(ROOT) && owner !== undefined) loaded.add(owner)
    return next(url, context)
  },
})

process.on('exit', () => writeSync(2, `\n${JSON.stringify([...loaded].sort())}`))
