import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  apiServerBinaries,
  cacheDir,
  controlPlaneBinaries,
  defaultClusterDir,
  ensureBinaries,
  natsBinaries,
  nodeBinaries,
  silentProgress,
  stopCluster,
} from '#lab'
import { tracesOfNodes } from '../lab/node-traces.ts'
import { fairlead } from '../support/fairlead.ts'
import { kubectlFor } from '../support/kubectl.ts'
import { takeTurnWithNode } from '../support/node.ts'
import { shortTempDir } from '../support/servers.ts'
import { at, until, untilPhase } from './world.ts'

const BIN = fileURLToPath(new URL('../../cli/bin.js', import.meta.url))

/** The programs of the demo without a node. */
const BARE = [...apiServerBinaries, ...natsBinaries]

/** The further programs of the demo with a node. */
const NODE = [...controlPlaneBinaries.filter((name) => !apiServerBinaries.includes(name)), ...nodeBinaries]

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

const turn = await takeTurnWithNode()
afterAll(turn.end)

let temporary: string
beforeAll(async () => {
  temporary = await shortTempDir()
})
afterAll(() => rm(temporary, { recursive: true, force: true }))

/** Starts the demo with its output in a pipe, and with a temporary folder of its own. */
function start(options: string[], env: Record<string, string> = {}) {
  const child = spawn(process.execPath, [BIN, 'demo', ...options], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], TMPDIR: temporary, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const demo = { child, out: '', err: '', exited: once(child, 'exit') }
  child.stdout.on('data', (chunk: Buffer) => (demo.out += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (demo.err += chunk.toString()))
  return demo
}

async function isShownWhole(log: string, options: string[] = [], env: Record<string, string> = {}): Promise<string> {
  const { out, err } = await toEnd(options, env)
  expect(out + err).not.toContain('\u001B')
  expect(err.split('\n').filter((line) => line.startsWith('{'))).toEqual([])
  expect({ steps: stepsIn(out), out }).toMatchObject({ steps: LIFE })
  expect(out).toMatch(new RegExp(`pod log +${log}`))
  const [, ...moments] = out.split('\n').filter((line) => /^ +\d+\.\d{3} s /.test(line))
  expect(moments.filter((line) => !/ s +\+/.test(line))).toEqual([])
  expect(await readdir(temporary)).toEqual([])
  return err
}

async function toEnd(options: string[], env: Record<string, string>): Promise<{ out: string; err: string }> {
  const demo = start(options, env)
  const [code] = await demo.exited
  const { out, err } = demo
  expect({ code, out, err }).toMatchObject({ code: 0 })
  return { out, err }
}

const PRETENDED = '\\(none: there is no node, and the demo has ended the pod\\)'

it.runIf(turn.skip)('the demo shows the life of an At without a real node, too, and says why', async () => {
  // Whoever has the node of this machine may end in the meantime.
  expect(await isShownWhole(`(YAY|${PRETENDED})`)).toMatch(/^(No real pod is shown: .*\.|✓ node, .*)$/m)
})

/** A folder for PATH with the programs of the demo without a node. */
async function folderOfPrograms(): Promise<string> {
  const folder = await shortTempDir()
  const pathOf = await ensureBinaries(BARE, silentProgress)
  for (const name of BARE) await symlink(pathOf(name), join(folder, name))
  return folder
}

it('the demo shows the same with --no-node, by programs in PATH, without Go: it ends the pod itself', async () => {
  const folder = await folderOfPrograms()
  const env = { PATH: folder, FAIRLEAD_CACHE: join(folder, 'cache') }
  const said = await isShownWhole(PRETENDED, ['--no-node'], env)
  await rm(folder, { recursive: true })
  for (const name of BARE) expect(said).toMatch(new RegExp(`taken from PATH.* ${name} [0-9.]+ `))
  const refused = await fairlead(['demo', '--no-node', '--keep'])
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('leave --no-node out') })
})

