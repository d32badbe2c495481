/**
 * `node test/docs/record.ts`: runs the demo on real servers, and draws its output as it appears, as docs/images/demo-*.svg. Needs
 * what `npm run demo` needs.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { type Line, recording, SCHEMES } from './recording.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const IMAGES = join(ROOT, 'docs/images')

const began = performance.now()
const demo = spawn(process.execPath, [join(ROOT, 'cli/bin.js'), 'demo'], { stdio: ['ignore', 'pipe', 'pipe'] })
const lines: Line[] = [{ text: '$ npm run demo', atMs: 0 }]
for (const output of [demo.stdout, demo.stderr])
  createInterface({ input: output }).on('line', (text) => lines.push({ text, atMs: performance.now() - began }))
const [code] = (await once(demo, 'close')) as [number | null]
if (code !== 0) throw new Error(`the demo ended with ${code}:\n${lines.map(({ text }) => text).join('\n')}`)

mkdirSync(IMAGES, { recursive: true })
for (const [name, scheme] of Object.entries(SCHEMES))
  writeFileSync(join(IMAGES, `demo-${name}.svg`), recording(lines, scheme))
