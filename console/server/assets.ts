import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'

interface Asset {
  type: string
  body: Buffer
  gzip: Buffer
}

export interface Assets {
  /** Addresses, in the order in which pages name them. */
  styles: readonly string[]
  script: string
  get(path: string): Asset | undefined
}

const FOLDER = new URL('../assets/', import.meta.url)
const TYPES: Record<string, string> = { css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' }
/** A later one wins where two rules weigh the same. */
const STYLES = ['base', 'frame', 'tables', 'forms', 'rows', 'facts', 'drawings', 'changes', 'narrow']

/** Reads the files that pages load. Their folder is named by their contents, so browsers keep them until they change. */
export function loadAssets(): Assets {
  const files = readdirSync(FOLDER).sort()
  const bodies = files.map((file) => [file, readFileSync(new URL(file, FOLDER))] as const)
  const digest = createHash('sha256')
  for (const [file, body] of bodies) digest.update(file).update(body)
  const folder = `/assets/${digest.digest('base64url').slice(0, 16)}`
  const known = new Map<string, Asset>()
  for (const [file, body] of bodies) {
    const type = TYPES[file.split('.').at(-1) ?? '']
    if (type !== undefined) known.set(`${folder}/${file}`, { type, body, gzip: gzipSync(body, { level: 9 }) })
  }
  return {
    styles: STYLES.map((name) => `${folder}/${name}.css`),
    script: `${folder}/console.js`,
    get: (path) => known.get(path),
  }
}