describe.skipIf(turn.skip)('the demo', () => {
  let before: Awaited<ReturnType<typeof tracesOfNodes>>
  beforeAll(async () => {
    before = await tracesOfNodes()
  })

  async function nothingLeft(): Promise<void> {
    const folders = async () => (await readdir(temporary)).filter((name) => name.startsWith('fl-'))
    await until(async () => (await folders()).length === 0, { leastMs: 200 })
    await until(async () => JSON.stringify(await tracesOfNodes()) === JSON.stringify(before), { leastMs: 500 })
  }

  const shows = (demo: { out: string; child: ChildProcess }, what: string) =>
    until(() => demo.out.includes(what), {
      leastMs: 50,
      unless: () => {
        if (demo.child.exitCode !== null && !demo.out.includes(what))
          throw new Error(`the demo ended early: ${demo.out}`)
      },
    })

  it('shows the life of an At in order, in plain lines in a pipe, and leaves nothing behind', async () => {
    await isShownWhole('YAY')
    await nothingLeft()
  })

  it('begins without the node whose programs are not built, builds them, and then shows the real pod', async () => {
    const folder = await folderOfPrograms()
    const pathOf = await ensureBinaries(NODE, silentProgress)
    // Instead of compiling for minutes, this `go build -o FOLDER/` takes what is built.
    const links = NODE.map((name) => `ln -s ${pathOf(name)} "$2/${name}"`)
    const answer = '[ "$1" != env ] || { printf "go1.99.0\\nlocal\\n"; exit; }'
    const go = ['#!/bin/sh', answer, 'while [ "$1" != -o ]; do shift; done', ...links]
    await writeFile(join(folder, 'go'), `${go.join('\n')}\n`, { mode: 0o755 })
    const env = { PATH: `${folder}:${process.env['PATH']}`, FAIRLEAD_CACHE: join(folder, 'cache') }
    const { out, err } = await toEnd([], env)
    const [pretended = '', real = '', ...others] = out.split(/(?<=\nDONE:.*\n)/)
    expect(others).toEqual([])
    for (const life of [pretended, real]) expect({ steps: stepsIn(life), out }).toMatchObject({ steps: LIFE })
    expect(pretended).toMatch(new RegExp(`pod log +${PRETENDED}`))
    expect(real).toMatch(/pod log +YAY/)
    expect(err).toContain('building from source, once: kube-controller-manager, kube-scheduler, kubelet, containerd')
    await rm(folder, { recursive: true })
    await nothingLeft()
  })

  it('leaves nothing behind when it is interrupted', async () => {
    const demo = start([])
    await shows(demo, 'timer armed')
    demo.child.kill('SIGINT')
    const [code] = await demo.exited
    expect({ code, err: demo.err }).toMatchObject({ code: 130, err: expect.not.stringContaining('    at ') })
    await nothingLeft()
  })

  it('leaves nothing running when it is killed with -9', async () => {
    const demo = start([])
    await shows(demo, 'timer armed')
    demo.child.kill('SIGKILL')
    await demo.exited
    await nothingLeft()
  })

  it('stays with --keep, says how to go on, and is stopped by the command that it names', async () => {
    const cache = await mkdtemp(join(tmpdir(), 'fl-'))
    await symlink(join(cacheDir(), 'bin'), join(cache, 'bin'))
    const env = { FAIRLEAD_CACHE: cache }
    const dir = defaultClusterDir(env)
    try {
      const { code, stdout, stderr } = await fairlead(['demo', '--keep'], env)
      expect({ code, stderr }).toMatchObject({ code: 0 })
      expect(stdout).toContain(`local down --dir ${dir}`)
      const kubectl = await kubectlFor({ kubeconfig: join(dir, 'kubeconfig') })
      expect(await kubectl(['get', 'at', 'example-at', '-o', 'jsonpath={.status.phase}'])).toBe('DONE')
      await kubectl(['create', '-f', '-'], at('by-hand', new Date()))
      await untilPhase(kubectl, 'DONE', 'by-hand', 60)
      expect(await fairlead(['local', 'down', '--dir', dir], env)).toMatchObject({ code: 0 })
      await nothingLeft()
    } finally {
      await stopCluster(dir, { removeDir: true })
      await rm(cache, { recursive: true, force: true })
    }
  })
})
