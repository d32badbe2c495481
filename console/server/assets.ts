import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { gzipSync } from 'node:zlib'

interface Asset {
  type: string
  body: Buffer
  gzip: Buffer
}

const FILES = {
  css: ['console.css', 'text/css; charset=utf-8'],
  js: ['console.js', 'text/javascript; charset=utf-8'],
} as const

/** Files that pages load, under names that say what is in them: a browser keeps them until they change. */
export function loadAssets(): { paths: { css: string; js: string }; get(path: string): Asset | undefined } {
  const known = new Map<string, Asset>()
  const load = (kind: keyof typeof FILES): string => {
    const [file, type] = FILES[kind]
    const body = readFileSync(new URL(`../assets/${file}`, import.meta.url))
    const path = `/assets/${createHash('sha256').update(body).digest('base64url').slice(0, 16)}.${kind}`
    known.set(path, { type, body, gzip: gzipSync(body, { level: 9 }) })
    return path
  }
  return { paths: { css: load('css'), js: load('js') }, get: (path) => known.get(path) }
}
