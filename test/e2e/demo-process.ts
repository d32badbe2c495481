import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, expect } from 'vitest'
import { apiServerBinaries, ensureBinaries, natsBinaries, silentProgress } from '#lab'
import { shortTempDir } from '../support/servers.ts'

const BIN = fileURLToPath(new URL('../../cli/bin.js', import.meta.url))

/** The programs of the demo without a node. */
export const BARE = [...apiServerBinaries, ...natsBinaries]

/** What the timeline shows, in order: the rest comes in between. */
const LIFE = [
  'At created     example-at',
  'event seen     At example-at added',
  'key queued     at default/example-at',
  'run started',
  'written        status of example-at',
  'timer armed',
  'timer fired',
  'run started',
  'pod created    example-at-pod',
  'event seen     Pod example-at-pod added',
  'written        status of example-at',
  'pod log        ',
  'DONE           ',
  '\nDONE:',
]

/** The steps of a life that are found one after the other. */
function stepsIn(out: string): string[] {
  let from = 0
  return LIFE.filter((step) => {
    const found = out.indexOf(step, from)
    if (found !== -1) from = found + step.length
    return found !== -1
  })
}

/** Demos with their output in a pipe, and with a temporary folder of the calling file. */
export function demos() {
  let temporary: string
  beforeAll(async () => {
    temporary = await shortTempDir()
  })
  afterAll(() => rm(temporary, { recursive: true, force: true }))

  function start(options: string[], env: Record<string, string> = {}) {
    const child = spawn(process.execPath, [BIN, 'demo', ...options], {
      env: { PATH: process.env['PATH'], HOME: process.env['HOME'], TMPDIR: temporary, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const demo = { child, out: '', err: '', exited: once(child, 'exit'), closed: once(child, 'close') }
    child.stdout.on('data', (chunk: Buffer) => (demo.out += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => (demo.err += chunk.toString()))
    return demo
  }

  /** The lives that it shows, in plain lines: each whole, with its log. Returns its error output. */
  async function shows(logs: string[], options: string[] = [], env: Record<string, string> = {}): Promise<string> {
    const demo = start(options, env)
    const [code] = await demo.closed
    const { out, err } = demo
    expect({ code, out, err }).toMatchObject({ code: 0 })
    expect(out + err).not.toContain('\u001B')
    expect(err.split('\n').filter((line) => line.startsWith('{'))).toEqual([])
    const lives = out.split(/(?<=\nDONE:.*\n)/).slice(0, logs.length)
    for (const [index, life] of lives.entries()) {
      expect({ steps: stepsIn(life), out }).toMatchObject({ steps: LIFE })
      expect(life).toMatch(new RegExp(`pod log +${logs[index]}`))
      const [, ...moments] = life.split('\n').filter((line) => /^ +\d+\.\d{3} s /.test(line))
      expect(moments.filter((line) => !/ s +\+/.test(line))).toEqual([])
    }
    expect(out.match(/\nDONE:/g)).toHaveLength(logs.length)
    return err
  }

  return { start, shows, left: () => readdir(temporary) }
}

export const PRETENDED = '\\(none: there is no node, and the demo has ended the pod\\)'

/** A folder for PATH with the programs of the demo without a node. */
export async function folderOfPrograms(): Promise<string> {
  const folder = await shortTempDir()
  const pathOf = await ensureBinaries(BARE, silentProgress)
  for (const name of BARE) await symlink(pathOf(name), join(folder, name))
  return folder
}
